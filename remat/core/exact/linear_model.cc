// SPDX-License-Identifier: Apache-2.0
#include "remat/core/exact/linear_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "remat/core/error.h"

#ifdef REMAT_WITH_HIGHS
// The C interface: the wheel's library has the old std::string, so that its C++ one does not link.
#include <interfaces/highs_c_api.h>
#endif

namespace remat {

int32_t LinearModel::add_variable(double lower, double upper, double cost, bool integer) {
  cost_.push_back(cost);
  lower_.push_back(lower);
  upper_.push_back(upper);
  integer_.push_back(integer ? 1 : 0);
  return variable_count() - 1;
}

void LinearModel::add_row(double lower, std::span<const Summand> summands, double upper) {
  row_start_.push_back(static_cast<int>(summand_variable_.size()));
  row_lower_.push_back(lower);
  row_upper_.push_back(upper);
  for (const Summand& summand : summands) {
    REMAT_ASSERT(summand.variable >= 0 && summand.variable < variable_count());
    summand_variable_.push_back(summand.variable);
    summand_factor_.push_back(summand.factor);
  }
}

#ifdef REMAT_WITH_HIGHS

namespace {

struct Destroy {
  void operator()(void* highs) const { Highs_destroy(highs); }
};

// What the solver has done. A simplex iteration and a round of its cuts take time in proportion to the
// summands of the model: measured on window models of 1,000 to 20,000 of them, within a factor of three.
struct Progress {
  static constexpr double kNsPerIteration = 15;  // and summand
  static constexpr double kNsPerRound = 2'000;   // and summand
  static constexpr double kNsToStart = 2'000;    // and summand: presolving
  // Small models grow by their cuts, so that an iteration is not as cheap as their summands say.
  static constexpr double kNsPerAnyIteration = 50'000;

  double summands = 0;
  int64_t rounds = 0;
  int64_t iterations = 0;
  double enough = std::numeric_limits<double>::infinity();
  Effort* effort = nullptr;

  int64_t work() const {
    const double per_summand = kNsToStart + kNsPerIteration * static_cast<double>(iterations) +
                               kNsPerRound * static_cast<double>(rounds);
    const double ns = summands * per_summand + kNsPerAnyIteration * static_cast<double>(iterations);
    return Effort::work_of_seconds(1e-9 * ns);
  }
};

// The solver's own limits do not do: one on time gives other results on other machines, one on nodes allows too much
// work within a node.
void interrupt_if_enough(int kind, const char*, const HighsCallbackDataOut* out,
                         HighsCallbackDataIn* in, void* data) {
  Progress& progress = *static_cast<Progress*>(data);
  if (kind == kHighsCallbackMipInterrupt) {
    ++progress.rounds;
    progress.iterations = std::max(progress.iterations, out->mip_total_lp_iterations);
  } else {
    progress.iterations = std::max<int64_t>(
        progress.iterations, std::max(out->simplex_iteration_count, out->ipm_iteration_count));
  }
  if (in == nullptr) return;
  const bool proven = kind == kHighsCallbackMipInterrupt && out->mip_dual_bound >= progress.enough;
  const bool spent = progress.work() >= progress.effort->left() || progress.effort->out_of_cpu();
  in->user_interrupt = proven || spent ? 1 : 0;
}

}  // namespace

bool has_solver() { return true; }

Solution LinearModel::solve(const SolveOptions& options, Effort& effort) const {
  static_assert(std::is_same_v<HighsInt, int>);
  Solution solution;
  solution.lower_bound = -std::numeric_limits<double>::infinity();
  Progress progress{
      .summands = static_cast<double>(summand_count()), .enough = options.enough, .effort = &effort};
  if (progress.work() >= effort.left()) return solution;
  const std::unique_ptr<void, Destroy> highs(Highs_create());
  Highs_setBoolOptionValue(highs.get(), "output_flag", 0);
  Highs_setIntOptionValue(highs.get(), "threads", 1);
  Highs_setStringOptionValue(highs.get(), "parallel", "off");
  Highs_setDoubleOptionValue(highs.get(), "mip_rel_gap", 0);
  Highs_setDoubleOptionValue(highs.get(), "mip_abs_gap", options.gap);
  Highs_setCallback(highs.get(), interrupt_if_enough, &progress);
  for (const HighsInt kind :
       {kHighsCallbackSimplexInterrupt, kHighsCallbackIpmInterrupt, kHighsCallbackMipInterrupt}) {
    Highs_startCallback(highs.get(), kind);
  }
  const int count = variable_count();
  const HighsInt passed = Highs_passMip(
      highs.get(), count, static_cast<int>(row_lower_.size()), static_cast<int>(summand_count()),
      kHighsMatrixFormatRowwise, kHighsObjSenseMinimize, 0, cost_.data(), lower_.data(),
      upper_.data(), row_lower_.data(), row_upper_.data(), row_start_.data(), summand_variable_.data(),
      summand_factor_.data(), integer_.data());
  if (passed == kHighsStatusError) return solution;
  const HighsInt ran = Highs_run(highs.get());
  effort.spend(progress.work());
  if (ran == kHighsStatusError) return solution;

  const HighsInt status = Highs_getModelStatus(highs.get());
  if (status == kHighsModelStatusInfeasible) {
    solution.status = Solution::Status::infeasible;
    return solution;
  }
  const bool optimal = status == kHighsModelStatusOptimal || status == kHighsModelStatusModelEmpty;
  Highs_getDoubleInfoValue(highs.get(), "mip_dual_bound", &solution.lower_bound);
  HighsInt primal = kHighsSolutionStatusNone;
  Highs_getIntInfoValue(highs.get(), "primal_solution_status", &primal);
  if (primal != kHighsSolutionStatusFeasible) return solution;
  solution.status = optimal ? Solution::Status::optimal : Solution::Status::feasible;
  solution.values.resize(static_cast<size_t>(count));
  std::vector<double> column_dual(solution.values.size());
  std::vector<double> row(row_lower_.size()), row_dual(row_lower_.size());
  Highs_getSolution(highs.get(), solution.values.data(), column_dual.data(), row.data(),
                    row_dual.data());
  return solution;
}

#else

bool has_solver() { return false; }

Solution LinearModel::solve(const SolveOptions&, Effort&) const {
  Solution solution;
  solution.lower_bound = -std::numeric_limits<double>::infinity();
  return solution;
}

#endif

}  // namespace remat
