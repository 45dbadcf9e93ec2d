// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/recording_graph.h"

#include <algorithm>
#include <string>

#include "remat/core/error.h"
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
  explicit Builder(Recorder& recorder)
      : recorder_(recorder), names_(recorder.storages.size()), ids_(recorder.storages.size()) {}

  Recording build() {
    add_externals();
    for (SeenOp& op : recorder_.ops) {
      if (!op.dropped) {
        add_op(op);
      }
    }
    return std::move(recording_);
  }

  TensorView renumbered(TensorView view) const {
    view.storage = ids_[static_cast<size_t>(view.storage)];
    return view;
  }

  void output(const TensorView& seen) { graph_.output(names_[static_cast<size_t>(seen.storage)]); }
  Graph graph() && { return std::move(graph_).build(); }

 private:
  void number(size_t seen, std::string name) {
    names_[seen] = std::move(name);
    ids_[seen] = static_cast<StorageId>(next_id_++);
  }

  void add_externals() {
    int64_t backup_bytes = 0;
    for (size_t i = 0; i < recorder_.storages.size(); ++i) {
      const SeenStorage& storage = recorder_.storages[i];
      if (storage.external) {
        number(i, storage.name);
        graph_.external(storage.name, storage.bytes, storage.role);
        recording_.externals.push_back(*storage.external);
        if (storage.external->position >= 0) {
          recording_.externals.back().tensor = at::Tensor();  // found anew by every step
        }
        backup_bytes += storage.external->backed_up() ? storage.bytes : 0;
      }
    }
    if (backup_bytes > 0) {
      graph_.external("backup", backup_bytes, Role::temporary);
      recording_.externals.push_back({.kind = Kind::backup});
      ++next_id_;
    }
  }

  std::vector<std::string> named(const std::vector<int32_t>& seen) const {
    std::vector<std::string> names;
    for (const int32_t each : seen) {
      names.push_back(names_[static_cast<size_t>(each)]);
    }
    return names;
  }

  void add_op(SeenOp& op) {
    OpSpec spec{.name = concat(short_name(op.call.op.schema()), ".", recording_.tape.size()),
                .phase = op.phase,
                .kind = op.call.op.schema().name(),
                .workspace_bytes = op.workspace_bytes,
                .reads = named(op.reads),
                .updates = named(op.updates),
                .effects = named(op.effects),
                .random = op.random,
                .once = op.once,
                .scope = op.scope};
    for (size_t i = 0; i < op.creates.size(); ++i) {
      const auto seen = static_cast<size_t>(op.creates[i]);
      number(seen, i == 0 ? spec.name : concat(spec.name, ".", i));
      spec.creates.push_back({names_[seen], recorder_.storages[seen].bytes});
    }
    for (const auto& [result, source] : reuse_pairs(op, recorder_.storages)) {
      spec.reuse.push_back({names_[static_cast<size_t>(result)], names_[static_cast<size_t>(source)]});
    }
    graph_.op(std::move(spec));
    for (TensorArgument& argument : op.call.tensors) {
      argument.view = renumbered(std::move(argument.view));
    }
    recording_.tape.push_back(std::move(op.call));
  }

  Recorder& recorder_;
  GraphBuilder graph_;
  Recording recording_;
  std::vector<std::string> names_;  // by number of the recorder
  std::vector<StorageId> ids_;
  int32_t next_id_ = 0;
};

}  // namespace

Recording to_recording(Recorder& recorder, const std::vector<TensorView>& batch,
                       const TensorView& loss,
                       const std::vector<std::optional<TensorView>>& gradients) {
  Builder builder(recorder);
  Recording recording = builder.build();
  std::vector<StorageId> outputs;
  const auto output = [&](const TensorView& view) {
    if (std::ranges::find(outputs, view.storage) == outputs.end()) {
      outputs.push_back(view.storage);
      builder.output(view);
    }
    return builder.renumbered(view);
  };
  for (const TensorView& view : batch) {
    recording.batch.push_back(builder.renumbered(view));
  }
  recording.loss = output(loss);
  for (const std::optional<TensorView>& gradient : gradients) {
    recording.gradients.push_back(gradient ? std::optional(output(*gradient)) : std::nullopt);
  }
  recording.graph = std::move(builder).graph();
  recording.eager_peak_bytes = recorder.peak_bytes;
  for (const SeenStorage& storage : recorder.storages) {
    const bool before_the_step = storage.external && storage.external->kind != Kind::constant;
    recording.eager_peak_bytes += before_the_step ? storage.bytes : 0;
  }
  return recording;
}

}  // namespace remat::detail
