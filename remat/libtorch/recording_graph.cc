// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/recording_graph.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <string>

#include "remat/core/error.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/program_order.h"
#include "remat/libtorch/reuse.h"

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
  explicit Builder(const Trace& trace)
      : trace_(trace), order_(graph_order(trace)), names_(trace.storages.size()) {
    made_.op_of.resize(trace.ops.size());
    made_.id_of.resize(trace.storages.size());
    made_.access_of.resize(trace.storages.size());
  }

  TraceGraph build(const std::vector<StorageNumber>& outputs) {
    choose_backups();
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
      const bool risk = op.guards() || op.once || traits_of(op.op).may_fail_on_values;
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
        add_external(storage.name, storage.bytes, storage.role, std::move(source));
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
    made_.op_of[trace_index] = id;
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
    add_order(op, id, spec);
    graph_.op(std::move(spec));
    add_tape(op);
  }

  // What must come before what, beyond the values that ops hand to each other.
  void add_order(const SeenOp& op, OpId id, OpSpec& spec) {
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
    } else if (has_update_ && traits_of(op.op).may_fail_on_values) {
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
  const std::vector<size_t> order_;
  GraphBuilder graph_;
  TraceGraph made_;
  std::vector<std::string> names_;  // by storage of the trace
  std::vector<bool> backed_up_;
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

TraceGraph to_graph(const Trace& trace, const std::vector<StorageNumber>& outputs) {
  return Builder(trace).build(outputs);
}

}  // namespace remat::detail
