// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/recording_graph.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>

#include "remat/core/error.h"
#include "remat/core/graph_builder.h"
#include "remat/libtorch/loss_parts.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/program_order.h"
#include "remat/libtorch/reuse.h"
#include "remat/libtorch/row_parts.h"
#include "remat/libtorch/value_checks.h"

namespace remat::detail {
namespace {

using Kind = ExternalSource::Kind;

// "aten::add_.Tensor" -> "add_"
std::string short_name(const c10::FunctionSchema& schema) {
  const std::string& name = schema.name();
  const size_t colons = name.rfind("::");
  return colons == std::string::npos ? name : name.substr(colons + 2);
}

class Builder {
 public:
  Builder(const PartedTrace& parted, size_t ops)
      : trace_(parted.trace),
        parts_(parted.parts),
        order_(graph_order(trace_)),
        may_fail_(ops_that_may_fail(trace_)),
        names_(trace_.storages.size()) {
    made_.ops_of.resize(ops);
    made_.id_of.resize(trace_.storages.size());
    made_.access_of.resize(trace_.storages.size());
  }

  TraceGraph build(const std::vector<StorageNumber>& outputs) {
    choose_backups();
    choose_roles();
    add_externals();
    for (const size_t op : order_) {
      add_op(op);
    }
    for (const StorageNumber output : outputs) {
      graph_.output(names_[index(output)]);
    }
    made_.recording.graph = std::move(graph_).build();
    made_.recording.eager_peak_bytes = trace_.eager_peak_bytes;
    made_.recording.threads = trace_.threads;
    return std::move(made_);
  }

 private:
  // A step that fails puts back what it wrote. Not the gradients that it adds to, which backward too
  // leaves half added, nor what the update writes: that would be another copy of the model. But what
  // is written before a guard must be there again where the program takes another course after it, and
  // what is written before an op that may fail, where it does.
  void choose_backups() {
    backed_up_.assign(trace_.storages.size(), false);
    size_t last_risk = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      const SeenOp& op = trace_.ops[order_[i]];
      const bool risk = op.guards() || op.once || may_fail_[order_[i]];
      last_risk = risk ? i : last_risk;
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      const SeenOp& op = trace_.ops[order_[i]];
      const auto choose = [&](StorageNumber number) {
        const SeenStorage& storage = trace_[number];
        const bool kept = op.phase != Phase::optimizer && storage.role != Role::gradient;
        if (storage.external && (kept || i < last_risk)) {
          backed_up_[index(number)] = true;
        }
      };
      std::ranges::for_each(op.updates, choose);
      std::ranges::for_each(op.effects, choose);
    }
  }

  bool updates_unprotected(const SeenOp& op) const {
    return std::ranges::any_of(op.updates, [&](StorageNumber number) {
      return trace_[number].external && !backed_up_[index(number)] &&
             trace_[number].role != Role::gradient;
    });
  }

  // What only the update changes is state of the optimizer, wherever it was met first.
  void choose_roles() {
    std::vector<bool> in_update(trace_.storages.size()), elsewhere(trace_.storages.size());
    for (const size_t op : order_) {
      auto& changed = trace_.ops[op].phase == Phase::optimizer ? in_update : elsewhere;
      for (const auto* numbers : {&trace_.ops[op].updates, &trace_.ops[op].effects}) {
        for (const StorageNumber number : *numbers) {
          changed[index(number)] = true;
        }
      }
    }
    for (size_t i = 0; i < trace_.storages.size(); ++i) {
      const Role role = trace_.storages[i].role;
      const bool state = role == Role::buffer && in_update[i] && !elsewhere[i];
      roles_.push_back(state ? Role::optimizer_state : role);
    }
  }

  void add_external(std::string name, int64_t bytes, Role role, ExternalSource source) {
    graph_.external(std::move(name), bytes, role);
    made_.recording.externals.push_back(std::move(source));
    ++next_id_;
  }

  void add_externals() {
    int64_t backup_bytes = 0;
    for (size_t i = 0; i < trace_.storages.size(); ++i) {
      const SeenStorage& storage = trace_.storages[i];
      if (storage.external) {
        names_[i] = storage.name;
        made_.id_of[i] = static_cast<StorageId>(next_id_);
        ExternalSource source = *storage.external;
        source.backed_up = backed_up_[i];
        add_external(storage.name, storage.bytes, roles_[i], std::move(source));
        backup_bytes += backed_up_[i] ? storage.bytes : 0;
      }
    }
    if (backup_bytes > 0) {
      add_external("backup", backup_bytes, Role::temporary, {.kind = Kind::backup});
    }
    guard_count_ = 0;
    for (const size_t op : order_) {
      if (trace_.ops[op].guards()) {
        add_external(concat("guard", guard_count_++), 0, Role::temporary, {.kind = Kind::token});
      }
    }
    const bool update_inside = std::ranges::any_of(
        order_, [&](size_t op) { return updates_unprotected(trace_.ops[op]); });
    if (update_inside) {
      add_external(kChecked, 0, Role::temporary, {.kind = Kind::token});
    }
    has_update_ = update_inside;
  }

  std::vector<std::string> named(const std::vector<StorageNumber>& numbers) const {
    std::vector<std::string> names;
    for (const StorageNumber each : numbers) {
      names.push_back(names_[index(each)]);
    }
    return names;
  }

  void add_op(size_t trace_index) {
    const SeenOp& op = trace_.ops[trace_index];
    const auto id = static_cast<OpId>(made_.recording.tape.size());
    made_.ops_of[parts_[trace_index].op].push_back(id);
    made_.part_of.push_back(parts_[trace_index]);
    OpSpec spec{.name = concat(short_name(op.op.schema()), ".", made_.recording.tape.size()),
                .phase = op.phase,
                .kind = op.op.schema().name(),
                .time_ns = op.time_ns,
                .workspace_bytes = op.workspace_bytes,
                .reads = named(op.reads),
                .updates = named(op.updates),
                .effects = named(op.effects),
                .random = op.random,
                .once = op.once,
                .scope = op.scope};
    for (size_t i = 0; i < op.creates.size(); ++i) {
      const size_t number = index(op.creates[i]);
      names_[number] = i == 0 ? spec.name : concat(spec.name, ".", i);
      made_.id_of[number] = static_cast<StorageId>(next_id_++);
      spec.creates.push_back({names_[number], trace_.storages[number].bytes});
    }
    for (const auto& [result, source] : reuse_pairs(op, trace_)) {
      spec.reuse.push_back({names_[index(result)], names_[index(source)]});
    }
    add_order(op, id, may_fail_[trace_index], spec);
    graph_.op(std::move(spec));
    add_tape(op);
  }

  // What must come before what, beyond the values that ops hand to each other.
  void add_order(const SeenOp& op, OpId id, bool may_fail, OpSpec& spec) {
    if (guards_seen_ > 0) {
      spec.reads.push_back(concat("guard", guards_seen_ - 1));
    }
    if (op.guards()) {
      spec.updates.push_back(concat("guard", guards_seen_++));
      if (op.kind == CallKind::access) {
        made_.access_of[index(op.reads.front())] = id;
      }
    }
    // An update cannot be taken back: it waits for what may still fail on the values it finds.
    if (has_update_ && updates_unprotected(op)) {
      spec.reads.push_back(kChecked);
    } else if (has_update_ && may_fail) {
      spec.effects.push_back(kChecked);
    }
  }

  void add_tape(const SeenOp& op) {
    TapeOp call{.op = op.op, .keys = op.keys, .grad_mode = op.grad_mode};
    call.arguments = op.arguments;
    for (const SeenTensor& tensor : op.tensors) {
      call.tensors.push_back({tensor.place, made_.renumbered(tensor.view), tensor.shape_only});
    }
    for (const SeenResult& result : op.created) {
      call.results.push_back(result.place);
    }
    call.allocations = op.allocations;
    made_.recording.tape.push_back(std::move(call));
  }

  static constexpr const char* kChecked = "checked.0";  // ends in a number, as no name of the host does

  const Trace& trace_;
  const std::vector<OpPart>& parts_;  // by op of the trace
  const std::vector<size_t> order_;
  const std::vector<bool> may_fail_;  // by op of the trace
  GraphBuilder graph_;
  TraceGraph made_;
  std::vector<std::string> names_;  // by storage of the trace
  std::vector<bool> backed_up_;
  std::vector<Role> roles_;  // by storage of the trace
  int32_t next_id_ = 0;
  int guard_count_ = 0;
  int guards_seen_ = 0;
  bool has_update_ = false;
};

}  // namespace

TensorView TraceGraph::renumbered(const SeenView& view) const {
  TensorView result;
  static_cast<Window&>(result) = view;
  result.storage = id_of[index(view.storage)];
  return result;
}

std::vector<std::vector<uint64_t>> TraceGraph::by_part(
    const std::vector<std::vector<uint64_t>>& digests) const {
  std::vector<std::vector<uint64_t>> result;
  for (const OpPart& part : part_of) {
    const std::vector<uint64_t>& whole = digests[part.op];
    const auto element = static_cast<size_t>(part.element);
    if (part.is_tile) {
      result.emplace_back();
    } else if (part.element < 0) {
      result.push_back(whole);
    } else {
      result.push_back(element < whole.size() ? std::vector{whole[element]} : std::vector<uint64_t>());
    }
  }
  return result;
}

TraceGraph to_graph(const Trace& trace, const std::vector<StorageNumber>& outputs, bool tiles) {
  PartedTrace parted = take_apart(trace);
  if (tiles) {
    take_loss_apart(parted);
    take_rows_apart(parted);
  }
  return Builder(parted, trace.ops.size()).build(outputs);
}

}  // namespace remat::detail
