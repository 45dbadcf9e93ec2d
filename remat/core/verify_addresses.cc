// SPDX-License-Identifier: Apache-2.0
#include "remat/core/verify_addresses.h"

#include <algorithm>
#include <limits>
#include <map>

#include "remat/core/error.h"

namespace remat {
namespace {

using detail::concat;

// Goes through the schedule and keeps a map of what lies where. As nothing in the map overlaps, a
// newcomer needs to look at its two neighbours only.
class Walk {
 public:
  Walk(const Graph& graph, const Schedule& schedule, const Placement& placement)
      : graph_(graph), schedule_(schedule), placement_(placement) {
    for (const ScheduleStep& step : schedule.steps) {
      if (step.kind != StepKind::offload || !graph.channel) continue;
      alignment_ = std::max(kArenaAlignment, graph.channel->alignment);
    }
  }

  std::string fault() {
    if (placement_.instance_offset.size() != schedule_.instances.size() ||
        placement_.workspace_offset.size() != schedule_.steps.size()) {
      return "the addresses are not as many as the schedule's instances and steps";
    }
    for (size_t i = 0; i < graph_.external_count; ++i) {
      if (placement_.instance_offset[i] != kNoAddress) {
        return concat(name_of(static_cast<InstanceId>(i)), " has an address, but lives outside");
      }
    }
    for (size_t s = 0; s < schedule_.steps.size() && fault_.empty(); ++s) step(s);
    if (fault_.empty()) check_totals();
    return fault_;
  }

 private:
  struct Block {
    int64_t end = 0;
    std::string name;
  };

  int64_t rounded(int64_t bytes) const {
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
    return bytes > kMost - alignment_ ? kMost  // more than any arena
                                      : (bytes + alignment_ - 1) / alignment_ * alignment_;
  }
  std::string name_of(InstanceId id) const {
    return instance_name(graph_, schedule_.instances[index(id)]);
  }
  int64_t begin_of(InstanceId id) const { return placement_.instance_offset[index(id)]; }
  int64_t size_of(InstanceId id) const {
    return rounded(graph_.storage(schedule_.instances[index(id)].storage).bytes);
  }

  void step(size_t s) {
    const ScheduleStep& step = schedule_.steps[s];
    const int64_t workspace_bytes =
        step.kind == StepKind::free ? 0 : graph_.op(step.op).workspace_bytes;
    if ((placement_.workspace_offset[s] != kNoAddress) != (workspace_bytes > 0)) {
      fault_ = concat("step ", s, " has a workspace and no address for it, or the reverse");
      return;
    }
    if (step.kind == StepKind::free) {
      remove(begin_of(step.instance), size_of(step.instance));
      return;
    }
    if (step.kind == StepKind::offload) {
      offload(schedule_.reads(graph_, step)[0], schedule_.creates(graph_, step)[0]);
      return;
    }
    for (const InstanceId id : schedule_.creates(graph_, step)) create(id);
    const std::string workspace = concat("the workspace of ", graph_.op(step.op).name);
    const int64_t begin = placement_.workspace_offset[s];
    if (workspace_bytes > 0) add(begin, rounded(workspace_bytes), workspace);
    largest_ = std::max(largest_, live_);
    if (!fault_.empty()) return;
    if (workspace_bytes > 0) remove(begin, rounded(workspace_bytes));
    for (const InstanceId id : schedule_.creates(graph_, step)) shrink(id);
  }

  // No two values share bytes on the channel during a step: they come one after the other.
  void offload(InstanceId source, InstanceId away) {
    if (begin_of(away) != channel_top_) {
      fault_ = concat(name_of(away), " is at ", begin_of(away), " on the channel; expected ", channel_top_);
      return;
    }
    if (size_of(source) > std::numeric_limits<int64_t>::max() - channel_top_) {
      fault_ = concat(name_of(away), " takes more bytes on the channel than 64 bits can count");
      return;
    }
    channel_top_ += size_of(source);
  }

  // While the op runs, a result and the input whose place it takes are one thing, as large as the
  // larger of the two.
  void create(InstanceId id) {
    const InstanceId source = schedule_.instances[index(id)].in_place_of;
    int64_t size = size_of(id);
    if (source != kNoInstance) {
      if (begin_of(source) != begin_of(id) && std::max(size, size_of(source)) > 0) {
        fault_ = concat(name_of(id), " takes the place of ", name_of(source), " at another address");
        return;
      }
      remove(begin_of(source), size_of(source));
      size = std::max(size, size_of(source));
    }
    add(begin_of(id), size, name_of(id));
  }

  void shrink(InstanceId id) {
    const InstanceId source = schedule_.instances[index(id)].in_place_of;
    if (source == kNoInstance) return;
    remove(begin_of(id), std::max(size_of(id), size_of(source)));
    add(begin_of(id), size_of(id), name_of(id));
  }

  void add(int64_t begin, int64_t size, const std::string& name) {
    if (!fault_.empty()) return;
    if (begin < 0 || begin % alignment_ != 0) {
      fault_ = concat(name, " is at ", begin, "; expected a multiple of ", alignment_);
      return;
    }
    if (size > placement_.arena_bytes || begin > placement_.arena_bytes - size) {
      fault_ = concat(name, " is at ", begin, " and ends beyond the arena of ",
                      placement_.arena_bytes, " bytes");
      return;
    }
    if (size == 0) return;
    const auto next = there_.lower_bound(begin);
    if (next != there_.end() && next->first < begin + size) {
      fault_ = concat(name, " overlaps ", next->second.name);
      return;
    }
    if (next != there_.begin() && std::prev(next)->second.end > begin) {
      fault_ = concat(name, " overlaps ", std::prev(next)->second.name);
      return;
    }
    there_.emplace_hint(next, begin, Block{begin + size, name});
    live_ += size;
    top_ = std::max(top_, begin + size);
  }

  void remove(int64_t begin, int64_t size) {
    if (size == 0) return;
    there_.erase(begin);
    live_ -= size;
  }

  void check_totals() {
    if (placement_.arena_bytes != top_) {
      fault_ = concat("the arena is ", placement_.arena_bytes, " bytes; what it holds ends at ", top_);
    } else if (placement_.max_live_bytes != largest_) {
      fault_ = concat("the largest load is said to be ", placement_.max_live_bytes,
                      " bytes; it is ", largest_);
    } else if (placement_.channel_bytes != channel_top_) {
      fault_ = concat("the channel is said to hold ", placement_.channel_bytes, " bytes; it holds ",
                      channel_top_);
    }
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const Placement& placement_;
  std::map<int64_t, Block> there_;  // by where it begins
  int64_t alignment_ = kArenaAlignment;
  int64_t channel_top_ = 0;
  int64_t live_ = 0;
  int64_t largest_ = 0;
  int64_t top_ = 0;
  std::string fault_;
};

}  // namespace

std::string fault_in_addresses(const Graph& graph, const Schedule& schedule,
                               const Placement& placement) {
  return Walk(graph, schedule, placement).fault();
}

}  // namespace remat
