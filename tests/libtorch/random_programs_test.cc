// SPDX-License-Identifier: Apache-2.0
//
// Random programs under remat::Step against the plain loop, bit for bit after every step.
//
//   random_programs_test                                     the first 200 seeds
//   REMAT_PROPERTY_PROGRAMS=5000 random_programs_test        more of them
//   REMAT_PROPERTY_SEED=137 REMAT_PROPERTY_PROGRAMS=1 ...    one of them
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <optional>
#include <set>
#include <sstream>

#include "remat/core/error.h"
#include "remat/libtorch/step.h"
#include "tests/libtorch/random_program.h"
#include "tests/libtorch/random_statements.h"

namespace remat::testing {
namespace {

using Trace = std::vector<NamedTensors>;  // one state for each step

Trace plain_trace(const Program& program) {
  ProgramRun run(program);
  Trace trace;
  for (int i = 0; i < kSteps; ++i) {
    const Batch batch = run.next_batch();
    const Batch results = run(batch);
    trace.push_back(run.state(batch, results));
  }
  return trace;
}

struct Outcome {
  std::string fault = {};   // empty: the same as the plain loop
  bool fits = true;         // some plan fits the budget
  int64_t floor_bytes = 0;  // the largest that was reported; 0: nothing was planned
  int64_t planned_steps = 0;
};

// The report after a step; none if no step was planned yet.
std::optional<StepReport> report_of(const Step& step) {
  try {
    return step.report();
  } catch (const Error&) {
    return std::nullopt;
  }
}

// What is wrong with the step that just ran; empty if nothing is.
std::string check_report(const StepReport& report, int64_t budget_bytes) {
  std::ostringstream out;
  if (report.budget_bytes != budget_bytes || report.peak_bytes > budget_bytes ||
      report.measured_peak_bytes > report.peak_bytes) {
    out << "budget " << budget_bytes << ": reported are budget " << report.budget_bytes << ", peak "
        << report.peak_bytes << ", measured peak " << report.measured_peak_bytes;
  }
  return out.str();
}

Outcome run_under_step(const Program& program, const Trace& plain, int64_t budget_bytes) {
  ProgramRun run(program);
  Step step([&](const Batch& batch) { return run(batch); },
            {.budget_bytes = budget_bytes,
             .plan_seconds = 0.1,
             .measure_seconds = 0,
             .execute = {.poison = true}});
  Outcome outcome;
  for (size_t i = 0; i < plain.size() && outcome.fits && outcome.fault.empty(); ++i) {
    const Batch batch = run.next_batch();
    try {
      const Batch results = step(batch);
      outcome.fault = difference(plain[i], run.state(batch, results));
    } catch (const Error& error) {
      outcome.fits = first_line(error).find("no plan fits") == std::string::npos;
      outcome.fault = outcome.fits ? first_line(error) : "";
    } catch (const std::exception& error) {
      outcome.fault = "exception: " + first_line(error);
    }
    const std::optional<StepReport> report = report_of(step);
    if (report && outcome.fault.empty()) {
      outcome.fault = check_report(*report, budget_bytes);
      outcome.floor_bytes = std::max(outcome.floor_bytes, report->floor_bytes);
      outcome.planned_steps = report->planned_steps;
    }
    if (!outcome.fault.empty()) {
      outcome.fault = "step " + std::to_string(i) + ": " + outcome.fault;
    }
  }
  return outcome;
}

struct Verdict {
  std::string fault = {};
  int64_t planned_steps = 0;
  int64_t budget_bytes = kNoBudget;
};

// Without a budget, then just above the largest floor, or as little above it as fits.
Verdict judge(const Program& program) {
  Trace plain;
  try {
    plain = plain_trace(program);
  } catch (const std::exception& error) {
    return {.fault = "the plain loop throws: " + first_line(error)};
  }
  const Outcome free = run_under_step(program, plain, kNoBudget);
  Verdict verdict{.fault = free.fault, .planned_steps = free.planned_steps};
  if (!free.fault.empty() || free.floor_bytes == 0) {
    return verdict;
  }
  int64_t budget_bytes = free.floor_bytes + free.floor_bytes / 32;
  for (int raise = 0; raise < 40; ++raise, budget_bytes += budget_bytes / 10) {
    const Outcome tight = run_under_step(program, plain, budget_bytes);
    if (tight.fits) {
      verdict.planned_steps += tight.planned_steps;
      verdict.budget_bytes = budget_bytes;
      verdict.fault = tight.fault;
      return verdict;
    }
  }
  verdict.fault = "nothing fits even at " + std::to_string(budget_bytes) +
                  " bytes; the floor was " + std::to_string(free.floor_bytes);
  return verdict;
}

bool plain_loop_throws(const std::string& fault) { return fault.starts_with("the plain loop"); }

int64_t from_environment(const char* name, int64_t otherwise) {
  const char* const text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : otherwise;
}

// A crash names the program that it happened in.
volatile std::sig_atomic_t running_seed = 0;
void name_the_seed(int signal) {
  char text[] = "\nrandom_programs_test: crashed in the program of seed 0000000\n";
  char* digit = text + sizeof(text) - 3;
  for (int rest = running_seed; rest > 0; rest /= 10) {
    *digit-- = static_cast<char>('0' + rest % 10);
  }
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, text, sizeof(text) - 1);
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

TEST(RandomPrograms, TrainTheSameAsThePlainLoop) {
  for (const int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) {
    std::signal(signal, name_the_seed);
  }
  const int64_t first = from_environment("REMAT_PROPERTY_SEED", 1);
  const int64_t programs = from_environment("REMAT_PROPERTY_PROGRAMS", 200);
  int failures = 0;
  int64_t impossible = 0;
  int64_t planned_programs = 0;
  for (int64_t seed = first; seed < first + programs && failures < 10; ++seed) {
    running_seed = static_cast<std::sig_atomic_t>(seed);
    const Program program = random_program(static_cast<uint64_t>(seed));
    const Verdict verdict = judge(program);
    planned_programs += verdict.planned_steps > 0 ? 1 : 0;
    if (verdict.fault.empty()) {
      continue;
    }
    if (plain_loop_throws(verdict.fault)) {
      ++impossible;  // autograd refuses it
      continue;
    }
    ++failures;
    Program least = program;
    if (failures <= 3) {
      least = shrink(program, [](const Program& simpler) {
        const std::string fault = judge(simpler).fault;
        return !fault.empty() && !plain_loop_throws(fault);
      });
    }
    const Verdict shrunk = judge(least);
    ADD_FAILURE() << "seed " << seed << ": " << verdict.fault << "\nshrunk: " << shrunk.fault
                  << "\nbudget " << shrunk.budget_bytes << ", program:\n"
                  << listing(least);
  }
  EXPECT_LE(impossible, programs / 50);
  EXPECT_GT(planned_programs, programs / 2) << "a step that always runs plainly proves nothing";
}

TEST(RandomPrograms, ContainEveryStatement) {
  std::set<int> kinds;
  std::set<When> whens;
  std::set<Change> changes;
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    for (const Statement& statement : random_program(seed).statements) {
      kinds.insert(statement.kind);
      whens.insert(statement.when);
      changes.insert(statement.change);
    }
  }
  EXPECT_EQ(kinds.size(), statement_kinds().size());
  EXPECT_EQ(whens.size(), static_cast<size_t>(kWhens));
  EXPECT_EQ(changes.size(), static_cast<size_t>(kChanges));
}

// The comparison sees a single bit of any tensor.
TEST(RandomPrograms, DifferencesAreSeen) {
  const Program program = random_program(1);
  const Trace first = plain_trace(program);
  Trace second = plain_trace(program);
  EXPECT_EQ(difference(first.back(), second.back()), "");
  for (size_t i = 0; i < second.back().size(); ++i) {
    at::Tensor& tensor = second.back()[i].second;
    if (tensor.defined() && tensor.nbytes() > 0) {
      const at::Tensor before = tensor.clone();
      static_cast<unsigned char*>(tensor.mutable_data_ptr())[0] ^= 1;
      EXPECT_NE(difference(first.back(), second.back()), "") << second.back()[i].first;
      tensor = before;
    }
  }
}

TEST(RandomPrograms, ShrinkToWhatFails) {
  const Program program = random_program(3);
  ASSERT_GT(program.statements.size(), 3u);
  const int wanted = program.statements[2].kind;
  const Program least = shrink(program, [&](const Program& simpler) {
    return std::ranges::any_of(simpler.statements,
                               [&](const Statement& one) { return one.kind == wanted; });
  });
  ASSERT_EQ(least.statements.size(), 1u);
  EXPECT_EQ(least.statements[0].kind, wanted);
  EXPECT_EQ(least.statements[0].when, When::always);
  EXPECT_NE(listing(least).find("r0, r1, labels = batch\n"), std::string::npos);
}

}  // namespace
}  // namespace remat::testing
