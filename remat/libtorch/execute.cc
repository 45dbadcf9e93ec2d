// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/execute.h"

#include <algorithm>

#include "remat/core/error.h"
#include "remat/libtorch/recording_check.h"
#include "remat/libtorch/runner.h"
#include "remat/libtorch/tensor_view.h"

namespace remat {

using Kind = ExternalSource::Kind;

class Execution::Implementation {
 public:
  Implementation(const Recording& recording, const Schedule& schedule, const Placement& placement,
                 std::shared_ptr<detail::Arena> arena, const ExecuteOptions& options)
      : recording_(recording), runner_(recording, schedule, placement, std::move(arena), options) {}

  StepResult run(const Batch& batch, const detail::Timing* timing) {
    runner_.start();
    runner_.counts().moved_bytes = runner_.arena().reclaim();  // first: a gradient may be among it
    bind(batch);
    try {
      runner_.time_with(timing);
      runner_.run_rest();
    } catch (...) {
      runner_.undo();
      throw;
    }
    return results();
  }
  void undo() { runner_.undo(); }
  const StepCounts& counts() const { return runner_.counts(); }
  const std::vector<int64_t>& measured_bytes() const { return runner_.measured_bytes(); }

 private:
  void bind(const Batch& batch);
  void bind_external(size_t external, const at::Tensor& tensor, const std::string& what);
  StepResult results();

  const Recording& recording_;
  detail::Runner runner_;
};

void Execution::Implementation::bind_external(size_t external, const at::Tensor& tensor,
                                              const std::string& what) {
  const int64_t bytes = recording_.graph.storages[external].bytes;
  const bool from_start = recording_.externals[external].kind != Kind::batch;
  if (from_start && static_cast<int64_t>(tensor.storage().nbytes()) != bytes) {
    throw Error(detail::concat("[step] ", what, recording_.graph.storages[external].name, " has ",
                               tensor.storage().nbytes(), " bytes now and had ", bytes,
                               " when the step was captured; make a new TrainingStep"));
  }
  runner_.bind(static_cast<StorageId>(external),
               from_start ? const_cast<void*>(tensor.storage().data()) : tensor.data_ptr());
}

void Execution::Implementation::bind(const Batch& batch) {
  detail::check_batch(recording_, batch);
  if (const std::string change = detail::layout_change(recording_); !change.empty()) {
    throw Error(detail::concat("[step] ", change, " the capture; capture the step again"));
  }
  for (size_t i = 0; i < recording_.externals.size(); ++i) {
    const ExternalSource& source = recording_.externals[i];
    const auto position = static_cast<size_t>(source.position);
    switch (source.kind) {
      case Kind::batch: bind_external(i, batch[position], ""); break;
      case Kind::gradient:
        bind_external(i, recording_.parameters[position].grad(), "the gradient ");
        break;
      case Kind::tensor:
      case Kind::constant: bind_external(i, source.tensor, ""); break;
      case Kind::backup:
      case Kind::token: break;  // no op reads it
    }
  }
}

StepResult Execution::Implementation::results() {
  std::vector<c10::Storage> lent;
  for (const StorageId storage : recording_.graph.outputs) {
    lent.push_back(runner_.arena().lend(runner_.output_offset(lent.size()),
                                        recording_.graph.storage(storage).bytes));
  }
  const auto tensor_of = [&](const TensorView& view) {
    const auto& outputs = recording_.graph.outputs;
    const auto found = std::ranges::find(outputs, view.storage) - outputs.begin();
    return detail::make_tensor(view, lent[static_cast<size_t>(found)]);
  };
  StepResult result;
  result.loss = tensor_of(recording_.loss);
  for (const std::optional<TensorView>& gradient : recording_.gradients) {
    result.gradients.push_back(gradient ? tensor_of(*gradient) : at::Tensor());
  }
  return result;
}

Execution::Execution(const Recording& recording, const Schedule& schedule,
                     const Placement& placement, std::shared_ptr<detail::Arena> arena,
                     const ExecuteOptions& options)
    : implementation_(std::make_unique<Implementation>(recording, schedule, placement,
                                                       std::move(arena), options)) {}
Execution::~Execution() = default;
Execution::Execution(Execution&&) noexcept = default;
Execution& Execution::operator=(Execution&&) noexcept = default;

StepResult Execution::run(const Batch& batch) { return implementation_->run(batch, nullptr); }

StepResult Execution::run_timed(const Batch& batch,
                                std::vector<std::vector<int64_t>>& samples_ns, int repeats) {
  const detail::Timing timing{samples_ns, repeats};
  return implementation_->run(batch, &timing);
}

void Execution::undo() { implementation_->undo(); }

const StepCounts& Execution::counts() const { return implementation_->counts(); }
const std::vector<int64_t>& Execution::measured_bytes() const {
  return implementation_->measured_bytes();
}

std::shared_ptr<detail::Arena> make_arena(int64_t bytes) {
  return std::make_shared<detail::Arena>(detail::cpu_device(), bytes);
}

}  // namespace remat
