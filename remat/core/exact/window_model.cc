// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/window_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "remat/core/reuse.h"

namespace remat {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kTolerance = 1e-6;  // see the header
constexpr double kTimeScale = 1e5;   // what the step's time is scaled to, if it is longer
constexpr double kTimeGap = 1e-5;    // of the step's time, if it is longer: the last bit takes most of the solver's
constexpr double kBytesScale = 1e3;  // what the budget is scaled to

bool contains(const std::vector<Value>& values, const Value& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

std::vector<size_t> largest_in_stretches(std::span<const int64_t> excess_bytes, size_t count) {
  std::vector<size_t> chosen;
  const auto at = [&](size_t i) { return excess_bytes.begin() + static_cast<std::ptrdiff_t>(i); };
  for (size_t k = 0; k < count; ++k) {
    const auto begin = at(k * excess_bytes.size() / count);
    const auto end = at((k + 1) * excess_bytes.size() / count);
    if (begin == end) continue;
    chosen.push_back(static_cast<size_t>(std::max_element(begin, end) - excess_bytes.begin()));
  }
  return chosen;
}

WindowModel::WindowModel(const Graph& graph, std::span<const OpId> cuts, int64_t budget_bytes)
    : graph_(graph),
      cuts_(cuts.begin(), cuts.end()),
      windows_(cuts_.size() + 1),
      free_bytes_(static_cast<double>(budget_bytes - graph.external_bytes())),
      values_(graph) {
  const double time_ns = static_cast<double>(graph.total_time_ns());
  time_unit_ns_ = std::max(1.0, time_ns / kTimeScale);
  margin_ns_ = kTolerance * time_ns + kTolerance;
  first_from_.resize(graph.ops.size(), 0);
  first_until_.resize(graph.ops.size(), cuts_.size());
  last_.resize(graph.ops.size(), cuts_.size());
}

WindowModel::WindowModel(const Graph& graph, const Dependences& dependences,
                         std::span<const OpId> cuts, int64_t budget_bytes)
    : WindowModel(graph, cuts, budget_bytes) {
  find_windows(dependences);
  build({});
}

WindowModel::WindowModel(const Graph& graph, std::span<const OpId> first_runs,
                         std::span<const OpId> cuts, int64_t budget_bytes,
                         std::span<const Watched> watched)
    : WindowModel(graph, cuts, budget_bytes) {
  find_windows(first_runs);
  build(watched);
}

void WindowModel::build(std::span<const Watched> watched) {
  end_runs();
  add_runs();
  add_keeps();
  add_dependences();
  for (size_t i = 1; i <= cuts_.size(); ++i) add_memory(i);
  for (const Watched& one : watched) add_watched(one);
}

WindowModel::Answer WindowModel::solve(Effort& effort, int64_t enough_ns) const {
  const double gap = time_unit_ns_ > 1 ? kTimeScale * kTimeGap : kTolerance;
  const Solution solution = model_.solve(
      {.gap = gap,
       .enough = certain_units_ + (static_cast<double>(enough_ns) + margin_ns_) / time_unit_ns_},
      effort);
  Answer answer;
  answer.infeasible = solution.status == Solution::Status::infeasible;
  if (std::isfinite(solution.lower_bound)) {
    // Times are whole numbers, so what lies between two of them may be rounded up.
    const double extra_ns = (solution.lower_bound - certain_units_) * time_unit_ns_ - margin_ns_;
    answer.least_extra_ns = std::max<int64_t>(0, static_cast<int64_t>(std::ceil(extra_ns)));
  }
  if (!solution.values.empty()) answer.reruns = reruns_of(solution);
  return answer;
}

std::vector<std::vector<OpId>> WindowModel::reruns_of(const Solution& solution) const {
  std::vector<std::vector<OpId>> reruns(windows_);
  for (size_t o = 0; o < graph_.ops.size(); ++o) {
    for (size_t w = 0; w < windows_; ++w) {
      const int32_t variable = runs_[o * windows_ + w];
      if (variable < 0 || solution.values[static_cast<size_t>(variable)] < 0.5) continue;
      reruns[w].push_back(static_cast<OpId>(o));
    }
  }
  return reruns;
}

void WindowModel::find_windows(std::span<const OpId> first_runs) {
  size_t window = 0;
  for (const OpId op : first_runs) {
    first_from_[index(op)] = first_until_[index(op)] = window;
    if (window < cuts_.size() && cuts_[window] == op) ++window;
  }
}

void WindowModel::find_windows(const Dependences& dependences) {
  const size_t count = graph_.ops.size();
  for (size_t i = 1; i <= cuts_.size(); ++i) {
    const OpId cut = cuts_[i - 1];
    const std::vector<bool> descends = reached(dependences.after, cut);
    const std::vector<bool> precedes = reached(dependences.before, cut);
    for (size_t o = 0; o < count; ++o) {
      if (descends[o]) first_from_[o] = i;
      if (precedes[o]) first_until_[o] = std::min(first_until_[o], i - 1);
    }
    first_from_[index(cut)] = first_until_[index(cut)] = i - 1;
  }
}

void WindowModel::end_runs() {
  for (size_t o = 0; o < graph_.ops.size(); ++o) {
    if (!graph_.rerunnable(static_cast<OpId>(o))) last_[o] = first_until_[o];
    for (const Value& value : graph_.ops[o].reads) {
      const std::optional<OpId> next = next_change(graph_, value);
      if (!next || !graph_.storage(value.storage).external()) continue;
      // Reads end with the window in which the change comes, at the latest.
      last_[o] = std::min(last_[o], first_until_[index(*next)]);
    }
  }
}

void WindowModel::add_runs() {
  runs_.resize(graph_.ops.size() * windows_, kNo);
  for (size_t o = 0; o < graph_.ops.size(); ++o) {
    const double cost = static_cast<double>(graph_.ops[o].time_ns) / time_unit_ns_;
    const bool certain = first_from_[o] == first_until_[o];
    std::vector<Summand> first;
    for (size_t w = first_from_[o]; w <= last_[o]; ++w) {
      if (certain && w == first_from_[o]) {
        run(o, w) = kYes;
        continue;
      }
      run(o, w) = model_.add_binary(cost);
      if (w <= first_until_[o]) first.push_back({run(o, w), 1});
    }
    if (certain) continue;
    certain_units_ += cost;  // one of its runs is paid anyway
    const bool once = !graph_.rerunnable(static_cast<OpId>(o));
    model_.add_row(1, first, once ? 1 : kInfinity);
  }
}

void WindowModel::add_keeps() {
  std::vector<size_t> useful_until(values_.size(), 0);
  for (size_t o = 0; o < graph_.ops.size(); ++o) {
    for (const Value& value : internal_inputs(graph_, graph_.ops[o])) {
      useful_until[values_.of(value)] = std::max(useful_until[values_.of(value)], last_[o]);
    }
  }
  for (const Value& value : output_values(graph_)) useful_until[values_.of(value)] = cuts_.size();
  keeps_.resize(values_.size() * windows_, kNo);
  for (size_t v = 0; v < values_.size(); ++v) {
    const size_t from = first_from_[index(maker(graph_, values_[v]))] + 1;
    for (size_t i = from; i <= useful_until[v]; ++i) keep(v, i) = model_.add_binary(0);
  }
}

void WindowModel::add_dependences() {
  for (size_t o = 0; o < graph_.ops.size(); ++o) {
    for (const Value& value : internal_inputs(graph_, graph_.ops[o])) {
      for (size_t w = 0; w < windows_; ++w) demand_source(run(o, w), values_.of(value), w);
    }
  }
  for (size_t v = 0; v < values_.size(); ++v) {
    for (size_t i = 1; i < windows_; ++i) demand_source(keep(v, i), v, i - 1);
  }
  for (const Value& value : output_values(graph_)) demand_source(kYes, values_.of(value), cuts_.size());
}

// user <= keep(v, w) + run(maker of v, w)
void WindowModel::demand_source(int32_t user, size_t v, size_t w) {
  if (user == kNo) return;
  std::vector<Summand> summands;
  double constant = 0;
  const auto add = [&](int32_t variable, double factor) {
    if (variable == kYes) constant += factor;
    if (variable >= 0) summands.push_back({variable, factor});
  };
  add(keep(v, w), 1);
  add(run(index(maker(graph_, values_[v])), w), 1);
  if (constant >= 1) return;
  add(user, -1);
  model_.add_row(-constant, summands, kInfinity);
}

void WindowModel::add_memory(size_t i) {
  const Op& cut = graph_.op(cuts_[i - 1]);
  const std::vector<Value> inputs = internal_inputs(graph_, cut);
  const double unit = std::max(1.0, free_bytes_) / kBytesScale;
  std::vector<Summand> summands;
  for (size_t v = 0; v < values_.size(); ++v) {
    if (keep(v, i) < 0 || maker(graph_, values_[v]) == cuts_[i - 1]) continue;
    // An operand is there anyway; one that the cut updates is gone after it, unless in a copy.
    const bool updated = contains(cut.updates, values_[v]);
    if (contains(inputs, values_[v]) && !updated) continue;
    summands.push_back(
        {keep(v, i), static_cast<double>(graph_.storage(values_[v].storage).bytes) / unit});
  }
  add_sharing(i, cut, unit, summands);
  const double limit =
      free_bytes_ * (1 + kTolerance) - static_cast<double>(bytes_while_running(graph_, cut));
  model_.add_row(-kInfinity, summands, limit / unit);
}

// Each result takes at most one place, each place is taken by at most one result.
void WindowModel::add_sharing(size_t i, const Op& cut, double unit, std::vector<Summand>& memory) {
  std::vector<std::pair<Reuse, int32_t>> taken;
  for (const Reuse& reuse : cut.reuse) {
    const int64_t bytes = shared_bytes(graph_, reuse);
    if (bytes == 0) continue;
    const int32_t take = model_.add_binary(0);
    memory.push_back({take, -static_cast<double>(bytes) / unit});
    if (const int32_t kept = keep(values_.of(source_of(cut, reuse)), i); kept >= 0) {
      const Summand summands[] = {{take, 1}, {kept, 1}};
      model_.add_row(-kInfinity, summands, 1);
    }
    for (const auto& [other, other_take] : taken) {
      if (!exclude_each_other(other, reuse)) continue;
      const Summand summands[] = {{take, 1}, {other_take, 1}};
      model_.add_row(-kInfinity, summands, 1);
    }
    taken.push_back({reuse, take});
  }
}

// through >= keep at the beginning + keep at the end - 1 - run(maker of the value)
int32_t WindowModel::through(size_t value, size_t window) {
  const int32_t begin = keep(value, window), end = keep(value, window + 1);
  const int32_t made = run(index(maker(graph_, values_[value])), window);
  if (begin < 0 || end < 0 || made == kYes) return kNo;
  const auto [entry, fresh] = throughs_.try_emplace(value * windows_ + window, kNo);
  if (!fresh) return entry->second;
  const int32_t there = entry->second = model_.add_variable(0, 1, 0, false);
  std::vector<Summand> summands = {{there, 1}, {begin, -1}, {end, -1}};
  if (made >= 0) summands.push_back({made, 1});
  model_.add_row(-1, summands, kInfinity);
  return there;
}

void WindowModel::add_watched(const Watched& watched) {
  const auto cut = std::find(cuts_.begin(), cuts_.end(), watched.until);
  if (cut == cuts_.end()) return;
  const size_t window = static_cast<size_t>(cut - cuts_.begin());
  const int32_t runs = run(index(watched.op), window);
  if (window == 0 || runs < 0) return;
  const Op& op = graph_.op(watched.op);
  // Its results may take the place of operands: at best, each of the largest.
  int64_t needed = bytes_while_running(graph_, op);
  for (const Reuse& reuse : op.reuse) needed -= shared_bytes(graph_, reuse);
  const double unit = std::max(1.0, free_bytes_) / kBytesScale;
  const std::vector<Value> inputs = internal_inputs(graph_, op);
  std::vector<Summand> summands = {{runs, static_cast<double>(std::max<int64_t>(0, needed)) / unit}};
  for (size_t v = 0; v < values_.size(); ++v) {
    const int64_t bytes = graph_.storage(values_[v].storage).bytes;
    if (bytes == 0 || contains(inputs, values_[v])) continue;
    const int32_t there = through(v, window);
    if (there >= 0) summands.push_back({there, static_cast<double>(bytes) / unit});
  }
  model_.add_row(-kInfinity, summands, free_bytes_ * (1 + kTolerance) / unit);
}

}  // namespace remat
