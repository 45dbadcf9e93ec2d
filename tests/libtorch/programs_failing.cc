// SPDX-License-Identifier: Apache-2.0
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <future>
#include <stdexcept>

#include "tests/libtorch/programs.h"

// Functions that throw, and programs that are refused.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

// Throws in the first step and in every third one after it, at the place that the caller marks.
struct Thrower {
  std::shared_ptr<int64_t> step = std::make_shared<int64_t>(-1);
  void begin() const { ++*step; }
  void here() const {
    if (*step % 3 == 0) {
      throw std::runtime_error("step " + std::to_string(*step) + " fails");
    }
  }
};

using FailingUpdate = std::function<Batch(const Classifier&, const Thrower&, const Batch&)>;

Program failing(FailingUpdate update) {
  const Classifier classifier(0.25, 0.9);
  const Thrower thrower;
  Program program = classifier.program();
  program.batches = make_batches(12);
  program.step = [=](const Batch& batch) {
    thrower.begin();
    return update(classifier, thrower, batch);
  };
  return program;
}

Program throws_before_anything() {
  return failing([](const Classifier& classifier, const Thrower& thrower, const Batch& batch) {
    thrower.here();
    return classifier.update(classifier.loss(batch));
  });
}

// Buffers have moved, random numbers are drawn.
Program throws_after_forward() {
  return failing([](const Classifier& classifier, const Thrower& thrower, const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    thrower.here();
    return classifier.update(loss);
  });
}

Program throws_after_a_host_read() {
  return failing([](const Classifier& classifier, const Thrower& thrower, const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const double mean = logits.mean().item<double>();
    const Tensor loss = F::cross_entropy(logits * (1 + mean), batch[1]);
    thrower.here();
    return classifier.update(loss);
  });
}

Program throws_in_the_middle_of_backward() {
  return failing([](const Classifier& classifier, const Thrower& thrower, const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    logits.register_hook([thrower](const Tensor&) { thrower.here(); });
    const Tensor penalty = classifier.net->parameters()[4].square().sum();
    penalty.backward();  // its gradient is there already
    return classifier.update(F::cross_entropy(logits, batch[1]) + 0.1 * penalty.detach());
  });
}

Program throws_before_the_update() {
  return failing([](const Classifier& classifier, const Thrower& thrower, const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    thrower.here();
    classifier.optimizer->step();
    return Batch{loss};
  });
}

Program throws_after_half_of_the_update() {
  return failing([](const Classifier& classifier, const Thrower& thrower, const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    const at::NoGradGuard no_grad;
    const std::vector<Tensor> parameters = classifier.net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      if (i == 3) thrower.here();
      parameters[i].sub_(parameters[i].grad(), 0.1);
    }
    return Batch{loss};
  });
}

// The function catches what an op throws and goes on in another way.
Program failure_caught_inside() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  for (size_t i = 1; i < program.batches.size(); i += 3) {
    program.batches[i][0] = torch::randn({kRows, kFeatures - 1});
  }
  program.step = [=, log = program.log](const Batch& batch) {
    Tensor loss;
    try {
      loss = classifier.loss(batch);
      log->push_back(1);
    } catch (const c10::Error&) {
      log->push_back(0);
      loss = classifier.loss({F::pad(batch[0], F::PadFuncOptions({0, 1})), batch[1]});
    }
    return classifier.update(loss);
  };
  return program;
}

Program sparse_gradients() {
  const nn::Embedding embedding(nn::EmbeddingOptions(10, 4).sparse(true));
  const auto optimizer = std::make_shared<torch::optim::SGD>(embedding->parameters(), 0.1);
  Program program = {.modules = {embedding.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 6; ++i) {
    program.batches.push_back({torch::randint(10, {7}, at::kLong)});
  }
  program.step = [e = embedding.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor loss = e->forward(batch[0]).square().mean();
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

// Its function resizes a tensor that it has made.
Program tensor_resized_inside() {
  const nn::CrossMapLRN2d norm(3);
  const Tensor scale = torch::ones({4, 1, 1}).requires_grad_();
  const auto optimizer = std::make_shared<torch::optim::SGD>(std::vector<Tensor>{scale}, 0.1);
  Program program = {.optimizers = {optimizer}};
  *program.kept = {scale};
  for (int64_t i = 0; i < 6; ++i) {
    program.batches.push_back({torch::randn({2, 4, 8, 8})});
  }
  program.step = [norm = norm.ptr(), optimizer, scale](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor loss = norm->forward(batch[0] * scale).square().mean();
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program another_thread_makes_tensors() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor x = batch[0] * 2;
    const Tensor moved = std::async(std::launch::async, [&] { return x.tanh() + 1; }).get();
    return classifier.loss({moved, batch[1]});
  });
}

// The same, where it changes a tensor of the step.
Program another_thread_writes_tensors() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor x = batch[0] * 2;
    std::async(std::launch::async, [&] { x.add_(1); }).get();
    return classifier.loss({x, batch[1]});
  });
}

// Two processes that always have the same: a sum over them is twice what one has.
class Doubling : public c10d::Backend {
 public:
  Doubling() : Backend(/*rank=*/0, /*size=*/2) {}
  const std::string getBackendName() const override { return "doubling"; }
  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<Tensor>& tensors,
                                           const c10d::AllreduceOptions&) override {
    for (const Tensor& tensor : tensors) {
      tensor.mul_(2);
    }
    return c10::make_intrusive<Done>();
  }

 private:
  struct Done : c10d::Work {
    bool wait(std::chrono::milliseconds) override { return true; }
  };
};

c10::intrusive_ptr<c10d::ProcessGroup> doubling_group() {
  auto group = c10::make_intrusive<c10d::ProcessGroup>(/*rank=*/0, /*size=*/2);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM,
                    c10::make_intrusive<Doubling>());
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  return group;
}

// What DistributedDataParallel does.
Program collective_on_gradients() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [classifier, group = doubling_group()](const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    for (const Tensor& parameter : classifier.net->parameters()) {
      std::vector<Tensor> gradients = {parameter.grad()};
      group->allreduce(gradients)->wait();
    }
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

struct RegisteredGroup {
  RegisteredGroup() { c10d::register_process_group(name, group); }
  ~RegisteredGroup() { c10d::unregister_process_group(name); }
  RegisteredGroup(const RegisteredGroup&) = delete;
  RegisteredGroup& operator=(const RegisteredGroup&) = delete;
  const std::string name = "two";
  const c10::intrusive_ptr<c10d::ProcessGroup> group = doubling_group();

  Tensor sum(const Tensor& tensor) const {
    const auto call = [](const char* op, torch::jit::Stack stack) {
      c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
      return stack.front().toTensor();
    };
    return call("_c10d_functional::wait_tensor",
                {call("_c10d_functional::all_reduce", {tensor, "sum", name})});
  }
};

Program functional_collective_on_the_loss() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [classifier, group = std::make_shared<RegisteredGroup>()](const Batch& batch) {
    Batch results = classifier.update(classifier.loss(batch));
    results.push_back(group->sum(results[0].detach()));
    return results;
  };
  return program;
}

ProgramCase failing_case(const std::string& name, const std::function<Program()>& make) {
  return {.name = name, .make = make, .most_plain_steps = 4, .throws = true};
}

}  // namespace

std::vector<ProgramCase> failing_programs() {
  return {
      failing_case("ThrowsBeforeAnything", throws_before_anything),
      failing_case("ThrowsAfterForward", throws_after_forward),
      failing_case("ThrowsAfterAHostRead", throws_after_a_host_read),
      failing_case("ThrowsInTheMiddleOfBackward", throws_in_the_middle_of_backward),
      failing_case("ThrowsBeforeTheUpdate", throws_before_the_update),
      failing_case("ThrowsAfterHalfOfTheUpdate", throws_after_half_of_the_update),
      {"FailureCaughtInside", failure_caught_inside, 9},
  };
}

std::vector<ProgramCase> refused_programs() {
  return {
      {.name = "SparseGradients", .make = sparse_gradients, .refusal = "sparse"},
      {.name = "TensorResizedInside", .make = tensor_resized_inside, .refusal = "resize_as_"},
      {.name = "AnotherThreadMakesTensors",
       .make = another_thread_makes_tensors,
       .refusal = "thread"},
      {.name = "AnotherThreadWritesTensors",
       .make = another_thread_writes_tensors,
       .refusal = "thread"},
      {.name = "CollectiveOnGradients",
       .make = collective_on_gradients,
       .refusal = "c10d::allreduce_"},
      {.name = "FunctionalCollectiveOnTheLoss",
       .make = functional_collective_on_the_loss,
       .refusal = "_c10d_functional::all_reduce"},
  };
}

}  // namespace remat::testing
