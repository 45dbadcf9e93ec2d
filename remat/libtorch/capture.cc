// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/capture.h"

#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/roll.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/functions/accumulate_grad.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <unordered_set>
#include <utility>

#include "remat/core/error.h"
#include "remat/libtorch/capturing.h"
#include "remat/libtorch/device.h"
#include "remat/libtorch/packed_values.h"
#include "remat/libtorch/recorder.h"
#include "remat/libtorch/recording_graph.h"
#include "remat/libtorch/tape_difference.h"
#include "remat/libtorch/tensor_view.h"

namespace remat {
namespace detail {
namespace {

// The parameters' gradients as they are now; puts them back at the end.
class GradientsGuard {
 public:
  explicit GradientsGuard(const std::vector<at::Tensor>& parameters) : parameters_(parameters) {
    for (const at::Tensor& parameter : parameters) {
      saved_.push_back(parameter.grad());
    }
  }
  ~GradientsGuard() {
    for (size_t i = 0; i < saved_.size(); ++i) {
      at::Tensor(parameters_[i]).mutable_grad() = saved_[i];
    }
  }
  GradientsGuard(const GradientsGuard&) = delete;
  GradientsGuard& operator=(const GradientsGuard&) = delete;
  const at::Tensor& operator[](size_t i) const { return saved_[i]; }

 private:
  const std::vector<at::Tensor>& parameters_;
  std::vector<at::Tensor> saved_;
};

// The batch with its samples in another order, laid out as it was; the batch itself where it has
// no samples in common (tensors without a first dimension, or of different ones).
Batch rolled(const Batch& batch) {
  const bool can = !batch.empty() && std::ranges::all_of(batch, [&](const at::Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) == batch.front().size(0) &&
           tensor.is_non_overlapping_and_dense();
  });
  if (!can) {
    return batch;
  }
  Batch result;
  for (const at::Tensor& tensor : batch) {
    result.push_back(at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options()));
    result.back().copy_(at::roll(tensor, 1, 0));
  }
  return result;
}

struct Run {
  std::unique_ptr<Recorder> recorder;
  std::vector<SeenView> parameters;
  std::vector<std::optional<SeenView>> gradients_before;
  std::vector<SeenView> batch;
  SeenView loss;
  std::vector<std::optional<SeenView>> gradients;
  std::string left_behind;  // an error, if something was
};

void check_loss(const at::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1 || !loss.requires_grad()) {
    throw Error(concat("[capture] the loss function returned ",
                       !loss.defined() ? "an undefined tensor"
                       : loss.numel() != 1
                           ? concat("a tensor of ", loss.numel(), " elements")
                           : "a tensor that does not depend on any parameter",
                       "; expected one number to differentiate"));
  }
}

// Every leaf that backward will give a gradient is a parameter, or lives in the step only.
void check_leaves(const at::Tensor& loss, const std::vector<at::Tensor>& parameters,
                  const Recorder& recorder) {
  std::vector<torch::autograd::Node*> open = {loss.grad_fn().get()};
  std::unordered_set<torch::autograd::Node*> seen(open.begin(), open.end());
  while (!open.empty()) {
    torch::autograd::Node* const node = open.back();
    open.pop_back();
    if (const auto* leaf = dynamic_cast<torch::autograd::AccumulateGrad*>(node)) {
      const bool known = std::ranges::any_of(
          parameters, [&](const at::Tensor& each) { return each.is_same(leaf->variable); });
      if (!known && recorder.keeps_gradient_of(leaf->variable)) {
        throw Error(concat("[capture] a tensor of sizes ", leaf->variable.sizes(),
                           " gets a gradient and is not among the parameters; pass it as one, or "
                           "detach it in the loss function"));
      }
    }
    for (const torch::autograd::Edge& edge : node->next_edges()) {
      if (edge.function != nullptr && seen.insert(edge.function.get()).second) {
        open.push_back(edge.function.get());
      }
    }
  }
}

// The function was given tensors that look into the caller's batch and must not outlive the call.
void check_batch_left(const Batch& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    // The tensor is held here and by the recorder, its storage by the tensor and by the recorder; a
    // view would hold the storage too.
    if (inputs[i].use_count() > 2 || inputs[i].storage().use_count() > 2) {
      throw Error(concat("[capture] tensor ", i, " of the batch is still held after the step; a "
                         "recorded step would not renew it: keep a clone made outside of the step"));
    }
  }
}

// `before`: the run before this one, if there was one.
Run record(const LossFunction& loss_of, const Batch& batch,
           const std::vector<at::Tensor>& parameters, const CaptureOptions& options,
           const Run* before = nullptr) {
  const GradientsGuard gradients_before(parameters);
  Run run;
  RecorderOptions recording{.check_mutation = options.check_mutation,
                            .check_reuse = options.check_reuse,
                            .most_bytes = options.most_bytes};
  if (options.progress) {
    const auto known = before == nullptr
                           ? int64_t{0}
                           : static_cast<int64_t>(before->recorder->trace.ops.size());
    recording.progress = [&progress = options.progress, known, done = known]() mutable {
      progress(++done, 2 * known);
    };
  }
  run.recorder = std::make_unique<Recorder>(std::move(recording));
  Recorder& recorder = *run.recorder;
  using Kind = ExternalSource::Kind;
  for (size_t i = 0; i < parameters.size(); ++i) {
    recorder.add_external(parameters[i], concat("param", i), Role::param,
                          {.kind = Kind::tensor, .tensor = parameters[i]});
  }
  for (size_t i = 0; i < options.buffers.size(); ++i) {
    recorder.add_external(options.buffers[i], concat("buffer", i), Role::buffer,
                          {.kind = Kind::tensor, .tensor = options.buffers[i]});
  }
  Batch inputs;
  for (size_t i = 0; i < batch.size(); ++i) {
    inputs.push_back(at_own_start(batch[i]));
    recorder.add_external(inputs[i], concat("input", i), Role::input,
                          {.kind = Kind::batch, .tensor = inputs[i],
                           .position = static_cast<int32_t>(i)});
    run.batch.push_back(recorder.view_of_external(inputs[i]));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    run.parameters.push_back(recorder.view_of_external(parameters[i]));
    run.gradients_before.emplace_back();
    if (gradients_before[i].defined()) {
      recorder.add_external(gradients_before[i], concat("grad", i), Role::gradient,
                            {.kind = Kind::gradient, .tensor = gradients_before[i],
                             .position = static_cast<int32_t>(i)});
      run.gradients_before[i] = recorder.view_of_external(gradients_before[i]);
    }
  }
  at::autocast::clear_cache();  // a cast of a parameter kept from before would be a stale constant
  {
    const at::AutoGradMode with_gradients(true);
    const CapturingGuard capturing_now;
    const ListenGuard listen(&recorder);
    const InterceptGuard intercept(&recorder);
    at::Tensor loss = loss_of(inputs);
    check_loss(loss);
    if (loss.grad_fn() != nullptr) {  // else it is a leaf, and refused below
      check_leaves(loss, parameters, recorder);
    }
    recorder.begin_backward();
    torch::autograd::backward({loss}, {});
    run.loss = recorder.view_of_result(loss, "the loss");
  }
  at::autocast::clear_cache();
  for (size_t i = 0; i < parameters.size(); ++i) {
    const at::Tensor& gradient = parameters[i].grad();
    const bool arrived = gradient.defined() && !gradients_before[i].defined();
    run.gradients.push_back(
        arrived ? std::optional(recorder.view_of_result(gradient, concat("the gradient of param", i)))
                : std::nullopt);
    if (arrived) {
      at::Tensor(parameters[i]).mutable_grad() = at::Tensor();
    }
  }
  try {
    recorder.check_nothing_left();
    check_batch_left(inputs);
  } catch (const Error& error) {
    run.left_behind = error.what();
  }
  recorder.finish();
  recorder.put_back();
  cpu_device().trim();  // else what the plain step took stays with the process
  return run;
}

Recording to_recording(const Run& run, const std::vector<at::Tensor>& parameters) {
  std::vector<StorageNumber> outputs = {run.loss.storage};
  for (const std::optional<SeenView>& gradient : run.gradients) {
    if (gradient && std::ranges::find(outputs, gradient->storage) == outputs.end()) {
      outputs.push_back(gradient->storage);
    }
  }
  TraceGraph made = to_graph(run.recorder->trace, outputs);
  Recording recording = std::move(made.recording);
  const auto renumbered = [&](const std::optional<SeenView>& view) {
    return view ? std::optional(made.renumbered(*view)) : std::nullopt;
  };
  for (const SeenView& view : run.batch) {
    recording.batch.push_back(made.renumbered(view));
  }
  recording.loss = made.renumbered(run.loss);
  for (size_t i = 0; i < parameters.size(); ++i) {
    recording.parameter_views.push_back(made.renumbered(run.parameters[i]));
    recording.gradients_before.push_back(renumbered(run.gradients_before[i]));
    recording.gradients.push_back(renumbered(run.gradients[i]));
  }
  for (ExternalSource& source : recording.externals) {
    if (source.position >= 0) {
      source.tensor = at::Tensor();  // found anew by every step
    }
  }
  recording.parameters = parameters;
  recording.threads = at::get_num_threads();
  return recording;
}

void check_arguments(const Batch& batch, const std::vector<at::Tensor>& parameters) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const std::string what = concat("[capture] tensor ", i, " of the batch");
    if (!batch[i].defined()) {
      throw Error(what + " is undefined; expected data");
    }
    require_plain(batch[i], what);
    if (batch[i].requires_grad()) {
      throw Error(what + " requires a gradient; pass it as a parameter");
    }
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].defined() || !parameters[i].is_leaf()) {
      throw Error(concat("[capture] parameter ", i,
                         " is undefined or the result of an op; expected a leaf tensor"));
    }
  }
}

}  // namespace

}  // namespace detail

Recording capture(const LossFunction& loss_of, const Batch& batch,
                  const std::vector<at::Tensor>& parameters, const CaptureOptions& options) {
  using namespace detail;
  check_arguments(batch, parameters);
  const Batch other = rolled(batch);
  // The first run may differ from all later ones: functions that prepare a table when first
  // called, kernels that warm a cache. Then a third one decides.
  Run before = record(loss_of, batch, parameters, options);
  Run run = record(loss_of, other, parameters, options, &before);
  std::string difference = !before.left_behind.empty()
                               ? before.left_behind
                               : tape_difference(*before.recorder, *run.recorder);
  if (!difference.empty()) {
    before = std::move(run);
    run = record(loss_of, batch, parameters, options, &before);
    difference = tape_difference(*before.recorder, *run.recorder);
  }
  if (!run.left_behind.empty()) {
    throw Error(run.left_behind);
  }
  if (!difference.empty()) {
    throw Error(difference);
  }
  settle_constants(*before.recorder, *run.recorder);
  Recording recording = to_recording(run, parameters);
  if (options.pack) {
    find_packed_values(recording);
  }
  return recording;
}

}  // namespace remat
