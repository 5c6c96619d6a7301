#include "hw/device/probe.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "hw/device/probe_module.hpp"

#ifdef MOTLEY_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

namespace motley {
namespace {

struct CloseLibrary {
  void operator()(void* library) const { dlclose(library); }
};
using Library = std::unique_ptr<void, CloseLibrary>;

Library open_library(const std::string& path) { return Library(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)); }

// ISO C++ lets the implementation decide about a cast from an object pointer to a function pointer; POSIX guarantees
// it.
template <class Function>
Function* find_function(const Library& library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library.get(), name));
}

void record_line(void* context, const char* key, const char* value) {
  auto& report = *static_cast<PartReport*>(context);
  if (std::string_view(key) == "version") report.version = value;
  if (std::string_view(key) == "device") report.devices.emplace_back(value);
  if (std::string_view(key) == "detail") report.detail = value;
}

PartReport probe_module(PartReport report, const std::string& path, bool built) {
  if (!built) {
    report.detail = "not found when this program was built";
    return report;
  }
  report.state = PartState::compiled;
  const Library module = open_library(path);
  if (!module) {
    report.detail = std::string("cannot be loaded: ") + dlerror();
    return report;
  }
  const auto probe = find_function<int(const MotleyProbeSink*)>(module, "motley_probe");
  if (probe == nullptr) {
    report.detail = "module without motley_probe: " + path;
    return report;
  }
  const MotleyProbeSink sink{&report, record_line};
  if (probe(&sink) == 0) report.state = PartState::ran;
  return report;
}

// Loads the vendor library that CMake found at `path` (empty: not found), and asks it for its version.
template <class AskVersion>
PartReport probe_library(PartReport report, const std::string& path, AskVersion ask) {
  if (path.empty()) {
    report.detail = "not found when this program was built";
    return report;
  }
  report.state = PartState::compiled;
  const Library library = open_library(path);
  const std::optional<std::string> version = library ? ask(library) : std::nullopt;
  if (version) report.version = *version;
  report.detail = version ? "found and loads; no kernel of it was run"
                          : "found when this program was built, but does not load here";
  return report;
}

// split_version(90101, 10000, 100) is "9.1.1".
std::string split_version(std::size_t version, std::size_t major_unit, std::size_t minor_unit) {
  return std::to_string(version / major_unit) + "." + std::to_string(version % major_unit / minor_unit) +
         "." + std::to_string(version % minor_unit);
}

PartReport probe_onednn() {
  PartReport report{.name = "oneDNN", .enables = "fast matrix products on host ranks"};
#ifdef MOTLEY_ONEDNN
  const dnnl_version_t* version = dnnl_version();
  report.version = std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
                   std::to_string(version->patch);
  report.state = PartState::ran;
  report.detail = "linked";
#else
  report.detail = "not found when this program was built";
#endif
  return report;
}

PartReport probe_openblas() {
  return probe_library({.name = "OpenBLAS", .enables = "a second source of matrix products on host ranks"},
                       MOTLEY_OPENBLAS_LIBRARY, [](const Library& library) -> std::optional<std::string> {
                         const auto config = find_function<char*()>(library, "openblas_get_config");
                         if (config == nullptr) return std::nullopt;
                         const std::string text = config();  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
                         const auto begin = text.find(' ') + 1;
                         return text.substr(begin, text.find(' ', begin) - begin);
                       });
}

std::vector<PartReport> probe_cuda_libraries() {
  // How the libraries encode versions: cublas_api.h (major*10000+minor*100+patch since 11), cudnn_version.h
  // (major*10000+minor*100+patch since 9), nccl.h (NCCL_VERSION since 2.9).
  auto asked_by = [](const char* symbol) {
    return [symbol](const Library& library) -> std::optional<std::string> {
      const auto version = find_function<std::size_t()>(library, symbol);
      if (version == nullptr) return std::nullopt;
      return split_version(version(), 10000, 100);
    };
  };
  return {
      probe_library({.name = "cuBLAS", .enables = "matrix products on NVIDIA GPUs; unused in this version"},
                    MOTLEY_CUBLASLT_LIBRARY, asked_by("cublasLtGetVersion")),
      probe_library({.name = "cuDNN", .enables = "fused attention on NVIDIA GPUs; unused in this version"},
                    MOTLEY_CUDNN_LIBRARY, asked_by("cudnnGetVersion")),
      probe_library(
          {.name = "NCCL", .enables = "whole collectives between NVIDIA GPUs; unused in this version"},
          MOTLEY_NCCL_LIBRARY,
          [](const Library& library) -> std::optional<std::string> {
            const auto ask = find_function<int(int*)>(library, "ncclGetVersion");
            int version = 0;
            if (ask == nullptr || ask(&version) != 0) return std::nullopt;
            return split_version(static_cast<std::size_t>(version), 10000, 100);
          }),
  };
}

}  // namespace

std::string_view name_of(PartState state) {
  switch (state) {
    case PartState::absent:
      return "absent";
    case PartState::compiled:
      return "compiled";
    case PartState::ran:
      return "ran";
  }
  return "absent";
}

std::vector<PartReport> probe_hardware(const std::string& module_folder) {
  const auto module = [&](const char* name) {
    return (std::filesystem::path(module_folder) / name).string();
  };
  std::vector<PartReport> parts;
  parts.push_back(probe_onednn());
  parts.push_back(probe_openblas());
  parts.push_back(probe_module({.name = "CUDA", .enables = "NVIDIA GPUs; today: they are listed and tested"},
                               module("libmotley_cuda.so"), MOTLEY_HAS_CUDA));
  for (PartReport& part : probe_cuda_libraries()) parts.push_back(std::move(part));
  parts.push_back(probe_module({.name = "HIP", .enables = "AMD GPUs; today: they are listed and tested"},
                               module("libmotley_hip.so"), MOTLEY_HAS_HIP));
  parts.push_back(
      probe_module({.name = "libibverbs", .enables = "RDMA cards carry large messages between real ranks"},
                   module("libmotley_verbs.so"), MOTLEY_HAS_VERBS));
  parts.push_back(
      probe_module({.name = "librdmacm", .enables = "RDMA connections by address; today: asked if it can"},
                   module("libmotley_rdmacm.so"), MOTLEY_HAS_RDMACM));
  return parts;
}

}  // namespace motley
