#include "models/calibration/torch_events.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <tuple>
#include <unordered_map>

#include "models/base/json_cursor.hpp"
#include "models/base/refusal.hpp"

namespace motley {
namespace {

using nlohmann::json;

// No tensor has a longer side, no profile lasts longer, and no clock shows more.
constexpr std::int64_t kLongestSide = 1'000'000'000'000;
constexpr double kLongest_us = 1e13, kLatest_us = 1e18;
constexpr int kEventDepth = 2;  // an event is an object in the list of the file's object

// Takes events one by one out of the parser, so that no document is kept in memory.
class EventReader {
 public:
  EventReader(const std::string& text, const std::string& path)
      : text_(text), path_(path), reached_(text.data()) {}

  TorchEvents read() {
    const auto keep = [this](int depth, json::parse_event_t event, json& parsed) {
      return take(depth, event, parsed);
    };
    try {
      const json rest = json::parse(JsonCursor(text_.data(), &reached_),
                                    JsonCursor(text_.data() + text_.size(), &reached_), keep);
    } catch (const json::exception& error) {
      refuse(fault_of(error.what(), reached_ == text_.data() + text_.size()));
    }
    if (!has_events_) refuse("no \"traceEvents\" at the top level");
    if (!has_shapes_ && !events_.operations.empty())
      throw Refusal(Exit::usage, "profile-without-shapes", {.file = path_, .line = 1, .column = 1},
                    "the operations of this profile have no \"Input Dims\"",
                    "profile with `torch.profiler.profile(..., record_shapes=True)`");
    name_launchers();
    sort_operations();
    return std::move(events_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why, RefusalSite site = RefusalSite::here()) const {
    throw Refusal(Exit::usage, "bad-profile",
                  place_of(path_, text_, static_cast<std::size_t>(reached_ - text_.data())), why,
                  "torch.profiler's export_chrome_trace() writes profiles", site);
  }

  bool take(int depth, json::parse_event_t event, json& parsed) {
    if (event == json::parse_event_t::key && depth == 1) {
      in_events_ = parsed == "traceEvents";
      has_events_ = has_events_ || in_events_;
      return in_events_;
    }
    if (event != json::parse_event_t::object_end || depth != kEventDepth || !in_events_) return true;
    take_event(parsed);
    return false;
  }

  void take_event(const json& event) {
    if (text_of(event, "ph") != "X") return;
    const std::string category = text_of(event, "cat");
    if (category == "cpu_op") {
      take_operation(event);
    } else if (category == "kernel" || category == "gpu_memcpy" || category == "gpu_memset") {
      take_work(event);
    } else if (category == "cuda_runtime" || category == "cuda_driver") {
      const auto correlation = whole_argument(event, "correlation");
      const auto operation = whole_argument(event, "External id");
      if (correlation && operation) launchers_[*correlation] = *operation;
    }
  }

  void take_operation(const json& event) {
    HostOperation& operation = events_.operations.emplace_back();
    operation.name = text_of(event, "name");
    operation.id = whole_argument(event, "External id");
    operation.thread = thread_of(event);
    operation.begin_us = real(event, "ts", kLatest_us);
    const double duration_us = real(event, "dur", kLongest_us);
    if (duration_us < 0) refuse(fmt::format("`dur` is negative: {}", duration_us));
    operation.end_us = operation.begin_us + duration_us;
    if (const json* const sizes = argument(event, "Input Dims")) take_operands(event, *sizes, operation);
  }

  void take_work(const json& event) {
    GpuWork work{.name = text_of(event, "name"), .operation = whole_argument(event, "External id")};
    const double duration_us = real(event, "dur", kLongest_us);
    if (duration_us < 0) refuse(fmt::format("`dur` is negative: {}", duration_us));
    work.seconds = duration_us * 1e-6;
    correlations_.push_back(whole_argument(event, "correlation"));
    events_.work.push_back(std::move(work));
  }

  void take_operands(const json& event, const json& sizes, HostOperation& operation) {
    if (!sizes.is_array()) refuse("`Input Dims` is no list");
    has_shapes_ = true;
    const json* const types = argument(event, "Input type");
    const json* const strides = argument(event, "Input Strides");
    const json* const values = argument(event, "Concrete Inputs");
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      Operand& operand = operation.operands.emplace_back();
      operand.type = entry_text(types, i);
      operand.value = entry_text(values, i);
      const bool is_cut =
          operand.type == "TensorList" && sizes[i].empty();  // PyTorch lists 30 tensors at most
      for (const json& tensor : is_cut ? json::array() : tensors_of(sizes[i]))
        operand.sizes.push_back(whole_numbers(tensor));
      if (strides == nullptr || !strides->is_array() || i >= strides->size()) continue;
      const json& steps = (*strides)[i];
      operand.has_strides = true;
      operand.is_transposed = steps.is_array() && steps.size() == 2 && steps[0] == 1 && steps[1] != 1;
    }
  }

  // The sizes of one tensor, or of each tensor of a list.
  json tensors_of(const json& sizes) const {
    if (!sizes.is_array()) refuse("`Input Dims` holds something else than lists");
    if (!sizes.empty() && sizes[0].is_array()) return sizes;
    return json::array({sizes});
  }

  std::vector<std::int64_t> whole_numbers(const json& sizes) const {
    if (!sizes.is_array()) refuse("`Input Dims` holds something else than lists");
    std::vector<std::int64_t> numbers;
    for (const json& size : sizes) {
      if (!size.is_number_integer() || size < 0 || size > kLongestSide)
        refuse(fmt::format("`{}` is no size of a tensor", size.dump()));
      numbers.push_back(size.get<std::int64_t>());
    }
    return numbers;
  }

  static std::string text_of(const json& event, const char* key) {
    const auto field = event.find(key);
    return field != event.end() && field->is_string() ? field->get<std::string>() : "";
  }
  static std::string entry_text(const json* list, std::size_t i) {
    if (list == nullptr || !list->is_array() || i >= list->size() || !(*list)[i].is_string()) return "";
    return (*list)[i].get<std::string>();
  }
  static const json* argument(const json& event, const char* key) {
    const auto arguments = event.find("args");
    if (arguments == event.end() || !arguments->is_object()) return nullptr;
    const auto field = arguments->find(key);
    return field == arguments->end() ? nullptr : &*field;
  }
  std::optional<std::int64_t> whole_argument(const json& event, const char* key) const {
    const json* const value = argument(event, key);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number_integer() || *value < 0 || *value > kLongestSide)
      refuse(fmt::format("`{}` is `{}`, which is no number of an event", key, value->dump()));
    return value->get<std::int64_t>();
  }
  double real(const json& event, const char* key, double most) const {
    const auto field = event.find(key);
    if (field == event.end() || !field->is_number()) refuse(fmt::format("an event has no number `{}`", key));
    const auto value = field->get<double>();
    if (!(std::abs(value) <= most)) refuse(fmt::format("`{}` is out of range: {}", key, field->dump()));
    return value;
  }
  std::int64_t thread_of(const json& event) {
    const auto process = event.find("pid");
    const auto thread = event.find("tid");
    const std::string name =
        (process == event.end() ? "" : process->dump()) + " " + (thread == event.end() ? "" : thread->dump());
    return threads_.try_emplace(name, static_cast<std::int64_t>(threads_.size())).first->second;
  }

  // A kernel that does not name its operation was launched by a call that does.
  void name_launchers() {
    for (std::size_t i = 0; i < events_.work.size(); ++i) {
      if (events_.work[i].operation || !correlations_[i]) continue;
      const auto launcher = launchers_.find(*correlations_[i]);
      if (launcher != launchers_.end()) events_.work[i].operation = launcher->second;
    }
  }

  void sort_operations() {
    auto& all = events_.operations;
    std::stable_sort(all.begin(), all.end(), [](const HostOperation& a, const HostOperation& b) {
      return std::tuple(a.thread, a.begin_us, -a.end_us) < std::tuple(b.thread, b.begin_us, -b.end_us);
    });
    std::vector<int> open;  // the operations that run where the next one begins, outermost first
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto ended = [&](int index) {
        const HostOperation& outer = all[static_cast<std::size_t>(index)];
        return outer.thread != all[i].thread || outer.end_us <= all[i].begin_us;
      };
      while (!open.empty() && ended(open.back())) open.pop_back();
      if (!open.empty()) all[i].parent = open.back();
      open.push_back(static_cast<int>(i));
    }
  }

  const std::string& text_;
  const std::string& path_;
  const char* reached_;
  bool in_events_ = false, has_events_ = false, has_shapes_ = false;
  TorchEvents events_;
  std::vector<std::optional<std::int64_t>> correlations_;     // of TorchEvents::work
  std::unordered_map<std::int64_t, std::int64_t> launchers_;  // operation by correlation
  std::map<std::string, std::int64_t> threads_;
};

}  // namespace

TorchEvents read_torch_events(const std::string& text, const std::string& path) {
  return EventReader(text, path).read();
}

}  // namespace motley
