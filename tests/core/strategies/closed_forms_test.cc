// SPDX-License-Identifier: Apache-2.0

// Peaks and times that can be worked out on paper, for a chain of n equal layers.

#include <gtest/gtest.h>

#include <cmath>

#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/verify.h"

namespace remat {
namespace {

constexpr int64_t kUnit = 1000;  // bytes of every activation, gradient and of the input
constexpr int64_t kTime = 10;    // of every op

// x ─f1─▶ a1 ─f2─▶ … ─fn─▶ an ─loss─▶ gn ─bn─▶ … ─b1─▶ g0     b_i reads g_i and a_(i-1); a0 is x.
Graph chain(int64_t n) {
  const auto a = [](int64_t i) { return i == 0 ? std::string("x") : "a" + std::to_string(i); };
  const auto g = [](int64_t i) { return "g" + std::to_string(i); };
  GraphBuilder builder;
  builder.external("x", kUnit, Role::input);
  for (int64_t i = 1; i <= n; ++i) {
    builder.op({.name = "f" + std::to_string(i),
                .kind = "layer",
                .time_ns = kTime,
                .reads = {a(i - 1)},
                .creates = {{a(i), kUnit}}});
  }
  builder.op({.name = "loss",
              .phase = Phase::backward,
              .kind = "loss",
              .time_ns = kTime,
              .reads = {a(n)},
              .creates = {{g(n), kUnit}}});
  for (int64_t i = n; i >= 1; --i) {
    builder.op({.name = "b" + std::to_string(i),
                .phase = Phase::backward,
                .kind = "layer_backward",
                .time_ns = kTime,
                .reads = {g(i), a(i - 1)},
                .creates = {{g(i - 1), kUnit}}});
  }
  builder.output(g(0));
  return std::move(builder).build();
}

Plan verified(const Graph& graph, PlanOptions options) {
  Plan made = plan(graph, options);
  const auto violation = verify(graph, rewrite(graph, made.order), made.peak_bytes);
  EXPECT_FALSE(violation) << violation->reason;
  return made;
}

// At `loss` and at b_n: x, the n-1 or n activations, and two or one gradients: n + 2.
TEST(ClosedForms, KeepAll) {
  for (int64_t n = 1; n <= 64; ++n) {
    const Plan made = verified(chain(n), {.strategy = "keep_all"});
    EXPECT_EQ(made.peak_bytes, (n + 2) * kUnit) << n;
    EXPECT_EQ(made.time_ns, (2 * n + 1) * kTime) << n;
  }
}

// While a_(i-1) is made again for b_i: x, g_i and two neighbours of the chain; while b_i runs: x, g_i,
// a_(i-1), g_(i-1). 4 from n = 2 on; for n = 1 nothing is made again and b_1 needs x, g_1, g_0: 3.
// Re-runs: i-1 for each b_i (a_n is needed at once by the loss and never forgotten): n(n-1)/2.
TEST(ClosedForms, RecomputeAll) {
  for (int64_t n = 1; n <= 64; ++n) {
    const Plan made = verified(chain(n), {.strategy = "recompute_all"});
    EXPECT_EQ(made.peak_bytes, (n == 1 ? 3 : 4) * kUnit) << n;
    EXPECT_EQ(made.time_ns, (2 * n + 1 + n * (n - 1) / 2) * kTime) << n;
  }
}

// Segments of k layers; c = floor((n-1)/k) values cross from one into the next and are kept; the last
// segment has r = n - ck layers.
// - Last segment, at b_n: x, c kept, r-1 made again, g_n, g_(n-1):            c + r + 2
// - Segment j < c, at its last layer: x, j kept, k-1 made again, 2 gradients: j + k + 2, j = c-1 worst.
// Every layer runs twice except the last of each segment: its result is kept, or, for a_n, is there.
int64_t every_k_peak(int64_t n, int64_t k) {
  const int64_t crossing = (n - 1) / k;
  const int64_t rest = n - crossing * k;
  return std::max(crossing + rest + 2, crossing >= 1 ? crossing + k + 1 : 0) * kUnit;
}

TEST(ClosedForms, EveryK) {
  for (int64_t n = 1; n <= 64; ++n) {
    const Graph graph = chain(n);
    for (int64_t k = 1; k <= n; ++k) {
      const Plan made = verified(graph, {.strategy = "every_k", .every_k = k});
      EXPECT_EQ(made.peak_bytes, every_k_peak(n, k)) << n << " layers, k = " << k;
      const int64_t segments = (n + k - 1) / k;
      EXPECT_EQ(made.time_ns, (2 * n + 1 + n - segments) * kTime) << n << " layers, k = " << k;
    }
  }
}

// With k = √n both terms are √n: x, two gradients and at most 2√n activations (+1 for rounding).
TEST(ClosedForms, RootOfNSegmentsNeedRootOfNActivations) {
  for (int64_t n = 1; n <= 1024; n = n * 3 / 2 + 1) {
    const Plan made = verified(chain(n), {.strategy = "every_k"});
    EXPECT_LE(static_cast<double>(made.peak_bytes),
              (2 * std::sqrt(static_cast<double>(n)) + 4) * kUnit)
        << n;
  }
}

}  // namespace
}  // namespace remat
