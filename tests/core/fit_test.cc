// SPDX-License-Identifier: Apache-2.0
#include "remat/core/fit.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "bench/generator/networks.h"
#include "remat/core/error.h"
#include "remat/core/graph_builder.h"
#include "remat/core/plan.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"

namespace remat {
namespace fit_test {

using Make = std::function<Graph(int64_t size)>;

// A world in which the graph of a size is what `make` says, a step counts what is simulated, and
// every plan is verified. `extra_bytes` is what a planned step is found to need beyond its plan.
struct World {
  Make make;
  int64_t extra_bytes = 0;
  std::vector<int64_t> plain = {}, planned = {};

  SizedProgram program() {
    return {.run_plainly =
                [this](int64_t size) {
                  plain.push_back(size);
                  Graph graph = make(size);
                  const Baseline baseline = keep_all_baseline(graph);
                  return PlainRun{std::move(graph), baseline.peak_bytes, baseline.time_ns};
                },
            .run_planned =
                [this](int64_t size, int64_t budget_bytes) {
                  planned.push_back(size);
                  return run_planned(make(size), budget_bytes);
                }};
  }

  PlannedRun run_planned(Graph graph, int64_t budget_bytes) const {
    PlannedRun run;
    const Plan made =
        plan(graph, {.budget_bytes = budget_bytes, .placed = true, .time_limit_seconds = 0.1});
    if (made.feasible) {
      const Schedule schedule = rewrite(graph, made.order);
      EXPECT_FALSE(verify(graph, schedule, budget_bytes));
      const int64_t peak_bytes = simulate(graph, schedule).peak_bytes;
      run = {.feasible = true,
             .predicted_peak_bytes = peak_bytes,
             .measured_peak_bytes = peak_bytes + extra_bytes,
             .reserved_bytes = graph.external_bytes() + made.placement->arena_bytes + extra_bytes,
             .plan_time_ns = made.time_ns,
             .step_ns = made.time_ns};
    }
    run.graph = std::move(graph);
    return run;
  }
};

constexpr int64_t kWeightBytes = 256;

// x -f1-> a1 ... -f8-> a8 -loss-> g8 -b8-> ... -b1-> g0, all of `bytes`; b_i reads g_i and a_(i-1).
// Keeping all takes 10 of them and the weight; no plan takes less than 4, and there is one that does:
// b_i holds x, g_i, a_(i-1) and g_(i-1).
Graph chain(int64_t bytes) {
  constexpr int kLayers = 8;
  GraphBuilder builder;
  builder.external("a0", bytes, Role::input);
  builder.external("w", kWeightBytes, Role::param);
  const auto value = [](const char* name, int i) { return name + std::to_string(i); };
  for (int i = 1; i <= kLayers; ++i) {
    builder.op({.name = value("f", i), .kind = "f", .time_ns = bytes,
                .reads = {value("a", i - 1), "w"}, .creates = {{value("a", i), bytes}}});
  }
  builder.op({.name = "loss", .phase = Phase::backward, .kind = "l", .time_ns = bytes,
              .reads = {value("a", kLayers)}, .creates = {{value("g", kLayers), bytes}}});
  for (int i = kLayers; i > 0; --i) {
    builder.op({.name = value("b", i), .phase = Phase::backward, .kind = "b", .time_ns = bytes,
                .reads = {value("g", i), value("a", i - 1)},
                .creates = {{value("g", i - 1), bytes}}});
  }
  builder.output("g0");
  return std::move(builder).build();
}
Graph by_batch(int64_t size) { return chain(64 * size); }
Graph by_tokens(int64_t tokens) { return chain(64 * tokens * tokens); }

FitOptions options_of(int64_t budget_bytes, Growth growth = Growth::affine) {
  return {.budget_bytes = budget_bytes, .growth = growth, .plan_seconds = 0.1};
}

// What every answer must be: run inside the budget, and the next size does not fit.
void check(const Fit& fit, const FitOptions& options, const Make& make) {
  EXPECT_LE(fit.planned.measured_peak_bytes, options.budget_bytes);
  EXPECT_LE(fit.planned.reserved_bytes, options.budget_bytes);
  EXPECT_EQ(fit.planned.measured_peak_bytes, fit.planned.predicted_peak_bytes);
  EXPECT_EQ(fit.planned.size % options.multiple, 0);
  EXPECT_GT(fit.planned.step_ns, 0);
  if (fit.next_size != 0) {
    EXPECT_EQ(fit.next_size, fit.planned.size + options.multiple);
    EXPECT_FALSE(fit.next_reason.empty());
  }
  if (fit.plain.size != 0) {
    EXPECT_LE(keep_all_baseline(make(fit.plain.size)).peak_bytes, options.budget_bytes);
  }
  EXPECT_GT(keep_all_baseline(make(fit.plain.size + options.multiple)).peak_bytes,
            options.budget_bytes);
}

TEST(Fit, FindsTheLargestBatchThatRunsInTheBudget) {
  const int64_t budget_bytes = keep_all_baseline(by_batch(10)).peak_bytes;
  World world{.make = by_batch};
  const FitOptions options = options_of(budget_bytes);
  const Fit found = fit(world.program(), options);
  check(found, options, by_batch);
  EXPECT_EQ(found.plain.size, 10);
  EXPECT_EQ(found.plain.measured_peak_bytes, budget_bytes);
  // 10 of size 10 are as many bytes as 4 of size 25.
  EXPECT_EQ(found.planned.size, 25);
  EXPECT_EQ(found.next_size, 26);
  EXPECT_EQ(found.next_floor_bytes, kWeightBytes + 4 * 64 * 26);
  EXPECT_NE(found.next_reason.find("the least known peak, 6.75 KiB, is above the budget"),
            std::string::npos)
      << found.next_reason;
  // Two small sizes and the plain limit; a few runs; few plans.
  EXPECT_EQ(world.plain, (std::vector<int64_t>{2, 4, 10}));
  EXPECT_LE(world.planned.size(), 3u);
  EXPECT_EQ(found.planned_runs, static_cast<int>(world.planned.size()));
  EXPECT_LE(found.plans, 12);
}

TEST(Fit, FindsTheLongestSequence) {
  // Of 96 tokens everything is kept; 10 * 96^2 are 4 * 151.8^2.
  const int64_t budget_bytes = keep_all_baseline(by_tokens(96)).peak_bytes;
  World world{.make = by_tokens};
  FitOptions options = options_of(budget_bytes, Growth::quadratic);
  options.multiple = 8;
  const Fit found = fit(world.program(), options);
  check(found, options, by_tokens);
  EXPECT_EQ(found.plain.size, 96);
  EXPECT_EQ(found.planned.size, 144);
}

// The budget is everything that the limit of the search needs: no next size.
TEST(Fit, StopsAtTheLargestSizeAllowed) {
  World world{.make = by_batch};
  FitOptions options = options_of(2 * keep_all_baseline(by_batch(12)).peak_bytes);
  options.largest = 12;
  const Fit found = fit(world.program(), options);
  EXPECT_EQ(found.planned.size, 12);
  EXPECT_EQ(found.plain.size, 12);
  EXPECT_EQ(found.next_size, 0);
  EXPECT_LE(found.planned.reserved_bytes, options.budget_bytes);
}

TEST(Fit, OneSizeOnly) {
  World world{.make = by_batch};
  FitOptions options = options_of(2 * keep_all_baseline(by_batch(6)).peak_bytes);
  options.smallest = options.largest = 6;
  const Fit found = fit(world.program(), options);
  EXPECT_EQ(found.planned.size, 6);
  EXPECT_EQ(world.plain, std::vector<int64_t>{6});
}

TEST(Fit, WhereNothingFitsTheFloorIsThatOfTheSmallestSize) {
  World world{.make = by_batch};
  const int64_t least = floor(by_batch(1)).bytes;
  const Fit found = fit(world.program(), options_of(least - 1));
  EXPECT_EQ(found.planned.size, 0);
  EXPECT_EQ(found.plain.size, 0);
  EXPECT_EQ(found.floor_bytes, least);
  EXPECT_TRUE(world.planned.empty());
}

// The plain step does not fit at any size; the planned one does.
TEST(Fit, WhereThePlainStepFitsAtNoSize) {
  World world{.make = by_batch};
  const int64_t least = keep_all_baseline(by_batch(1)).peak_bytes;
  const FitOptions options = options_of(least - 1);
  const Fit found = fit(world.program(), options);
  EXPECT_EQ(found.plain.size, 0);
  EXPECT_EQ(found.planned.size, 2);  // 10 * 1 > 4 * 2
  EXPECT_LE(found.planned.reserved_bytes, options.budget_bytes);
}

// A step that needs more than its plan says is not taken for granted: the size goes down.
TEST(Fit, GoesDownWhereTheProofFails) {
  const int64_t budget_bytes = keep_all_baseline(by_batch(10)).peak_bytes;
  World world{.make = by_batch};
  SizedProgram program = world.program();
  program.run_planned = [&](int64_t size, int64_t budget) {
    world.extra_bytes = size >= 24 ? budget : 0;
    world.planned.push_back(size);
    return world.run_planned(by_batch(size), budget);
  };
  const Fit found = fit(program, options_of(budget_bytes));
  EXPECT_EQ(world.planned, (std::vector<int64_t>{25, 24, 23}));
  EXPECT_EQ(found.planned.size, 23);
  EXPECT_EQ(found.next_size, 24);
  EXPECT_NE(found.next_reason.find("it ran, with a peak of "), std::string::npos);
}

// Estimates from small sizes may be wrong; what was recorded at larger ones puts them right. Here
// every storage is half as large again below size 8, so that the first prediction is far too low.
TEST(Fit, RecordedSizesCorrectTheEstimate) {
  const auto make = [](int64_t size) {
    Graph graph = by_batch(size);
    if (size < 8) {
      for (Storage& storage : graph.storages) storage.bytes += storage.bytes / 2;
    }
    return graph;
  };
  const int64_t budget_bytes = keep_all_baseline(by_batch(20)).peak_bytes;
  World world{.make = make};
  const Fit found = fit(world.program(), options_of(budget_bytes));
  check(found, options_of(budget_bytes), make);
  EXPECT_EQ(found.plain.size, 20);
  EXPECT_EQ(found.planned.size, 50);
}

// Where the smallest sizes are another program, larger ones are recorded.
TEST(Fit, LooksForSizesOfOneProgram) {
  const auto make = [](int64_t size) {
    Graph graph = by_batch(size);
    if (size < 4) graph.ops[0].kind = "aten::embedding_of_few";
    return graph;
  };
  World world{.make = make};
  const int64_t budget_bytes = keep_all_baseline(by_batch(10)).peak_bytes;
  const Fit found = fit(world.program(), options_of(budget_bytes));
  check(found, options_of(budget_bytes), make);
  EXPECT_EQ(found.plain.size, 10);
}

TEST(Fit, RefusesAProgramThatIsAnotherAtEverySize) {
  World world{.make = [](int64_t size) { return bench::lstm_language_model(2, size); }};
  FitOptions options = options_of(1 << 30);
  options.largest = 12;
  try {
    fit(world.program(), options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("[fit] the program is another one at sizes up to"),
              std::string::npos)
        << error.what();
  }
}

// The price: with less time to spend, a smaller size, which keeps to it.
TEST(Fit, KeepsToTheTimeThatMayBePaid) {
  const int64_t budget_bytes = keep_all_baseline(by_batch(10)).peak_bytes;
  std::map<double, int64_t> sizes;
  for (const double most_time : {1.0, 1.2, 10.0}) {
    World world{.make = by_batch};
    FitOptions options = options_of(budget_bytes);
    options.most_time = most_time;
    const Fit found = fit(world.program(), options);
    const auto plain_ns = static_cast<double>(keep_all_baseline(by_batch(found.planned.size)).time_ns);
    EXPECT_LE(static_cast<double>(found.planned.step_ns), most_time * plain_ns);
    sizes[most_time] = found.planned.size;
  }
  EXPECT_EQ(sizes[1.0], 10);
  EXPECT_GT(sizes[1.2], 10);
  EXPECT_LT(sizes[1.2], 25);
  EXPECT_EQ(sizes[10.0], 25);
}

TEST(Fit, TellsWhatItDoes) {
  World world{.make = by_batch};
  FitOptions options = options_of(keep_all_baseline(by_batch(6)).peak_bytes);
  std::string told;
  options.progress = [&](const std::string& line) { told += line + "\n"; };
  fit(world.program(), options);
  for (const char* words : {"recording size 2\n", "recording size 4\n", "planning size ",
                            "inside the budget\n"}) {
    EXPECT_NE(told.find(words), std::string::npos) << words;
  }
}

TEST(Fit, RefusesOptionsWithoutASize) {
  World world{.make = by_batch};
  const auto fault = [&](FitOptions options) {
    try {
      fit(world.program(), options);
      return std::string("no error");
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  EXPECT_EQ(fault({.budget_bytes = -1}), "[fit] a budget of -1 bytes; expected zero or more");
  EXPECT_EQ(fault({.smallest = 0}),
            "[fit] sizes from 0 to 1000000 in multiples of 1; expected 1 to 4194304");
  EXPECT_EQ(fault({.smallest = 5, .largest = 7, .multiple = 4}),
            "[fit] there is no multiple of 4 from 5 to 7; expected a size to try");
  EXPECT_EQ(fault({.most_time = 0.5}),
            "[fit] at most 0.5 times the plain time; expected 1 or more");
}

}  // namespace fit_test
}  // namespace remat
