// SPDX-License-Identifier: Apache-2.0
#include "tests/testing/check_placement.h"

#include <algorithm>
#include <cstdint>
#include <map>

#include "remat/core/error.h"
#include "remat/core/simulate.h"

namespace remat::testing {
namespace {

using detail::concat;

struct Span {
  int64_t begin;
  int64_t end;
  std::string name;
};

std::string overlap_in(std::vector<Span> spans) {
  std::erase_if(spans, [](const Span& span) { return span.begin == span.end; });
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (size_t i = 1; i < spans.size(); ++i) {
    if (spans[i].begin < spans[i - 1].end) {
      return concat(spans[i - 1].name, " overlaps ", spans[i].name);
    }
  }
  return "";
}

class Walk {
 public:
  Walk(const Graph& graph, const Schedule& schedule, const Placement& placement)
      : graph_(graph), schedule_(schedule), placement_(placement) {
    for (const ScheduleStep& step : schedule.steps) {
      if (step.kind == StepKind::offload) alignment_ = std::max(alignment_, graph.channel->alignment);
    }
  }

  std::string fault() {
    if (placement_.instance_offset.size() != schedule_.instances.size() ||
        placement_.workspace_offset.size() != schedule_.steps.size()) {
      return "the placement does not have the schedule's size";
    }
    for (size_t i = 0; i < graph_.external_count; ++i) {
      if (placement_.instance_offset[i] != kNoAddress) return "an external has an address";
    }
    for (size_t s = 0; s < schedule_.steps.size() && fault_.empty(); ++s) step(s);
    if (fault_.empty()) check_totals();
    return fault_;
  }

 private:
  int64_t rounded(int64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

  void step(size_t s) {
    const ScheduleStep& step = schedule_.steps[s];
    const int64_t workspace_bytes =
        step.kind == StepKind::free ? 0 : graph_.op(step.op).workspace_bytes;
    if ((placement_.workspace_offset[s] != kNoAddress) != (workspace_bytes > 0)) {
      fault_ = concat("step ", s, ": a workspace address without a workspace, or the reverse");
    }
    if (step.kind == StepKind::free) {
      live_.erase(step.instance);
      return;
    }
    if (step.kind == StepKind::offload) {
      written_.push_back(on_channel(schedule_.reads(graph_, step)[0], schedule_.creates(graph_, step)[0]));
      check_moment(s, 0);
      return;
    }
    for (const InstanceId id : schedule_.creates(graph_, step)) {
      const Instance& result = schedule_.instances[index(id)];
      live_[id] = span_of(id);
      if (result.in_place_of == kNoInstance) continue;
      Span& source = live_.at(result.in_place_of);
      if (source.begin != live_[id].begin) fault_ = concat("step ", s, ": reuse moves the address");
      // For this one step the two count as one thing, as large as the larger.
      live_[id].end = std::max(live_[id].end, source.end);
      live_.erase(result.in_place_of);
    }
    check_moment(s, workspace_bytes);
    for (const InstanceId id : schedule_.creates(graph_, step)) live_[id] = span_of(id);
  }

  Span on_channel(InstanceId source, InstanceId away) {
    const int64_t begin = placement_.instance_offset[index(away)];
    const std::string name = instance_name(graph_, schedule_.instances[index(away)]);
    if (begin < 0 || begin % alignment_ != 0) fault_ = concat(name, " is at ", begin, " on the channel");
    const Storage& storage = graph_.storage(schedule_.instances[index(source)].storage);
    return {begin, begin + rounded(storage.bytes), name};
  }

  Span span_of(InstanceId id) {
    const Instance& instance = schedule_.instances[index(id)];
    const std::string name = instance_name(graph_, instance);
    const int64_t begin = placement_.instance_offset[index(id)];
    if (begin < 0 || begin % alignment_ != 0) fault_ = concat(name, " is at ", begin);
    const int64_t end = begin + rounded(graph_.storage(instance.storage).bytes);
    if (end > placement_.arena_bytes) fault_ = concat(name, " ends beyond the arena");
    return {begin, end, name};
  }

  void check_moment(size_t s, int64_t workspace_bytes) {
    std::vector<Span> spans;
    for (const auto& [id, span] : live_) spans.push_back(span);
    if (workspace_bytes > 0) {
      const int64_t begin = placement_.workspace_offset[s];
      if (begin % alignment_ != 0) fault_ = concat("step ", s, ": the workspace is not aligned");
      spans.push_back({begin, begin + rounded(workspace_bytes), "the workspace"});
    }
    for (const Span& span : spans) top_ = std::max(top_, span.end);
    if (const std::string overlap = overlap_in(std::move(spans)); !overlap.empty()) {
      fault_ = concat("step ", s, ": ", overlap);
    }
  }

  void check_totals() {
    if (placement_.arena_bytes != top_) {
      fault_ = concat("arena_bytes is ", placement_.arena_bytes, ", what it holds ends at ", top_);
    }
    if (const std::string overlap = overlap_in(written_); !overlap.empty()) {
      fault_ = concat("on the channel ", overlap);
    }
    int64_t channel_bytes = 0;
    for (const Span& span : written_) channel_bytes = std::max(channel_bytes, span.end);
    if (placement_.channel_bytes != channel_bytes) {
      fault_ = concat("channel_bytes is ", placement_.channel_bytes, ", what it holds ends at ", channel_bytes);
    }
    Graph arena_only = graph_;
    for (Storage& storage : arena_only.storages) {
      storage.bytes = storage.external() ? 0 : rounded(storage.bytes);
    }
    for (Storage& form : arena_only.forms) form.bytes = rounded(form.bytes);
    for (Op& op : arena_only.ops) op.workspace_bytes = rounded(op.workspace_bytes);
    for (Move& move : arena_only.moves) move.op.workspace_bytes = rounded(move.op.workspace_bytes);
    const int64_t live = simulate_peak(arena_only, schedule_).bytes;
    if (placement_.max_live_bytes != live) {
      fault_ = concat("max_live_bytes is ", placement_.max_live_bytes, ", simulate says ", live);
    }
    if (placement_.arena_bytes < live) fault_ = "the arena is smaller than what lives in it";
    if (placement_.arena_bytes == live && !placement_.optimal) fault_ = "optimal is not said";
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const Placement& placement_;
  std::map<InstanceId, Span> live_;
  std::vector<Span> written_;  // to the channel, from where nothing goes during the step
  int64_t alignment_ = 64;
  int64_t top_ = 0;
  std::string fault_;
};

}  // namespace

std::string placement_fault(const Graph& graph, const Schedule& schedule,
                            const Placement& placement) {
  return Walk(graph, schedule, placement).fault();
}

std::string packing_fault(const PackingProblem& problem, const Packing& packing) {
  if (packing.offset.size() != problem.item_count()) return "not one offset for each item";
  std::vector<std::vector<Span>> by_tick(static_cast<size_t>(problem.tick_count()));
  int64_t top = 0;
  for (size_t i = 0; i < problem.item_count(); ++i) {
    const int64_t begin = packing.offset[i];
    if (begin < 0) return concat("item ", i, " is at ", begin);
    for (const Part& part : problem.parts(i)) {
      top = std::max(top, begin + part.size);
      for (int32_t t = part.first; t <= part.last; ++t) {
        by_tick[static_cast<size_t>(t)].push_back({begin, begin + part.size, concat("item ", i)});
      }
    }
  }
  for (size_t t = 0; t < by_tick.size(); ++t) {
    const std::string overlap = overlap_in(std::move(by_tick[t]));
    if (!overlap.empty()) return concat("tick ", t, ": ", overlap);
  }
  if (packing.height != top) return concat("height is ", packing.height, ", the top is ", top);
  if (packing.height < packing.lower_bound) return "the height is below the lower bound";
  return "";
}

}  // namespace remat::testing
