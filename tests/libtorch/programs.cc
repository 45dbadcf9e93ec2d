// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/programs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <utility>

#include "remat/core/error.h"
#include "tests/libtorch/testing.h"

namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

struct Seen {
  std::string name;
  Tensor copy;
  std::vector<int64_t> strides = {};
  bool requires_grad = false;
};

// Everything that a step leaves.
class Sight {
 public:
  void add(const std::string& name, const Tensor& tensor) {
    if (!tensor.defined()) {
      seen_.push_back({name, Tensor()});
    } else if (tensor.is_sparse()) {
      seen_.push_back({name, tensor.detach().to_dense().clone()});
    } else {
      seen_.push_back({name, tensor.detach().clone().resolve_conj(), tensor.strides().vec(),
                       tensor.requires_grad()});
    }
  }

  void add(const std::string& name, const std::vector<Tensor>& tensors) {
    add_number(name + "s", static_cast<double>(tensors.size()));
    for (size_t i = 0; i < tensors.size(); ++i) {
      add(name + " " + std::to_string(i), tensors[i]);
    }
  }

  void add_number(const std::string& name, double number) {
    seen_.push_back({name, torch::full({}, number, at::kDouble)});
  }

  const std::vector<Seen>& all() const { return seen_; }

 private:
  std::vector<Seen> seen_;
};

struct StepTrace {
  std::string thrown;
  Sight sight;
};

struct Trace {
  std::vector<StepTrace> steps;
  Sight end;  // the results of all steps, after the last
};

void add_module(Sight& sight, const std::string& name, const nn::Module& module) {
  for (const auto& parameter : module.named_parameters()) {
    sight.add(name + parameter.key(), parameter.value());
    sight.add("gradient of " + name + parameter.key(), parameter.value().grad());
  }
  for (const auto& buffer : module.named_buffers()) {
    sight.add(name + buffer.key(), buffer.value());
  }
}

template <typename AdamState>
void add_adam(Sight& sight, const std::string& name, const AdamState& state) {
  sight.add_number(name + " step", static_cast<double>(state.step()));
  sight.add(name + " average", {state.exp_avg(), state.exp_avg_sq(), state.max_exp_avg_sq()});
}

void add_optimizer(Sight& sight, const std::string& name,
                   const torch::optim::Optimizer& optimizer) {
  for (const torch::optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    sight.add_number(name + " learning rate", group.options().get_lr());
    for (const Tensor& parameter : group.params()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      sight.add_number(name + " has state", found != optimizer.state().end());
      if (found == optimizer.state().end()) {
        continue;
      }
      const torch::optim::OptimizerParamState* state = found->second.get();
      if (const auto* sgd = dynamic_cast<const torch::optim::SGDParamState*>(state)) {
        sight.add(name + " momentum", sgd->momentum_buffer());
      } else if (const auto* adam = dynamic_cast<const torch::optim::AdamParamState*>(state)) {
        add_adam(sight, name, *adam);
      } else if (const auto* adamw = dynamic_cast<const torch::optim::AdamWParamState*>(state)) {
        add_adam(sight, name, *adamw);
      } else if (const auto* rms = dynamic_cast<const torch::optim::RMSpropParamState*>(state)) {
        sight.add(name + " average", {rms->square_avg(), rms->momentum_buffer(), rms->grad_avg()});
      } else if (const auto* ada = dynamic_cast<const torch::optim::AdagradParamState*>(state)) {
        sight.add(name + " sum", ada->sum());
      }
    }
  }
}

Sight look(const Program& program, const Batch& batch, const Batch& results, int64_t calls) {
  Sight sight;
  sight.add_number("calls of the function", static_cast<double>(calls));
  sight.add("result", results);
  sight.add("batch tensor", batch);
  sight.add("generator", generator_state());
  for (size_t i = 0; i < program.modules.size(); ++i) {
    add_module(sight, "module " + std::to_string(i) + " ", *program.modules[i]);
  }
  for (size_t i = 0; i < program.optimizers.size(); ++i) {
    add_optimizer(sight, "optimizer " + std::to_string(i), *program.optimizers[i]);
  }
  sight.add("log", torch::tensor(*program.log, at::kDouble));
  sight.add("kept tensor", *program.kept);
  return sight;
}

// How a program is run: given its function, something that does a step.
using remat::StepFunction;
using Runner = std::function<StepFunction(StepFunction)>;
// Told after each step that ran.
using Watcher = std::function<void()>;

Trace run(const ProgramCase& which, const Runner& runner, bool keep_results,
          const Watcher& watch = {}) {
  torch::manual_seed(17);
  Program program = which.make();
  torch::manual_seed(18);
  const auto calls = std::make_shared<int64_t>(0);
  const StepFunction step = runner([calls, function = program.step](const Batch& batch) {
    ++*calls;
    return function(batch);
  });
  Trace trace;
  std::vector<Batch> kept;
  Batch last;
  for (size_t i = 0; i < program.batches.size(); ++i) {
    Batch batch = std::exchange(program.batches[i], {});
    if (program.before) {
      program.before(static_cast<int64_t>(i));
    }
    if (program.chain && i > 0) {
      program.chain(last, batch);
    }
    last.clear();
    StepTrace& now = trace.steps.emplace_back();
    try {
      last = step(batch);
    } catch (const c10::Error& error) {
      now.thrown = error.what_without_backtrace();
    } catch (const std::exception& exception) {
      now.thrown = exception.what();
    }
    if (watch) {
      watch();
    }
    now.sight = look(program, batch, last, *calls);
    if (keep_results) {
      kept.push_back(last);
    }
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    trace.end.add("at the end, step " + std::to_string(i) + " result", kept[i]);
  }
  return trace;
}

int64_t steps_that_throw(const Trace& trace) {
  return std::count_if(trace.steps.begin(), trace.steps.end(),
                       [](const StepTrace& step) { return !step.thrown.empty(); });
}

// The shape, the type and the first numbers.
std::string shown(const Tensor& tensor) {
  std::ostringstream text;
  if (tensor.defined()) {
    text << tensor.scalar_type() << tensor.sizes() << ' ' << tensor.flatten().slice(0, 0, 12);
  } else {
    text << "undefined";
  }
  return text.str();
}

// What differs first, as a sentence; empty if nothing does.
std::string difference(const std::vector<Seen>& expected, const std::vector<Seen>& found) {
  for (size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    const Seen& a = expected[i];
    const Seen& b = found[i];
    if (a.name != b.name) {
      return "there is " + b.name + " where " + a.name + " was expected";
    }
    if (!same_bits(a.copy, b.copy)) {
      return a.name + " differs: expected\n" + shown(a.copy) + "\nfound\n" + shown(b.copy);
    }
    if (a.strides != b.strides) {
      return a.name + " has other strides";
    }
    if (a.requires_grad != b.requires_grad) {
      return a.name + (a.requires_grad ? " needs no gradient any more" : " needs a gradient now");
    }
  }
  return expected.size() == found.size() ? "" : "more or fewer things are there";
}

void expect_same(const Trace& expected, const Trace& found, bool with_end) {
  ASSERT_EQ(expected.steps.size(), found.steps.size());
  for (size_t i = 0; i < expected.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    ASSERT_EQ(expected.steps[i].thrown, found.steps[i].thrown);
    ASSERT_EQ(difference(expected.steps[i].sight.all(), found.steps[i].sight.all()), "");
  }
  if (with_end) {
    ASSERT_EQ(difference(expected.end.all(), found.end.all()), "");
  }
}

StepOptions options_of(const ProgramCase& program, int64_t budget_bytes) {
  return {.budget_bytes = budget_bytes,
          .plan_seconds = program.plan_seconds,
          .measure_seconds = 0,
          .execute = {.poison = true}};
}

StepFunction plain(StepFunction function) { return function; }

std::optional<StepReport> report_of(const Step& step) {
  try {
    return step.report();
  } catch (const Error&) {
    return std::nullopt;  // nothing has been planned
  }
}

struct StepRun {
  Trace trace;
  std::optional<StepReport> last;
  std::string notices;
  int64_t halfway_bytes = 0;  // of the course that needs most: between its floor and keeping all
};

StepRun run_step(const ProgramCase& program, int64_t budget_bytes, bool keep_results) {
  StepRun result;
  std::shared_ptr<Step> step;
  const Runner runner = [&](StepFunction function) {
    StepOptions options = options_of(program, budget_bytes);
    options.notice = [&](const std::string& text) { result.notices += text + "\n"; };
    step = std::make_shared<Step>(std::move(function), std::move(options));
    return [step](const Batch& batch) { return (*step)(batch); };
  };
  result.trace = run(program, runner, keep_results, [&] {
    result.last = report_of(*step);
    if (result.last && result.last->floor_bytes > 0) {
      const int64_t halfway = (result.last->floor_bytes + result.last->keep_all_peak_bytes) / 2;
      result.halfway_bytes = std::max(result.halfway_bytes, halfway);
    }
  });
  return result;
}

}  // namespace

void PrintTo(const ProgramCase& program, std::ostream* stream) { *stream << program.name; }

void expect_same_as_plain_loop(const ProgramCase& program) {
  const Trace expected = run(program, plain, /*keep_results=*/true);
  const int64_t failed = steps_that_throw(expected);
  const int64_t steps = static_cast<int64_t>(expected.steps.size()) - failed;
  ASSERT_EQ(failed > 0, program.throws);
  const StepRun free = run_step(program, kNoBudget, /*keep_results=*/true);
  {
    SCOPED_TRACE("without a budget");
    expect_same(expected, free.trace, /*with_end=*/true);
    if (steps > program.most_plain_steps) {
      ASSERT_TRUE(free.last) << "no step was planned";
      EXPECT_LE(free.last->plain_steps, program.most_plain_steps) << free.notices;
      EXPECT_EQ(free.last->planned_steps + free.last->plain_steps, steps);
    }
  }
  if (free.halfway_bytes == 0) {
    return;
  }
  // Of tiny tensors, each of which has an address divisible by 64, more than the floor is needed.
  int64_t budget_bytes = free.halfway_bytes;
  StepRun tight = run_step(program, budget_bytes, /*keep_results=*/false);
  const auto starved = [](const StepTrace& step) {
    return step.thrown.starts_with("[step] no plan fits");
  };
  while (budget_bytes < 4 * free.halfway_bytes &&
         std::any_of(tight.trace.steps.begin(), tight.trace.steps.end(), starved)) {
    budget_bytes += budget_bytes / 4 + 64;
    tight = run_step(program, budget_bytes, /*keep_results=*/false);
  }
  SCOPED_TRACE("at a budget of " + std::to_string(budget_bytes) + " bytes");
  expect_same(expected, tight.trace, /*with_end=*/false);
  if (tight.last) {
    EXPECT_LE(tight.last->peak_bytes, budget_bytes);
    EXPECT_LE(tight.last->measured_peak_bytes, budget_bytes);
    EXPECT_EQ(tight.last->plain_steps, free.last->plain_steps);
  }
}

void expect_refused(const ProgramCase& program) {
  const Trace expected = run(program, plain, /*keep_results=*/false);
  ASSERT_EQ(steps_that_throw(expected), 0);
  const StepRun found = run_step(program, kNoBudget, /*keep_results=*/false);
  for (size_t i = 0; i < found.trace.steps.size(); ++i) {
    SCOPED_TRACE("step " + std::to_string(i));
    const std::string& thrown = found.trace.steps[i].thrown;
    if (!thrown.empty()) {
      EXPECT_TRUE(thrown.starts_with("[step] ")) << thrown;
      EXPECT_NE(thrown.find(program.refusal), std::string::npos) << thrown;
      return;
    }
    ASSERT_EQ(difference(expected.steps[i].sight.all(), found.trace.steps[i].sight.all()), "");
  }
  FAIL() << "it was not refused";
}

Classifier::Classifier(double dropout, double momentum) {
  net = nn::Sequential(nn::Linear(kFeatures, kHidden), nn::BatchNorm1d(kHidden), nn::Tanh(),
                       nn::Dropout(dropout), nn::Linear(kHidden, kHidden), nn::Tanh(),
                       nn::Linear(kHidden, kClasses))
            .ptr();
  optimizer = std::make_shared<torch::optim::SGD>(net->parameters(),
                                                  torch::optim::SGDOptions(0.1).momentum(momentum));
}

Tensor Classifier::loss(const Batch& batch) const {
  return F::cross_entropy(net->forward(batch[0]), batch[1]);
}

Batch Classifier::update(const Tensor& loss) const {
  optimizer->zero_grad();
  loss.backward();
  optimizer->step();
  return {loss};
}

Program Classifier::program() const {
  return {.step = [self = *this](const Batch& batch) { return self.update(self.loss(batch)); },
          .batches = make_batches(7),
          .modules = {net},
          .optimizers = {optimizer}};
}

Batch make_batch(int64_t rows) {
  return {torch::randn({rows, kFeatures}),
          torch::randint(kClasses, {rows}, at::kLong)};
}

std::vector<Batch> make_batches(int64_t steps, int64_t rows) {
  std::vector<Batch> batches;
  for (int64_t i = 0; i < steps; ++i) {
    batches.push_back(make_batch(rows));
  }
  return batches;
}

Program with_loss(const Classifier& classifier, std::function<Tensor(const Batch&)> loss_of) {
  Program program = classifier.program();
  program.step = [classifier, loss_of = std::move(loss_of)](const Batch& batch) {
    return classifier.update(loss_of(batch));
  };
  return program;
}

}  // namespace remat::testing
