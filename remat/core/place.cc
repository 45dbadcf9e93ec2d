// SPDX-License-Identifier: Apache-2.0
#include "remat/core/place.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "remat/core/effort.h"
#include "remat/core/error.h"
#include "remat/core/packing/packing.h"

// Two stages. First every chain of instances that take each other's place, and every workspace,
// becomes one item of a PackingProblem whose ticks are the runs of the schedule: a free takes no
// space, so it needs no tick. Then `pack` finds the offsets, in units of the alignment.

namespace remat {
namespace {

using detail::concat;

constexpr int32_t kUnborn = -1;
constexpr size_t kNoItem = std::numeric_limits<size_t>::max();
constexpr int64_t kWorkPerItem = 1'000;  // of all the greedy orders

class Placer {
 public:
  Placer(const Graph& graph, const Schedule& schedule)
      : graph_(graph), schedule_(schedule), alignment_(arena_alignment(graph, schedule)) {}

  Placement place(const PlaceOptions& options, Effort& effort) {
    read_lifetimes();
    make_items();
    Effort searches = effort.part(Effort::work_of_seconds(options.time_limit_seconds));
    const Packing packing = pack(
        problem_, searches, {.enough_height = options.enough_bytes / alignment_, .stages = options.stages});
    effort.spend(kWorkPerItem * static_cast<int64_t>(problem_.item_count()));
    return placement(packing);
  }

 private:
  struct Lifetime {
    int32_t first = kUnborn;  // ticks, both included
    int32_t last = kUnborn;
    InstanceId successor = kNoInstance;  // takes its place at `last`
  };

  void read_lifetimes() {
    lives_.resize(schedule_.instances.size());
    int32_t tick = 0;
    for (const ScheduleStep& step : schedule_.steps) {
      if (step.kind == StepKind::free) {
        end(step.instance, tick - 1);
        continue;
      }
      for (const InstanceId id : schedule_.creates(graph_, step)) begin(id, tick);
      ++tick;
    }
    for (Lifetime& life : lives_) {
      if (life.first != kUnborn && life.last == kUnborn) life.last = tick - 1;
    }
  }

  void begin(InstanceId id, int32_t tick) {
    Lifetime& life = lives_[index(id)];
    if (life.first != kUnborn) fail(id, "is created twice");
    life.first = tick;
    const InstanceId source = schedule_.instances[index(id)].in_place_of;
    if (source == kNoInstance) return;
    if (lives_[index(source)].first == tick) fail(source, "gives its place away as it is created");
    end(source, tick);
    lives_[index(source)].successor = id;
  }

  void end(InstanceId id, int32_t tick) {
    Lifetime& life = lives_[index(id)];
    if (life.first == kUnborn) fail(id, "ends before it is created");
    if (life.last != kUnborn) fail(id, "ends twice");
    life.last = tick;
  }

  [[noreturn]] void fail(InstanceId id, const char* what) const {
    throw Error(concat("[place] instance ", instance_name(graph_, schedule_.instances[index(id)]),
                       " ", what, "; expected a schedule that verify accepts"));
  }

  int64_t units(int64_t bytes) const { return bytes / alignment_ + (bytes % alignment_ != 0); }

  int64_t size(InstanceId id) const {
    return units(graph_.storage(schedule_.instances[index(id)].storage).bytes);
  }

  void make_items() {
    instance_item_.resize(schedule_.instances.size(), kNoItem);
    workspace_item_.resize(schedule_.steps.size(), kNoItem);
    for (size_t i = 0; i < lives_.size(); ++i) {
      const bool heads_chain = schedule_.instances[i].in_place_of == kNoInstance;
      if (lives_[i].first != kUnborn && heads_chain) add_chain(static_cast<InstanceId>(i));
    }
    int32_t tick = 0;
    for (size_t s = 0; s < schedule_.steps.size(); ++s) {
      const ScheduleStep& step = schedule_.steps[s];
      if (step.kind == StepKind::free) continue;
      const int64_t needed = units(graph_.op(step.op).workspace_bytes);
      if (needed > 0) workspace_item_[s] = problem_.add({tick, tick, needed});
      ++tick;
    }
  }

  // While an op runs, the source and the result that takes its place are both there: at that tick
  // the chain is as large as the larger of the two.
  void add_chain(InstanceId head) {
    parts_.clear();
    for (InstanceId id = head; id != kNoInstance; id = lives_[index(id)].successor) {
      const Lifetime& life = lives_[index(id)];
      int32_t first = life.first;
      if (id != head) {
        parts_.back().size = std::max(parts_.back().size, size(id));
        ++first;
      }
      if (life.successor == kNoInstance) {
        add_part(first, life.last, size(id));
      } else {
        add_part(first, life.last - 1, size(id));
        add_part(life.last, life.last, size(id));
      }
    }
    const auto empty = [](const Part& part) { return part.size == 0; };
    parts_.erase(std::remove_if(parts_.begin(), parts_.end(), empty), parts_.end());
    if (parts_.empty()) return;
    merge_equal_parts();
    const size_t item = problem_.add(parts_);
    for (InstanceId id = head; id != kNoInstance; id = lives_[index(id)].successor) {
      instance_item_[index(id)] = item;
    }
  }

  void add_part(int32_t first, int32_t last, int64_t size) {
    if (first <= last) parts_.push_back({first, last, size});
  }

  void merge_equal_parts() {
    size_t kept = 0;
    for (size_t p = 1; p < parts_.size(); ++p) {
      if (parts_[p].size == parts_[kept].size && parts_[p].first == parts_[kept].last + 1) {
        parts_[kept].last = parts_[p].last;
      } else {
        parts_[++kept] = parts_[p];
      }
    }
    parts_.resize(kept + 1);
  }

  Placement placement(const Packing& packing) const {
    // Things of no bytes have no item: any address will do.
    const auto address = [&](size_t item) {
      return item == kNoItem ? 0 : packing.offset[item] * alignment_;
    };
    Placement result;
    result.instance_offset.resize(schedule_.instances.size(), kNoAddress);
    for (size_t i = graph_.external_count; i < lives_.size(); ++i) {
      if (lives_[i].first != kUnborn) result.instance_offset[i] = address(instance_item_[i]);
    }
    result.workspace_offset.resize(schedule_.steps.size(), kNoAddress);
    for (size_t s = 0; s < workspace_item_.size(); ++s) {
      if (workspace_item_[s] != kNoItem) result.workspace_offset[s] = address(workspace_item_[s]);
    }
    place_on_channel(result);
    result.max_live_bytes = problem_.largest_load() * alignment_;
    result.arena_bytes = packing.height * alignment_;
    result.optimal = packing.height == packing.lower_bound;
    return result;
  }

  void place_on_channel(Placement& result) const {
    for (const ScheduleStep& step : schedule_.steps) {
      if (step.kind != StepKind::offload) continue;
      const InstanceId away = schedule_.creates(graph_, step)[0];
      result.instance_offset[index(away)] = result.channel_bytes;
      result.channel_bytes += size(schedule_.reads(graph_, step)[0]) * alignment_;
    }
  }

  const Graph& graph_;
  const Schedule& schedule_;
  const int64_t alignment_;
  PackingProblem problem_;
  std::vector<Lifetime> lives_;         // by instance
  std::vector<size_t> instance_item_;   // by instance
  std::vector<size_t> workspace_item_;  // by step
  std::vector<Part> parts_;
};

}  // namespace

int64_t arena_alignment(const Graph& graph, const Schedule& schedule) {
  const bool offloads =
      std::any_of(schedule.steps.begin(), schedule.steps.end(),
                  [](const ScheduleStep& step) { return step.kind == StepKind::offload; });
  return offloads && graph.channel ? std::max(kArenaAlignment, graph.channel->alignment)
                                   : kArenaAlignment;
}

Placement place(const Graph& graph, const Schedule& schedule, const PlaceOptions& options) {
  Effort effort(Effort::most_cpu_seconds(options.time_limit_seconds));
  return place(graph, schedule, options, effort);
}

Placement place(const Graph& graph, const Schedule& schedule, const PlaceOptions& options,
                Effort& effort) {
  return Placer(graph, schedule).place(options, effort);
}

}  // namespace remat
