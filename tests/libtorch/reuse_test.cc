// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/reuse.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "remat/core/error.h"
#include "remat/libtorch/capture.h"
#include "tests/libtorch/training.h"

// Results that take the place of an input. Each entry of the table in reuse.cc, and pointwise ops,
// are run both ways (CaptureOptions::check_reuse) on shapes that exercise the tails of vectorised
// loops, single elements and the split among threads.

namespace remat {
namespace {

using at::Tensor;

// A row of one, tails of every vector width, many rows, several dimensions, one large row.
const std::vector<std::vector<int64_t>> kShapes = {{1, 1},    {3, 1},      {1, 7},  {5, 8},
                                                   {4, 17},   {2, 33},     {3, 67}, {1021, 13},
                                                   {70, 257}, {2, 3, 4, 5}, {1, 70001}};

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

bool takes_place(const Recording& recording, const std::string& kind) {
  return std::ranges::any_of(recording.graph.ops, [&](const Op& op) {
    return op.kind == kind && !op.reuse.empty();
  });
}

// Captures loss(x * w) on every shape, type and number of threads; `kinds` must be reused.
void expect_reused(const std::function<Tensor(const Tensor&)>& loss,
                   const std::vector<std::string>& kinds,
                   const std::vector<at::ScalarType>& types = {at::kFloat, at::kDouble,
                                                               at::kBFloat16}) {
  for (const at::ScalarType type : types) {
    for (const std::vector<int64_t>& shape : kShapes) {
      for (const int threads : {1, 2}) {
        SCOPED_TRACE(::testing::Message() << type << " " << at::IntArrayRef(shape) << " on "
                                          << threads << " threads");
        const Threads set(threads);
        torch::manual_seed(1);
        const Tensor w = torch::randn(shape, at::TensorOptions(type)).requires_grad_();
        const Tensor x = torch::randn(shape, at::TensorOptions(type));
        const Recording recording =
            capture([&](const Batch& batch) { return loss(batch[0] * w); }, {x}, {w},
                    {.check_reuse = true});
        for (const std::string& kind : kinds) {
          EXPECT_TRUE(takes_place(recording, kind)) << kind;
        }
      }
    }
  }
}

TEST(Reuse, Softmax) {
  expect_reused([](const Tensor& x) { return x.softmax(-1).pow(2).sum(); },
                {"aten::_softmax", "aten::_softmax_backward_data"});
}

TEST(Reuse, LogSoftmax) {
  expect_reused([](const Tensor& x) { return x.log_softmax(-1).pow(2).sum(); },
                {"aten::_log_softmax", "aten::_log_softmax_backward_data"});
}

TEST(Reuse, LayerNorm) {
  expect_reused(
      [](const Tensor& x) { return at::layer_norm(x, {x.size(-1)}).pow(2).sum(); },
      {"aten::native_layer_norm"});
  expect_reused(
      [](const Tensor& x) {
        const Tensor scale = torch::ones({x.size(-1)}, x.options()) * 1.5;
        return at::layer_norm(x, {x.size(-1)}, scale, scale).pow(2).sum();
      },
      {"aten::native_layer_norm"});
}

TEST(Reuse, PointwiseOps) {
  expect_reused(
      [](const Tensor& x) {
        Tensor y = x.tanh().sigmoid().relu().exp().neg().sin().mul(2.0).add(1);
        y = at::gelu(at::silu(at::gelu(y, "tanh"))) + at::hardswish(y) + at::leaky_relu(y) +
            at::elu(y) + at::softplus(y) + y.abs().sqrt() + y.clamp(-1, 1) + y.pow(3);
        y = torch::where(y > 0, y, y * 0.5).masked_fill(y > 3, 0.0) / (y.pow(2) + 1);
        y = y.lerp(y * 2, 0.25) + torch::addcmul(y, y, y, 0.5) + at::maximum(y, -y);
        return y.pow(2).sum();
      },
      {"aten::tanh", "aten::mul", "aten::add", "aten::gelu", "aten::silu", "aten::where",
       "aten::tanh_backward", "aten::sigmoid_backward", "aten::gelu_backward",
       "aten::silu_backward", "aten::threshold_backward"});
}

// A softmax over another dimension reads what it has written; transposed results lie elsewhere.
TEST(Reuse, NotAcrossRowsNorOtherLayouts) {
  const Tensor w = torch::randn({4, 6}).requires_grad_();
  const Recording recording = capture(
      [&](const Batch& batch) {
        const Tensor x = batch[0] * w;
        return x.softmax(0).exp().sum() + (x * 2).t().contiguous().sin().sum() +
               torch::cumsum(x * 3, 1).sum() + (x * x.t().reshape({4, 6})).sum();
      },
      {torch::randn({4, 6})}, {w}, {.check_reuse = true});
  EXPECT_FALSE(takes_place(recording, "aten::_softmax"));
  EXPECT_FALSE(takes_place(recording, "aten::cumsum"));
  EXPECT_FALSE(takes_place(recording, "aten::clone"));
}

// One storage seen through two windows: the second would be read after it was written.
TEST(Reuse, NotWhereTheSourceIsSeenThroughTwoWindows) {
  const Tensor w = torch::randn({6, 6}).requires_grad_();
  const Recording recording = capture(
      [&](const Batch& batch) {
        const Tensor x = batch[0] + w;
        return torch::hypot(x, x.t()).sum();
      },
      {torch::randn({6, 6})}, {w}, {.check_reuse = true});
  EXPECT_FALSE(takes_place(recording, "aten::hypot"));
}

// Calls itself pointwise, and adds each element's left neighbour.
Tensor neighbour_kernel(const Tensor& x) {
  Tensor result = at::empty_like(x);
  float* to = result.mutable_data_ptr<float>();
  const float* from = x.const_data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    to[i] = from[i] + (i > 0 ? from[i - 1] : 0.0f);
  }
  return result;
}

TORCH_LIBRARY(remat_reuse_test, library) {
  library.def("neighbour(Tensor x) -> Tensor", {at::Tag::pointwise});
}
TORCH_LIBRARY_IMPL(remat_reuse_test, CPU, library) { library.impl("neighbour", &neighbour_kernel); }

TEST(Reuse, CheckFindsAnOpThatIsNotPointwise) {
  const Tensor w = torch::randn({6}).requires_grad_();
  const auto loss = [&](const Batch& batch) {
    const auto op = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("remat_reuse_test::neighbour", "")
                        .typed<Tensor(const Tensor&)>();
    return (w * 2).sum() + op.call((batch[0] * w).detach()).sum();
  };
  capture(loss, {torch::randn({6})}, {w});
  try {
    capture(loss, {torch::randn({6})}, {w}, {.check_reuse = true});
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[capture] remat_reuse_test::neighbour computes something else when its result "
                 "takes the place of an input; correct reuse.cc");
  }
}

}  // namespace
}  // namespace remat
