// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "tests/libtorch/programs.h"

// Tensors whose bytes come from the host, unseen by any op.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

Tensor loss_of_each_row(const Classifier& classifier, const Batch& batch) {
  return F::cross_entropy(classifier.net->forward(batch[0]), batch[1],
                          F::CrossEntropyFuncOptions().reduction(torch::kNone));
}

Program mask_filled_through_an_accessor_of_empty() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    Tensor mask = torch::empty({kRows});
    auto values = mask.accessor<float, 1>();
    for (int64_t i = 0; i < kRows; ++i) {
      values[i] = (i * 7 + *step * 3) % 5 < 3 ? 1.0f : 0.0f;
    }
    ++*step;
    return (loss_of_each_row(classifier, batch) * mask).sum() / mask.sum();
  });
}

Program mask_filled_through_an_accessor_of_zeros() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    Tensor mask = torch::zeros({kRows});
    auto values = mask.accessor<float, 1>();
    for (int64_t i = *step; i < kRows; i += 2) {
      values[i] = 1.0f;
    }
    ++*step;
    return (loss_of_each_row(classifier, batch) * mask).sum() / mask.sum();
  });
}

// An op has written it, the host writes it, an op changes it, the host writes it again.
Program mask_written_by_ops_and_host_in_turn() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    Tensor mask = torch::rand({kRows});
    mask.data_ptr<float>()[*step] = 0.5f;
    mask.mul_(2);
    mask.data_ptr<float>()[*step + 1] += 0.25f;
    ++*step;
    return (loss_of_each_row(classifier, batch) * mask).mean();
  });
}

// The same tensor is used before and after the host writes to it.
Program host_write_between_two_uses() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    Tensor scale = torch::ones({Classifier::kFeatures});
    const Tensor doubled = scale + scale;
    scale.data_ptr<float>()[0] = 3.0f + static_cast<float>((*step)++);
    return classifier.loss({batch[0] * scale + doubled, batch[1]});
  });
}

// Stages rows of the batch through host memory, as a data loader does.
struct Staging {
  std::vector<float> floats = std::vector<float>(kRows * Classifier::kFeatures);
  Tensor tensor = torch::from_blob(floats.data(), {kRows, Classifier::kFeatures});

  void fill(float first) {
    for (size_t i = 0; i < floats.size(); ++i) {
      floats[i] = first + 0.125f * static_cast<float>(i % 11);
    }
  }
};

Program staging_buffer_refilled_and_cloned() {
  const Classifier classifier;
  const auto staging = std::make_shared<Staging>();
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    Tensor loss = torch::zeros({});
    for (int half = 0; half < 2; ++half) {
      staging->fill(static_cast<float>(*step - 3 * half));
      const Tensor x =
          torch::from_blob(staging->floats.data(), {kRows, Classifier::kFeatures}).clone();
      loss = loss + classifier.loss({x + batch[0], batch[1]});
    }
    ++*step;
    return loss;
  });
}

// No copy is asked for: an op has read the buffer before it is filled again.
Program staging_buffer_refilled_after_use() {
  const Classifier classifier;
  const auto staging = std::make_shared<Staging>();
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    staging->fill(static_cast<float>(*step));
    const Tensor first =
        torch::from_blob(staging->floats.data(), {kRows, Classifier::kFeatures}) * 0.5;
    staging->fill(static_cast<float>(-*step));
    const Tensor second =
        torch::from_blob(staging->floats.data(), {kRows, Classifier::kFeatures}) + 1;
    ++*step;
    return classifier.loss({first + second * batch[0], batch[1]});
  });
}

// The tensor over the buffer is there before the step; only its bytes are changed inside of it.
Program held_staging_tensor_refilled_after_use() {
  const Classifier classifier;
  const auto staging = std::make_shared<Staging>();
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    staging->fill(static_cast<float>(*step));
    const Tensor first = staging->tensor * 0.5;
    staging->fill(static_cast<float>(-*step));
    const Tensor second = staging->tensor + 1;
    ++*step;
    return classifier.loss({first + second * batch[0], batch[1]});
  });
}

Program tensor_made_anew() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    const auto now = static_cast<float>((*step)++);
    const Tensor weights = torch::tensor({1.0f, 1.0f + now, 2.0f / (1.0f + now)});
    const Tensor scale = torch::tensor(0.5 + 0.1 * now, at::kFloat);
    return F::cross_entropy(classifier.net->forward(batch[0]) * scale, batch[1],
                            F::CrossEntropyFuncOptions().weight(weights));
  });
}

Program indices_made_on_the_host() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    std::vector<int64_t> order(kRows);
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin(), order.begin() + (*step)++, order.end());
    const Tensor rows = torch::tensor(order);
    log->push_back(static_cast<double>(order[0]));
    return classifier.update(classifier.loss(
        {batch[0].index_select(0, rows), batch[1].index({rows.slice(0, 0, kRows)})}));
  };
  return program;
}

// What at::Scalar and factory functions are given changes with every step.
Program factories_with_changing_values() {
  const Classifier classifier;
  const auto step = std::make_shared<int64_t>(0);
  return with_loss(classifier, [=](const Batch& batch) {
    const auto now = static_cast<double>((*step)++);
    const Tensor shift = torch::full({Classifier::kFeatures}, 0.1 * now) +
                         torch::arange(now, now + Classifier::kFeatures, 1.0) * 0.01 +
                         torch::scalar_tensor(now) + torch::linspace(0, now, Classifier::kFeatures);
    Tensor mask = torch::zeros({kRows, 1});
    mask.index_put_({torch::indexing::Slice(0, 4)}, 0.5 * now);
    mask.fill_diagonal_(now);
    return classifier.loss({batch[0] + shift + mask, batch[1]});
  });
}

// A tensor of the step copied into memory that only the host knows, and read there.
Program activation_copied_into_host_memory() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    std::vector<float> host(kRows * Classifier::kClasses);
    torch::from_blob(host.data(), {kRows, Classifier::kClasses}).copy_(logits.detach());
    log->push_back(std::accumulate(host.begin(), host.end(), 0.0));
    return classifier.update(F::cross_entropy(logits, batch[1]));
  };
  return program;
}

// The batch itself is the same host memory at every step, filled between the steps.
Program batch_over_one_host_buffer() {
  const Classifier classifier;
  Program program = classifier.program();
  const auto staging = std::make_shared<Staging>();
  for (Batch& batch : program.batches) {
    batch[0] = staging->tensor;
  }
  program.before = [staging](int64_t step) { staging->fill(static_cast<float>(step)); };
  return program;
}

}  // namespace

std::vector<ProgramCase> host_made_programs() {
  return {
      {"MaskFilledThroughAnAccessorOfEmpty", mask_filled_through_an_accessor_of_empty},
      {"MaskFilledThroughAnAccessorOfZeros", mask_filled_through_an_accessor_of_zeros},
      {"MaskWrittenByOpsAndHostInTurn", mask_written_by_ops_and_host_in_turn},
      {"HostWriteBetweenTwoUses", host_write_between_two_uses},
      {"StagingBufferRefilledAndCloned", staging_buffer_refilled_and_cloned},
      {"StagingBufferRefilledAfterUse", staging_buffer_refilled_after_use},
      {"HeldStagingTensorRefilledAfterUse", held_staging_tensor_refilled_after_use},
      {"TensorMadeAnew", tensor_made_anew},
      {"IndicesMadeOnTheHost", indices_made_on_the_host},
      {"FactoriesWithChangingValues", factories_with_changing_values},
      {"ActivationCopiedIntoHostMemory", activation_copied_into_host_memory},
      {"BatchOverOneHostBuffer", batch_over_one_host_buffer},
  };
}

}  // namespace remat::testing
