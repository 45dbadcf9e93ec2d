// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/prepared_step.h"

#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/intercept.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/rng.h"
#include "remat/libtorch/tensor_view.h"
#include "remat/libtorch/trace.h"

namespace remat::detail {
namespace {

bool has_effect_on(const Op& op, StorageId storage) {
  return std::ranges::any_of(op.effects,
                             [&](const Value& value) { return value.storage == storage; });
}

class Preparation {
 public:
  Preparation(const Recording& recording, const Schedule& schedule, const Placement& placement,
              const Arena& arena)
      : recording_(recording),
        graph_(recording.graph),
        schedule_(schedule),
        placement_(placement),
        arena_(arena),
        alignment_(arena_alignment(recording.graph, schedule)),
        instances_(schedule.instances.size()),
        state_of_op_(graph_.ops.size(), kNoState),
        prefetched_(schedule.instances.size(), false),
        offloaded_(schedule.instances.size(), false) {}

  PreparedStep run() {
    for (size_t i = 0; i < recording_.externals.size(); ++i) {
      made_.externals.push_back(borrow(nullptr, graph_.storages[i].bytes));
    }
    number_states();
    for (size_t i = 0; i < schedule_.steps.size(); ++i) {
      const ScheduleStep& step = schedule_.steps[i];
      if (step.kind == StepKind::free) {
        add_free(step.instance);
      } else if (graph_.is_move(step.op)) {
        add_move(i);
      } else {
        add_call(i);
      }
    }
    find_outputs();
    made_.instance_count = schedule_.instances.size();
    made_.channel_bytes = placement_.channel_bytes;
    return std::move(made_);
  }

 private:
  // First of all: the run of an op must know that it will be recomputed.
  void number_states() {
    for (const ScheduleStep& step : schedule_.steps) {
      if (step.kind != StepKind::recompute || !graph_.op(step.op).random) {
        continue;
      }
      int& state = state_of_op_[index(graph_.original(step.op))];
      if (state == kNoState) {
        state = static_cast<int>(made_.state_count++);
      }
    }
  }

  void add_free(InstanceId instance) {
    const int64_t bytes = bytes_of(instance);
    PreparedCall& call = made_.calls.back();
    if (offloaded_[index(instance)] || prefetched_[index(instance)]) {
      call.frees_wait_for.push_back(instance);
    }
    call.freed_bytes += bytes;
    if (bytes > 0) {  // an offloaded form has no address here
      call.freed.emplace_back(address_of(instance), bytes);
    }
  }

  // What a step uses and the channel is still bringing back must be there.
  void add_waits(const ScheduleStep& step, PreparedCall& call) {
    const auto wait_for = [&](std::span<const InstanceId> instances) {
      for (const InstanceId each : instances) {
        if (prefetched_[index(each)]) {
          prefetched_[index(each)] = false;  // the first who uses it waits
          call.waits_for.push_back(each);
        }
      }
    };
    wait_for(schedule_.reads(graph_, step));
    wait_for(schedule_.updates(graph_, step));
  }

  size_t packed_form_of(StorageId storage) const {
    const auto found = std::ranges::find(graph_.packed_forms, storage, &PackedForm::storage);
    return static_cast<size_t>(found - graph_.packed_forms.begin());
  }

  void add_move(size_t step_index) {
    const ScheduleStep& step = schedule_.steps[step_index];
    const Move& moved = graph_.move(step.op);
    const InstanceId created = schedule_.creates(graph_, step)[0];
    PreparedMove move{.kind = step.kind};
    PreparedCall call;
    add_waits(step, call);
    call.op_index = index(moved.kind == MoveKind::read_packed
                              ? moved.reader
                              : *graph_.storage(moved.value.storage).creator);
    call.recompute = step.kind == StepKind::recompute;
    const InstanceId source = schedule_.reads(graph_, step)[0];
    switch (step.kind) {
      case StepKind::offload:
        move.from = address_of(source);
        move.transferred = source;
        move.channel_offset = placement_.instance_offset[index(created)];
        offloaded_[index(source)] = true;
        break;
      case StepKind::prefetch:
        move.to = address_of(created);
        move.transferred = created;
        move.channel_offset = placement_.instance_offset[index(source)];
        prefetched_[index(created)] = true;
        break;
      case StepKind::pack:
      case StepKind::unpack:
        move.from = address_of(source);
        move.to = address_of(created);
        set_format(moved.value.storage, move);
        break;
      default: add_reader(step, moved, move, call);
    }
    move.bytes = rounded(graph_.storage(moved.value.storage).bytes);
    move.created_bytes = step.kind == StepKind::offload ? 0 : bytes_of(created) - shared_bytes(created);
    call.move = move;
    made_.calls.push_back(std::move(call));
  }

  void set_format(StorageId storage, PreparedMove& move) const {
    move.packed_form = packed_form_of(storage);
    move.format = &recording_.packed_values[move.packed_form].format;
  }

  void add_reader(const ScheduleStep& step, const Move& moved, PreparedMove& move, PreparedCall& call) {
    set_format(moved.value.storage, move);
    const PackedForm& form = graph_.packed_forms[move.packed_form];
    const auto reader = std::ranges::find(form.readers, moved.reader) - form.readers.begin();
    move.reader = &recording_.packed_values[move.packed_form].readers[static_cast<size_t>(reader)];
    const TapeOp& tape = recording_.tape[index(moved.reader)];
    for (const TensorArgument& argument : tape.tensors) {
      if (argument.place == move.reader->other) {
        move.other = address_of(instance_used(step, argument.view.storage));
      } else if (argument.place == move.reader->packed) {
        move.from = address_of(instance_used(step, moved.op.reads[packed_read(moved)].storage));
      }
    }
    move.to = address_of(schedule_.creates(graph_, step)[0]);
    add_results(step, tape, call);
  }

  size_t packed_read(const Move& moved) const {
    const auto found = std::ranges::find_if(
        moved.op.reads, [&](const Value& value) { return graph_.is_form(value.storage); });
    return static_cast<size_t>(found - moved.op.reads.begin());
  }

  int64_t rounded(int64_t bytes) const { return (bytes + alignment_ - 1) / alignment_ * alignment_; }

  // What a result takes over of the input whose place it takes.
  int64_t shared_bytes(InstanceId result) const {
    const InstanceId source = schedule_.instances[index(result)].in_place_of;
    return source == kNoInstance ? 0 : bytes_of(source);
  }

  void add_call(size_t step_index) {
    const ScheduleStep& step = schedule_.steps[step_index];
    const TapeOp& tape = recording_.tape[index(step.op)];
    PreparedCall call;
    add_waits(step, call);
    call.op = &tape.op;
    call.keys = keys_below_intercept(tape.keys);
    call.op_index = index(step.op);
    call.workspace_bytes = graph_.op(step.op).workspace_bytes;
    call.state = state_of_op_[call.op_index];
    call.generator_argument = traits_of(tape.op).generator_argument;
    call.recompute = step.kind == StepKind::recompute;
    call.repeatable = repeatable(step);
    call.grad_mode = tape.grad_mode;
    call.reads_on_host = graph_.op(step.op).once;
    call.is_access = tape.op == host_access_op();
    add_arguments(step, tape, call);
    add_results(step, tape, call);
    add_requests(tape, step_index, call);
    if (graph_.op(step.op).random) {
      note_generator(call);
    }
    made_.calls.push_back(std::move(call));
  }

  void add_arguments(const ScheduleStep& step, const TapeOp& tape, PreparedCall& call) {
    for (const c10::IValue& argument : tape.arguments) {
      call.arguments.push_back(own_copy(argument));
    }
    for (const TensorArgument& argument : tape.tensors) {
      const StorageId storage = argument.view.storage;
      if (call.recompute && has_effect_on(graph_.op(step.op), storage)) {
        continue;  // stays undefined: BatchNorm without running statistics computes the same
      }
      const c10::Storage bytes = argument.shape_only
                                     ? borrow(nullptr, graph_.storage(storage).bytes)
                                     : storage_of(instance_used(step, storage));
      put_tensor(call.arguments.data(), argument.place, make_tensor(argument.view, bytes));
    }
  }

  void add_results(const ScheduleStep& step, const TapeOp& tape, PreparedCall& call) {
    const auto creates = schedule_.creates(graph_, step);
    REMAT_ASSERT(tape.results.size() == creates.size());
    for (size_t i = 0; i < creates.size(); ++i) {
      const int64_t bytes = bytes_of(creates[i]);
      call.results.push_back({tape.results[i], address_of(creates[i]), bytes, bytes - shared_bytes(creates[i])});
    }
  }

  void add_requests(const TapeOp& tape, size_t step_index, PreparedCall& call) {
    for (const Allocation& allocation : tape.allocations) {
      ExpectedRequest request{.bytes = allocation.bytes};
      if (allocation.result >= 0) {
        const ExpectedResult& result = call.results[static_cast<size_t>(allocation.result)];
        request.address = result.address;
        request.resident_bytes = result.resident_bytes;
      } else if (allocation.workspace_offset >= 0) {
        request.scratch = true;
        request.address =
            arena_.at(placement_.workspace_offset[step_index] + allocation.workspace_offset);
      }
      call.requests.push_back(request);
    }
  }

  void note_generator(const PreparedCall& call) {
    const c10::IValue* const argument =
        call.generator_argument < 0 ? nullptr
                                    : &call.arguments[static_cast<size_t>(call.generator_argument)];
    const at::Generator generator = argument != nullptr && argument->isGenerator()
                                        ? argument->toGenerator()
                                        : default_generator(c10::Device(c10::kCPU));
    if (std::ranges::find(made_.generators, generator) == made_.generators.end()) {
      made_.generators.push_back(generator);
    }
  }

  // Of each output the copy in which its last version was made last: an earlier version may have
  // been made again after it.
  void find_outputs() {
    std::vector<InstanceId> last(graph_.storages.size(), kNoInstance);
    const auto made = [&](InstanceId instance, int32_t version) {
      const StorageId storage = schedule_.instances[index(instance)].storage;
      if (version == graph_.last_version(storage)) {
        last[index(storage)] = instance;
      }
    };
    for (const ScheduleStep& step : schedule_.steps) {
      if (step.kind == StepKind::free) {
        continue;
      }
      const auto updates = schedule_.updates(graph_, step);
      for (size_t i = 0; i < updates.size(); ++i) {
        made(updates[i], graph_.op(step.op).updates[i].version + 1);
      }
      for (const InstanceId each : schedule_.creates(graph_, step)) {
        if (!graph_.is_form(schedule_.instances[index(each)].storage)) {
          made(each, graph_.created_version(step.op));
        }
      }
    }
    for (const StorageId output : graph_.outputs) {
      const InstanceId instance = last[index(output)];
      made_.outputs.push_back(instance);
      if (prefetched_[index(instance)]) {  // no op of the step waits for it: the caller reads it
        made_.outputs_wait_for.push_back(instance);
      }
    }
  }

  bool repeatable(const ScheduleStep& step) const {
    const Op& op = graph_.op(step.op);
    const auto creates = schedule_.creates(graph_, step);
    return op.updates.empty() && op.effects.empty() && !op.random && !op.once &&
           std::ranges::all_of(creates, [&](InstanceId each) {
             return schedule_.instances[index(each)].in_place_of == kNoInstance;
           });
  }

  // The copy of a storage that the step reads or updates.
  InstanceId instance_used(const ScheduleStep& step, StorageId storage) const {
    const Op& op = graph_.op(step.op);
    const auto among = [&](const auto& values, auto instances) {
      const auto found = std::ranges::find(values, storage, &Value::storage);
      return found == values.end() ? kNoInstance
                                   : instances[static_cast<size_t>(found - values.begin())];
    };
    InstanceId used = among(op.reads, schedule_.reads(graph_, step));
    if (used == kNoInstance) {
      used = among(op.updates, schedule_.updates(graph_, step));
    }
    if (used == kNoInstance) {
      REMAT_ASSERT(graph_.storage(storage).external());
      used = static_cast<InstanceId>(index(storage));  // an effect
    }
    return used;
  }

  c10::Storage storage_of(InstanceId instance) {
    const StorageId storage = schedule_.instances[index(instance)].storage;
    if (graph_.storage(storage).external()) {
      return made_.externals[index(storage)];
    }
    c10::Storage& made = instances_[index(instance)];
    if (!made) {
      made = borrow(address_of(instance), bytes_of(instance));
    }
    return made;
  }

  int64_t bytes_of(InstanceId instance) const {
    return graph_.storage(schedule_.instances[index(instance)].storage).bytes;
  }
  char* address_of(InstanceId instance) const {
    return arena_.at(placement_.instance_offset[index(instance)]);
  }

  const Recording& recording_;
  const Graph& graph_;
  const Schedule& schedule_;
  const Placement& placement_;
  const Arena& arena_;
  const int64_t alignment_;
  std::vector<c10::Storage> instances_;  // by instance; made when first asked for
  std::vector<int> state_of_op_;
  std::vector<bool> prefetched_;  // by instance: begun, and nobody has waited for it yet
  std::vector<bool> offloaded_;   // by instance
  PreparedStep made_;
};

}  // namespace

PreparedStep prepare(const Recording& recording, const Schedule& schedule,
                     const Placement& placement, const Arena& arena) {
  return Preparation(recording, schedule, placement, arena).run();
}

}  // namespace remat::detail
