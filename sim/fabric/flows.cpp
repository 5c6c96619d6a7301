#include "sim/fabric/flows.hpp"

#include <cmath>

#include "models/base/index.hpp"
#include "sim/fabric/simgrid_fabric.hpp"

namespace motley {
namespace {

// A link that is asked for this much more than it has is full, not shared: the sum of rates is rounded.
constexpr double kRounding = 1e-9;

}  // namespace

void Flow::ring() { flows_->arrive(*this); }

Flows::Flows(Clock& clock, const Fabric& fabric, bool all_shared)
    : clock_(clock), fabric_(fabric), all_shared_(all_shared), loads_(fabric.capacities().size()) {}

Flows::~Flows() = default;

bool Flows::is_asked_too_much(std::int32_t link) const {
  return loads_[at(link)].asked > fabric_.capacities()[at(link)] * (1 + kRounding);
}

std::shared_ptr<Flow> Flows::start(std::int32_t lane, std::int64_t bytes) {
  auto started = std::make_shared<Flow>();
  Flow& flow = *started;
  flow.flows_ = this;
  flow.path_ = &fabric_.path(lane);
  if (bytes <= 0 || std::isinf(flow.path_->alone)) {
    flow.arrived_ = true;
    return started;
  }
  flow.place_ = under_way_.size();
  under_way_.push_back(started);
  join(flow);
  bool shares = all_shared_;
  for (const Fabric::Use& use : flow.path_->uses) {
    if (is_asked_too_much(use.link)) end_due(use.link);
    shares = shares || is_asked_too_much(use.link);
  }
  if (shares) {
    // Whoever else crosses a link that has just become too small is moved first, in the order of its links.
    for (const Fabric::Use& use : flow.path_->uses)
      if (is_asked_too_much(use.link)) share_link(use.link);
    share(flow, static_cast<double>(bytes));
    return started;
  }
  flow.end_s_ = clock_.now_s() + static_cast<double>(bytes) / flow.path_->alone;
  for (const Fabric::Use& use : flow.path_->uses) {
    std::vector<Flow*>& there = loads_[at(use.link)].free_flows;
    flow.places_.push_back(static_cast<std::uint32_t>(there.size()));
    there.push_back(&flow);
  }
  clock_.set(flow, flow.end_s_);
  return started;
}

void Flows::join(Flow& flow) {
  for (const Fabric::Use& use : flow.path_->uses) {
    Load& load = loads_[at(use.link)];
    load.asked += flow.path_->alone * use.times;
    ++load.crossing;
  }
}

// Takes the flow off its links' lists of free flows.
void Flows::leave(Flow& flow) {
  for (std::size_t i = 0; i < flow.places_.size(); ++i) {
    const std::int32_t link = flow.path_->uses[i].link;
    std::vector<Flow*>& there = loads_[at(link)].free_flows;
    Flow& last = *there.back();
    there[flow.places_[i]] = &last;
    there.pop_back();
    if (&last == &flow) continue;
    for (std::size_t j = 0; j < last.places_.size(); ++j)
      if (last.path_->uses[j].link == link) last.places_[j] = flow.places_[i];
  }
  flow.places_.clear();
}

// Ends the free flows of a link that end at this very instant, so that who comes after them does not share with them.
void Flows::end_due(std::int32_t link) {
  std::vector<Flow*>& there = loads_[at(link)].free_flows;
  for (std::size_t i = there.size(); i-- > 0;) {
    Flow& flow = *there[i];
    if (flow.end_s_ > clock_.now_s() + Clock::kTogether_s) continue;
    clock_.cancel(flow);
    arrive(flow);
  }
}

// Hands all free flows of a link to SimGrid, with the bytes that they have left.
void Flows::share_link(std::int32_t link) {
  while (!loads_[at(link)].free_flows.empty()) {
    Flow& flow = *loads_[at(link)].free_flows.back();
    clock_.cancel(flow);
    leave(flow);
    share(flow, (flow.end_s_ - clock_.now_s()) * flow.path_->alone);
  }
}

void Flows::share(Flow& flow, double bytes) {
  if (shared_ == nullptr) shared_ = std::make_unique<SimGridFabric>(fabric_);
  if (shared_->idle()) shared_->move_to(clock_.now_s());
  shared_->start(at(flow.path_ - fabric_.paths().data()), bytes, &flow);
}

void Flows::arrive(Flow& flow) {
  leave(flow);
  for (const Fabric::Use& use : flow.path_->uses) {
    Load& load = loads_[at(use.link)];
    load.asked = --load.crossing == 0 ? 0 : load.asked - flow.path_->alone * use.times;
  }
  flow.arrived_ = true;
  const std::shared_ptr<Flow> ended = std::move(under_way_[flow.place_]);
  if (under_way_.back() != nullptr) {
    under_way_.back()->place_ = ended->place_;
    under_way_[ended->place_] = std::move(under_way_.back());
  }
  under_way_.pop_back();
  for (Flow::Arrival* each = flow.waiting_; each != nullptr; each = each->next) clock_.go_on(each->waiting);
}

void Flows::run() {
  std::vector<void*> ended;
  for (clock_.run_ready(); !clock_.stopped(); clock_.run_ready()) {
    const double next_s = clock_.next_s();
    if (shared_ == nullptr || shared_->idle()) {
      if (std::isinf(next_s)) return;
      clock_.move_to(next_s);
      continue;
    }
    ended.clear();
    const double time_s = shared_->advance(next_s, ended);
    for (void* each : ended) arrive(*static_cast<Flow*>(each));
    clock_.move_to(time_s);
  }
}

}  // namespace motley
