// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/library.h>

#include <memory>
#include <stdexcept>

#include "remat/core/error.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/scope.h"
#include "tests/libtorch/capture_fixture.h"

// What cannot be recorded is refused, by name, and nothing is changed by the attempt.

namespace remat {
namespace {

using at::Tensor;
using testing::capture_error;
using testing::expect_contains;
using testing::expect_trains_the_same;
using testing::parameter;
using testing::Problem;
using CaptureRefusals = testing::CaptureFixture;

TEST_F(CaptureRefusals, HostReadsAreRefusedByName) {
  const std::string message = capture_error(on_matrix([](const Tensor& h, const Batch&) {
    const Scope scope("encoder.0");
    return h.sum() * h.detach().max().item<float>();
  }));
  expect_contains(message, "[capture] aten::_local_scalar_dense (layer encoder.0) reads a value");
}

TEST_F(CaptureRefusals, ShapesThatDependOnValuesAreRefused) {
  expect_contains(
      capture_error(on_matrix([](const Tensor& h, const Batch&) { return h.nonzero().sum() * h.sum(); })),
      "aten::nonzero makes a tensor whose shape depends on values");
  expect_contains(
      capture_error(on_matrix([](const Tensor& h, const Batch&) { return h.index({h > 0}).sum(); })),
      "aten::index makes a tensor whose shape depends on values");
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch&) {
                    return h.masked_select(h > 0).sum();
                  })),
                  "aten::masked_select");
}

TEST_F(CaptureRefusals, StepsThatDifferFromCallToCallAreRefused) {
  auto calls = std::make_shared<int>(0);
  expect_contains(capture_error(on_matrix([calls](const Tensor& h, const Batch&) {
                    return (*calls)++ % 2 == 0 ? h.sin().sum() : h.cos().sum();
                  })),
                  "two calls of the step differ at op ");
  auto rate = std::make_shared<double>(1);
  expect_contains(capture_error(on_matrix([rate](const Tensor& h, const Batch&) {
                    return (h * (*rate *= 0.5)).sum();
                  })),
                  "argument 'other' was 0.25 in one call and 0.125 in another");
  expect_contains(capture_error(on_matrix([rate](const Tensor& h, const Batch&) {
                    return torch::leaky_relu(h, *rate *= 0.5).sum();
                  })),
                  "argument 'negative_slope' was ");
  expect_contains(capture_error(on_matrix([calls](const Tensor& h, const Batch&) {
                    return h.slice(0, 0, 1 + (*calls)++ % 2).sum();
                  })),
                  "two calls of the step differ");
  // Contents of the batch, read by the host behind our back.
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch& batch) {
                    return (h * batch[0].const_data_ptr<float>()[0]).sum();
                  })),
                  "argument 'other' was ");
  expect_contains(capture_error(on_matrix([rate](const Tensor& h, const Batch&) {
                    return (h * torch::full({}, 2.0) * torch::tensor(*rate *= 0.5)).sum();
                  })),
                  "two calls of the step differ");
}

TEST_F(CaptureRefusals, TensorsKeptByTheFunctionAreRefused) {
  auto hidden = std::make_shared<Tensor>(torch::zeros({5, 4}));
  expect_contains(capture_error(on_matrix([hidden](const Tensor& h, const Batch&) {
                    const Tensor y = (h + *hidden).tanh();
                    *hidden = y.detach();
                    return y.sum();
                  })),
                  "aten::tanh");
  auto last = std::make_shared<Tensor>();
  expect_contains(capture_error(on_matrix([last](const Tensor& h, const Batch& batch) {
                    *last = batch[0].slice(0, 0, 1);
                    return h.sum();
                  })),
                  "tensor 0 of the batch is still held after the step");
}

TEST_F(CaptureRefusals, ParametersThatWereNotPassedAreNamed) {
  const Tensor forgotten = parameter({4});
  expect_contains(capture_error(on_matrix([forgotten](const Tensor& h, const Batch&) {
                    return (h * forgotten).sum();
                  })),
                  "a tensor of sizes [4] gets a gradient and is not among the parameters");
}

TEST_F(CaptureRefusals, TensorsThatAreNotDenseAreRefused) {
  const Tensor table = parameter({9, 4});
  const Problem sparse{.parameters = {table},
                       .loss =
                           [table](const Batch& batch) {
                             return at::embedding(table, batch[0], -1, false, /*sparse=*/true).sum();
                           },
                       .batches = {{torch::tensor({1, 2, 1})}}};
  expect_contains(capture_error(sparse), "sparse");
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch&) {
                    return torch::quantize_per_tensor(h.detach(), 0.1, 0, at::kQInt8)
                               .dequantize()
                               .sum() *
                           h.sum();
                  })),
                  "quantized");
  Problem batch = on_matrix([](const Tensor& h, const Batch&) { return h.sum(); });
  batch.batches = {{torch::randn({5, 6}).to_sparse()}};
  expect_contains(capture_error(batch), "[capture] tensor 0 of the batch is sparse");
  batch.batches = {{Tensor()}};
  expect_contains(capture_error(batch), "[capture] tensor 0 of the batch is undefined");
  batch.batches = {{torch::randn({5, 6}, at::requires_grad())}};
  expect_contains(capture_error(batch), "requires a gradient; pass it as a parameter");
}

TEST_F(CaptureRefusals, TensorsThatChangeTheirSizeAreRefused) {
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch&) {
                    Tensor out = torch::empty({0});
                    at::mul_out(out, h.detach(), h.detach());
                    return (h * out).sum();
                  })),
                  "aten::mul gives a tensor another size or storage");
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch&) {
                    Tensor out = torch::zeros({2});
                    out.resize_({5, 4}).zero_();
                    return (h * out).sum();
                  })),
                  "aten::resize_ gives a tensor another size or storage");
}

TEST_F(CaptureRefusals, HostTensorsWrittenInPlace) {
  expect_trains_the_same(on_matrix([](const Tensor& h, const Batch&) {
    return (h * torch::tensor({1.0f, 2.0f, 3.0f, 4.0f}).mul_(2)).sum();
  }));
}

TEST_F(CaptureRefusals, LossesThatAreNoLossesAreRefused) {
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch&) { return h; })),
                  "a tensor of 20 elements");
  expect_contains(capture_error(on_matrix([](const Tensor&, const Batch&) { return Tensor(); })),
                  "an undefined tensor");
  expect_contains(
      capture_error(on_matrix([](const Tensor& h, const Batch&) { return h.detach().sum(); })),
      "does not depend on any parameter");
  expect_contains(capture_error(on_matrix([](const Tensor& h, const Batch&) {
                    const at::NoGradGuard no_gradients;
                    return h.detach().sum();
                  })),
                  "does not depend on any parameter");
  const Tensor number = parameter({});
  expect_contains(capture_error({.parameters = {number},
                                 .loss = [number](const Batch&) { return number; },
                                 .batches = {{}}}),
                  "the loss was not made by an op of the step");
}

// Whatever a throwing function did before is undone.
TEST_F(CaptureRefusals, ThrowingFunctionsLeaveEverythingAsItWas) {
  torch::nn::BatchNorm1d norm(4);
  Problem problem = on_matrix([norm](const Tensor& h, const Batch&) mutable {
    const Tensor y = at::dropout(norm->forward(h), 0.5, true);
    y.sum().backward();
    if (y.dim() == 2) {
      throw std::runtime_error("the function's own");
    }
    return y.sum();
  });
  for (const Tensor& each : norm->parameters()) {
    problem.parameters.push_back(each);
  }
  problem.buffers = norm->buffers();
  for (const Tensor& each : problem.parameters) {
    Tensor(each).mutable_grad() = torch::ones_like(each);
  }
  const auto state = [&] {
    std::vector<Tensor> tensors = testing::clones(problem.parameters);
    for (const Tensor& each : problem.parameters) {
      tensors.push_back(each.grad().clone());
    }
    for (const Tensor& each : problem.buffers) {
      tensors.push_back(each.clone());
    }
    tensors.push_back(testing::generator_state());
    return tensors;
  };
  const std::vector<Tensor> before = state();
  try {
    capture(problem.loss, problem.batches[0], problem.parameters, {.buffers = problem.buffers});
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_STREQ(error.what(), "the function's own");
  }
  EXPECT_TRUE(testing::same_bits(state(), before));
}

// An op that changes its argument and says that it does not.
Tensor lying_kernel(const Tensor& x) {
  Tensor(x).mul_(2.0);
  return x.clone();
}

TORCH_LIBRARY(remat_capture_test, library) { library.def("lie(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(remat_capture_test, CPU, library) { library.impl("lie", &lying_kernel); }

TEST_F(CaptureRefusals, MutationCheckFindsAnOpThatLies) {
  const Problem problem = on_matrix([](const Tensor& h, const Batch&) {
    const Scope scope("liar");
    const auto op = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("remat_capture_test::lie", "")
                        .typed<Tensor(const Tensor&)>();
    return h.sum() + op.call(h.detach()).sum();
  });
  try {
    capture(problem.loss, problem.batches[0], problem.parameters, {.check_mutation = true});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[capture] remat_capture_test::lie (layer liar) changes an argument that its schema "
                 "calls read-only; add it to op_traits.cc");
  }
}

}  // namespace
}  // namespace remat
