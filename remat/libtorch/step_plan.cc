// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/step_plan.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "remat/core/analysis/interpolate.h"
#include "remat/core/error.h"
#include "remat/core/rewrite.h"
#include "remat/core/simulate.h"
#include "remat/core/verify.h"
#include "remat/libtorch/device.h"

namespace remat::detail {
namespace {

PlanOptions plan_options(const StepOptions& options, int64_t budget_bytes, double plan_seconds) {
  return {.budget_bytes = budget_bytes,
          .strategy = options.strategy,
          .placed = true,
          .time_limit_seconds = plan_seconds,
          .seed = options.seed};
}

[[noreturn]] void throw_infeasible(const Graph& graph, const Plan& plan, int64_t budget_bytes) {
  const Floor least = floor(graph, plan);
  const Op& op = graph.op(least.op);
  throw Infeasible(concat("[step] no plan fits the budget of ", format_bytes(budget_bytes),
                          ": the least known is ", format_bytes(least.bytes), " (set by ", op.name,
                          op.scope.empty() ? "" : " of " + op.scope, " ", name(op.phase),
                          "); raise the budget or make the batch smaller"),
                   budget_bytes, least.bytes);
}

bool same_move(const Move& a, const Move& b) {
  return a.kind == b.kind && a.value == b.value && a.reader == b.reader;
}

}  // namespace

StepPlan plan_step(const Graph& graph, const StepOptions& options, int64_t budget_bytes,
                   double plan_seconds) {
  const int64_t start_ns = cpu_device().now_ns();
  PlanOptions planning = plan_options(options, budget_bytes, plan_seconds);
  std::exception_ptr interrupted;
  if (options.host.poll) {
    planning.stop = [&] {  // called from inside of the solver, which nothing may be thrown through
      try {
        options.host.poll();
      } catch (...) {
        interrupted = std::current_exception();
      }
      return interrupted != nullptr;
    };
  }
  StepPlan made{.plan = plan(graph, planning), .schedule = {}, .budget_bytes = budget_bytes};
  if (interrupted != nullptr) {
    std::rethrow_exception(interrupted);
  }
  if (!made.plan.feasible) {
    throw_infeasible(graph, made.plan, budget_bytes);
  }
  made.schedule = rewrite(graph, made.plan.order);
  made.seconds = static_cast<double>(cpu_device().now_ns() - start_ns) / 1e9;
  return made;
}

std::optional<StepPlan> plan_of_other_size(const Graph& graph, const Graph& other, const StepPlan& planned,
                                           int64_t budget_bytes) {
  // The numbers of moves are the same only where all of them are.
  if (program_difference(graph, other) || !std::ranges::equal(graph.moves, other.moves, same_move)) {
    return std::nullopt;
  }
  const int64_t start_ns = cpu_device().now_ns();
  StepPlan made{.plan = {}, .schedule = rewrite(graph, planned.plan.order), .budget_bytes = budget_bytes};
  made.plan.order = planned.plan.order;
  made.plan.strategy = planned.plan.strategy;
  made.plan.feasible = true;
  const Peak peak = simulate_peak(graph, made.schedule);
  if (peak.bytes > budget_bytes) {
    return std::nullopt;
  }
  made.plan.peak_bytes = peak.bytes;
  made.plan.time_ns = peak.time_ns;
  const int64_t room = budget_bytes == kNoBudget ? 0 : budget_bytes - graph.external_bytes();
  made.plan.placement = place(graph, made.schedule, {.enough_bytes = room});
  if (budget_bytes != kNoBudget && made.plan.placement->arena_bytes > room) {
    return std::nullopt;
  }
  made.seconds = static_cast<double>(cpu_device().now_ns() - start_ns) / 1e9;
  return made;
}

BackgroundPlan::BackgroundPlan(Graph graph, const StepOptions& options, int64_t budget_bytes)
    : graph_(std::move(graph)), process_(getpid()) {
  PlanOptions planning = plan_options(options, budget_bytes, options.plan_seconds);
  planning.stop = [this] { return stop_.load(); };
  thread_ = std::make_unique<std::thread>([this, planning] { run(planning); });
}

BackgroundPlan::~BackgroundPlan() {
  stop_ = true;
  if (process_ != getpid()) {
    static_cast<void>(thread_.release());  // a forked process does not have the thread
  }
  wait();
}

void BackgroundPlan::run(const PlanOptions& options) {
  try {
    const int64_t start_ns = cpu_device().now_ns();
    StepPlan made{.plan = plan(graph_, options), .schedule = {}, .budget_bytes = options.budget_bytes};
    if (made.plan.feasible) {
      made.schedule = rewrite(graph_, made.plan.order);
      made.seconds = static_cast<double>(cpu_device().now_ns() - start_ns) / 1e9;
      // Nobody will compare its first step with the plain one.
      if (!verify(graph_, made.schedule, options.budget_bytes)) {
        made_ = std::move(made);
      }
    }
  } catch (...) {
    // The plan that is there goes on: a better one is not needed.
  }
  done_ = true;
}

void BackgroundPlan::wait() {
  if (thread_ != nullptr && process_ == getpid()) {
    thread_->join();
    thread_.reset();
  }
}

std::optional<StepPlan> BackgroundPlan::take() {
  if (process_ != getpid()) {
    return std::nullopt;
  }
  wait();
  return std::move(made_);
}

}  // namespace remat::detail
