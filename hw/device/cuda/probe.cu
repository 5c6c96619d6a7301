// The GPU probe: lists devices with memory and clocks, runs one small kernel on each and checks its
// result. nvcc compiles it into libmotley_cuda.so, hipcc into libmotley_hip.so.
// It never links the driver's library (libcuda): a program that does so cannot start without a driver.
#include <cstdio>
#include <cstring>

#include "hw/device/gpu.hpp"
#include "hw/device/probe_module.hpp"

namespace {

constexpr int kNumbers = 1024;

__global__ void square_indices(int* out) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < kNumbers) out[i] = i * i;
}

GPU(Error_t) run_kernel() {
  int* on_device = nullptr;
  GPU(Error_t) status = GPU(Malloc)(reinterpret_cast<void**>(&on_device), kNumbers * sizeof(int));
  if (status != GPU(Success)) return status;
  int on_host[kNumbers] = {};
  square_indices<<<kNumbers / 256, 256>>>(on_device);
  status = GPU(GetLastError)();
  if (status == GPU(Success))
    status = GPU(Memcpy)(on_host, on_device, sizeof(on_host), GPU(MemcpyDeviceToHost));
  const GPU(Error_t) freed = GPU(Free)(on_device);
  if (status == GPU(Success)) status = freed;
  for (int i = 0; status == GPU(Success) && i < kNumbers; ++i)
    if (on_host[i] != i * i) status = GPU(ErrorUnknown);
  return status;
}

int attribute(decltype(GPU_MULTIPROCESSORS) which, int device) {
  int value = 0;
  return GPU(DeviceGetAttribute)(&value, which, device) == GPU(Success) ? value : 0;
}

// Reports a line like "0: NVIDIA H100 80GB HBM3, 79.1 GiB (78.6 free), 132 multiprocessors at 1980 MHz, memory ..."
GPU(Error_t) describe_device(int device, const MotleyProbeSink* sink) {
  GPU_PROPERTIES properties;
  GPU(Error_t) status = GPU(GetDeviceProperties)(&properties, device);
  if (status == GPU(Success)) status = GPU(SetDevice)(device);
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  if (status == GPU(Success)) status = GPU(MemGetInfo)(&free_bytes, &total_bytes);
  if (status == GPU(Success)) status = run_kernel();
  constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;
  char line[640];
  std::snprintf(line, sizeof(line),
                "%d: %s, %.1f GiB (%.1f free), %d multiprocessors at %d MHz, memory at %d MHz over "
                "%d bits; test kernel: %s",
                device, properties.name, static_cast<double>(total_bytes) / kGiB,
                static_cast<double>(free_bytes) / kGiB, attribute(GPU_MULTIPROCESSORS, device),
                attribute(GPU_ATTRIBUTE(ClockRate), device) / 1000,
                attribute(GPU_ATTRIBUTE(MemoryClockRate), device) / 1000,
                attribute(GPU_MEMORY_BUS_BITS, device), GPU(GetErrorString)(status));
  sink->say(sink->context, "device", line);
  return status;
}

}  // namespace

extern "C" int motley_probe(const MotleyProbeSink* sink) {
  int version = 0;
  char text[256];
  if (GPU(RuntimeGetVersion)(&version) == GPU(Success)) {
    std::snprintf(text, sizeof(text), "%d", version);
#ifdef __HIP__
    // hip_version.h: major * 10,000,000 + minor * 100,000 + patch.
    std::snprintf(text, sizeof(text), "%d.%d", version / 10000000, version / 100000 % 100);
#else
    // cuda_runtime_api.h: major * 1000 + minor * 10.
    std::snprintf(text, sizeof(text), "%d.%d", version / 1000, version % 1000 / 10);
#endif
    sink->say(sink->context, "version", text);
  }
  int count = 0;  // without a driver the next call does not write it
  const GPU(Error_t) status = GPU(GetDeviceCount)(&count);
  if (status != GPU(Success) || count == 0) {
    std::snprintf(text, sizeof(text), "no device: %s (error %d)", GPU(GetErrorString)(status),
                  static_cast<int>(status));
    sink->say(sink->context, "detail", text);
    return 1;
  }
  int ran = 0;
  for (int device = 0; device < count; ++device)
    if (describe_device(device, sink) == GPU(Success)) ++ran;
  std::snprintf(text, sizeof(text), "test kernel right on %d of %d devices", ran, count);
  sink->say(sink->context, "detail", text);
  return ran > 0 ? 0 : 1;
}
