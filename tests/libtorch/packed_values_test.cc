// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packed_values.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/libtorch/packing_rates.h"
#include "tests/libtorch/fake_device.h"
#include "tests/libtorch/training.h"

namespace remat {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;
using testing::Problem;
using testing::same_bits;
using testing::train;

// A loss of one parameter, on a batch of that many random numbers.
Problem problem_of(std::function<Tensor(const Tensor& parameter, const Batch& batch)> loss,
                   std::vector<int64_t> sizes = {2, 4, 16, 16}) {
  torch::manual_seed(3);
  Tensor parameter = torch::randn(sizes).requires_grad_();
  std::vector<Batch> batches;
  for (int i = 0; i < 3; ++i) batches.push_back({torch::randn(sizes)});
  return {.parameters = {parameter},
          .loss = [=](const Batch& batch) { return loss(parameter, batch); },
          .batches = std::move(batches)};
}

struct Rule {
  const char* name;
  const char* rule;
  Problem problem;
  bool read_packed = false;  // an op reads the packed bytes
};

std::vector<Rule> rules() {
  std::vector<Rule> made;
  made.push_back({"dropout masks have two values, and backward multiplies by them", "two_values",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (F::dropout(w * batch[0], F::DropoutFuncOptions().p(0.3)).tanh()).sum();
                  }),
                  true});
  made.push_back({"a comparison as a float has two values", "two_values",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (w * (batch[0] > 0).to(at::kFloat)).tanh().sum();
                  }),
                  true});
  made.push_back({"masks of where are bools", "bools",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return at::where(batch[0] > 0, w.tanh(), w * 2).sum();
                  })});
  made.push_back({"masks that backward makes, and drops soon, are bools too", "bools",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (w * batch[0]).clamp(-0.5, 0.5).tanh().sum();
                  })});
  made.push_back({"of a ReLU that only its backward needs, the sign is enough", "above",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return ((w * batch[0]).relu() + batch[0]).tanh().sum();
                  }),
                  true});
  made.push_back({"threshold compares with its number", "above",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (at::threshold(w * batch[0], 0.25, 7) + batch[0]).tanh().sum();
                  }),
                  true});
  made.push_back({"leaky ReLU looks at the sign", "above",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (at::leaky_relu(w * batch[0], 0.1) + batch[0]).tanh().sum();
                  }),
                  true});
  made.push_back({"hardtanh looks at whether a value is inside", "between",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (at::hardtanh(w * batch[0], -0.3, 0.6) + batch[0]).tanh().sum();
                  }),
                  true});
  made.push_back({"indices of a max pooling lie in their windows", "pool_offsets",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return at::max_pool2d(w * batch[0], {3, 2}, {2, 2}, {1, 1}).tanh().sum();
                  })});
  made.push_back({"channels last too", "pool_offsets",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return at::max_pool2d((w * batch[0]).contiguous(at::MemoryFormat::ChannelsLast), {2, 2})
                        .tanh()
                        .sum();
                  })});
  made.push_back({"adaptive poolings have windows of two lengths", "pool_offsets",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return std::get<0>(at::adaptive_max_pool2d(w * batch[0], {5, 7})).tanh().sum();
                  })});
  made.push_back({"indices of a sort are below the size of what is sorted", "narrow",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (std::get<0>((w * batch[0]).sort(-1)) * batch[0]).tanh().sum();
                  })});
  made.push_back({"ids that are made in the step are below the vocabulary", "narrow",
                  problem_of(
                      [](const Tensor& w, const Batch& batch) {
                        const Tensor ids = batch[0].abs().to(at::kLong).clamp_max(31);
                        return at::embedding(w, ids).tanh().sum();
                      },
                      {32, 32})});
  made.push_back({"float32 that came from bfloat16 has 16 bits", "from_bfloat16",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (w * batch[0].to(at::kBFloat16).to(at::kFloat)).tanh().sum();
                  })});
  made.push_back({"float32 that came from float16 too", "from_half",
                  problem_of([](const Tensor& w, const Batch& batch) {
                    return (w * batch[0].to(at::kHalf).to(at::kFloat)).tanh().sum();
                  })});
  return made;
}

// The given order, with one value packed between two of its uses, which lie farthest apart.
std::vector<OpId> packed_while_idle(const Graph& graph, const PackedForm& form) {
  const auto touches = [&](const Op& op) {
    const auto is_it = [&](const Value& value) { return value.storage == form.storage; };
    return std::ranges::any_of(op.reads, is_it) || std::ranges::any_of(op.updates, is_it) ||
           std::ranges::find(op.creates, form.storage) != op.creates.end();
  };
  const Storage& storage = graph.storage(form.storage);
  size_t last = index(storage.changers.empty() ? *storage.creator : storage.changers.back());
  size_t from = last, to = last;
  for (size_t i = last + 1; i < graph.ops.size(); ++i) {
    if (!touches(graph.ops[i])) continue;
    if (i - last >= to - from) from = last, to = i;
    last = i;
  }
  std::vector<OpId> order;
  const auto move = [&](MoveKind kind) {
    for (size_t m = 0; m < graph.moves.size(); ++m) {
      const Move& each = graph.moves[m];
      const bool right_op = kind != MoveKind::read_packed || each.reader == static_cast<OpId>(to);
      if (each.kind == kind && each.value.storage == form.storage && right_op) {
        order.push_back(static_cast<OpId>(graph.ops.size() + m));
        return true;
      }
    }
    return false;
  };
  for (size_t i = 0; i < graph.ops.size(); ++i) {
    const bool back = i == to && to == last && !form.readers.empty() && move(MoveKind::read_packed);
    if (i == to && !back) {
      EXPECT_TRUE(move(MoveKind::unpack));
    }
    if (!back) order.push_back(static_cast<OpId>(i));
    if (i == from) {
      EXPECT_TRUE(move(MoveKind::pack));
    }
  }
  return order;
}

TEST(PackedValues, EveryRuleIsFoundAndGivesTheSameBits) {
  for (const Rule& rule : rules()) {
    SCOPED_TRACE(rule.name);
    const std::vector<Tensor> plain = train(rule.problem, testing::plain_step(rule.problem));
    Recording recording =
        capture(rule.problem.loss, rule.problem.batches[0], rule.problem.parameters, {.pack = false});
    detail::find_packed_values(recording, 1);
    const auto found = std::ranges::find(recording.graph.packed_forms, rule.rule, &PackedForm::rule);
    ASSERT_NE(found, recording.graph.packed_forms.end());
    EXPECT_EQ(!found->readers.empty(), rule.read_packed);
    EXPECT_LT(found->bytes, recording.graph.storage(found->storage).bytes);

    Plan made;
    made.order = packed_while_idle(recording.graph, *found);
    made.peak_bytes = simulate_peak(recording.graph, rewrite(recording.graph, made.order)).bytes;
    testing::PlannedStep step(recording, made);
    EXPECT_TRUE(same_bits(train(rule.problem, std::ref(step)), plain));
  }
}

// Backward of clamp compares its input with two numbers in ops of their own: ge, le, logical_and, where.
TEST(PackedValues, WhatClampKeepsIsNotPacked) {
  const Problem problem = problem_of([](const Tensor& w, const Batch& batch) {
    return ((w * batch[0]).clamp(-0.5, 0.5) + batch[0]).tanh().sum();
  });
  Recording recording = capture(problem.loss, problem.batches[0], problem.parameters, {.pack = false});
  detail::find_packed_values(recording, 1);
  bool compared = false;
  for (const Op& op : recording.graph.ops) {
    compared = compared || op.kind == "aten::ge.Scalar" || op.kind == "aten::ge";
    for (const Value& read : op.kind.starts_with("aten::ge") ? op.reads : std::vector<Value>()) {
      const auto same = [&](const PackedForm& form) { return form.storage == read.storage; };
      EXPECT_TRUE(std::ranges::none_of(recording.graph.packed_forms, same));
    }
  }
  EXPECT_TRUE(compared) << "backward of clamp has become one op: look at it again";
}

// They were measured on 2 MiB of zeros, which lie in the cache, and those of pooling indices with another kernel.
TEST(PackedValues, RatesAreThoseOfValuesInMemory) {
  using detail::PackRule;
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kElements = 64 * 1024;
  const detail::PoolDimension along{.in = 64, .out = 32, .kernel = 2, .stride = 2};
  const std::pair<PackRule, at::ScalarType> kinds[] = {
      {PackRule::two_values, at::kFloat},   {PackRule::two_values, at::kDouble}, {PackRule::bools, at::kBool},
      {PackRule::above, at::kFloat},        {PackRule::between, at::kHalf},      {PackRule::between, at::kBFloat16},
      {PackRule::narrow, at::kLong},        {PackRule::narrow, at::kInt},        {PackRule::pool_offsets, at::kLong},
      {PackRule::from_bfloat16, at::kFloat}, {PackRule::from_half, at::kFloat}};
  for (const auto& [rule, dtype] : kinds) {
    SCOPED_TRACE(detail::name(rule));
    detail::PackFormat format{.rule = rule, .dtype = dtype, .elements = kElements, .high = 1};
    if (rule == PackRule::pool_offsets) format.pool.dimensions = {detail::PoolDimension{}, along, along};
    // A clock by which every call takes a second: what is expected says how many elements were measured.
    testing::FakeDevice device;
    int64_t now_ns = 0;
    device.clock = [&] { return now_ns += kSecond; };
    int64_t pack_ns = 0;
    std::thread([&] { pack_ns = detail::expected_pack_ns(format); }).join();  // one that has measured nothing yet
    const double elements = static_cast<double>(kSecond) * kElements / static_cast<double>(pack_ns - 5'000);
    EXPECT_NEAR(elements * static_cast<double>(c10::elementSize(dtype)), 32. * MiB, MiB);
  }
}

TEST(PackedValues, SmallOnesAndThoseThatChangeAfterwardsAreLeftAlone) {
  const Problem problem = problem_of([](const Tensor& w, const Batch& batch) {
    return F::dropout(w * batch[0], F::DropoutFuncOptions().p(0.3)).sum();
  });
  Recording small = capture(problem.loss, problem.batches[0], problem.parameters);
  EXPECT_TRUE(small.graph.packed_forms.empty()) << "8 KiB are not worth a call";

  const Problem changed = problem_of([](const Tensor& w, const Batch& batch) {
    Tensor mask = at::empty_like(w).bernoulli_(0.5);
    mask.add_(batch[0]);  // no longer two values
    return (w * mask).tanh().sum();
  });
  Recording recording = capture(changed.loss, changed.batches[0], changed.parameters, {.pack = false});
  detail::find_packed_values(recording, 1);
  for (const PackedForm& form : recording.graph.packed_forms) EXPECT_NE(form.rule, "two_values");
}

}  // namespace
}  // namespace remat
