// SPDX-License-Identifier: Apache-2.0
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <random>

#include "tests/libtorch/programs.h"

// Numbers, branches and modes that are others at the next step.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

// A loss that is told how many steps came before.
using NumberedLoss = std::function<Tensor(const Classifier&, const Batch&, int64_t step)>;

Program numbered(NumberedLoss loss_of, int64_t steps = 7) {
  const Classifier classifier;
  Program program =
      with_loss(classifier, [=, step = std::make_shared<int64_t>(0)](const Batch& batch) {
        return loss_of(classifier, batch, (*step)++);
      });
  program.batches = make_batches(steps);
  return program;
}

Program temperature_that_changes() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t step) {
    const double temperature = 1.0 + 0.25 * static_cast<double>(step);
    return F::cross_entropy(classifier.net->forward(batch[0]) / temperature, batch[1]);
  });
}

Program loss_weight_that_changes() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t step) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const double weight = static_cast<double>(step % 3) * 0.1;  // also 0
    return F::cross_entropy(logits, batch[1]) + weight * logits.square().mean() -
           logits.mean() * (0.01 * static_cast<double>(step)) +
           torch::add(logits, logits, weight).tanh().mean();
  });
}

Program numbers_of_many_ops_change() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t step) {
    const double now = 0.1 + 0.05 * static_cast<double>(step);
    const Tensor x = F::leaky_relu(batch[0], F::LeakyReLUFuncOptions().negative_slope(now));
    const Tensor logits =
        classifier.net->forward(x.clamp(-1 - now, 1 + now)).pow(1 + 2 * (step % 2));
    return F::cross_entropy(logits, batch[1], F::CrossEntropyFuncOptions().label_smoothing(now)) +
           F::smooth_l1_loss(logits, torch::zeros_like(logits),
                             F::SmoothL1LossFuncOptions().beta(now)) +
           F::softplus(logits, F::SoftplusFuncOptions().beta(1 + now)).mean() +
           logits.masked_fill(logits > now, now).mean() + logits.add(now).mul(now).sub(now).mean();
  });
}

Program dropout_probability_that_changes() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t step) {
    const double probability = 0.1 + 0.1 * static_cast<double>(step);
    const Tensor x = F::dropout(batch[0], F::DropoutFuncOptions().p(probability));
    return classifier.loss({x, batch[1]});
  });
}

// With probability 0 dropout is no op at all.
Program dropout_probability_that_becomes_zero() {
  return numbered(
      [](const Classifier& classifier, const Batch& batch, int64_t step) {
        const double probability = step % 3 == 1 ? 0.0 : 0.4;
        const Tensor x = F::dropout(batch[0], F::DropoutFuncOptions().p(probability));
        return classifier.loss({x, batch[1]});
      },
      9);
}

Program learning_rate_that_changes() {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  program.before = [classifier](int64_t step) {
    classifier.optimizer->param_groups()[0].options().set_lr(0.1 / static_cast<double>(1 + step));
  };
  return program;
}

Program learning_rate_schedule_inside() {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  const auto schedule =
      std::make_shared<torch::optim::StepLR>(*classifier.optimizer, /*step_size=*/2, /*gamma=*/0.5);
  program.step = [=](const Batch& batch) {
    const Batch results = classifier.update(classifier.loss(batch));
    schedule->step();
    return results;
  };
  return program;
}

Program eval_between_two_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  program.before = [classifier](int64_t step) { classifier.net->train(step % 3 != 1); };
  return program;
}

Program validation_inside_of_some_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  const auto step = std::make_shared<int64_t>(0);
  program.step = [=, log = program.log](const Batch& batch) {
    Batch results = classifier.update(classifier.loss(batch));
    if ((*step)++ % 2 == 1) {
      const at::NoGradGuard no_grad;
      classifier.net->eval();
      results.push_back(classifier.net->forward(batch[0]).argmax(1).eq(batch[1]).sum());
      classifier.net->train();
      log->push_back(1);
    }
    return results;
  };
  return program;
}

Program branch_on_a_host_random_number() {
  const auto random = std::make_shared<std::mt19937>(3);
  Program program = numbered(
      [random](const Classifier& classifier, const Batch& batch, int64_t) {
        const bool flip = (*random)() % 2 == 0;
        return classifier.loss({flip ? batch[0].flip(1) : batch[0], batch[1]});
      },
      10);
  return program;
}

// Layers are left out by chance: four courses.
Program layer_drop() {
  const Classifier classifier;
  const auto random = std::make_shared<std::mt19937>(4);
  Program program = classifier.program();
  program.batches = make_batches(12);
  program.step = [=, log = program.log](const Batch& batch) {
    Tensor x = batch[0];
    for (nn::AnyModule& layer : *classifier.net) {
      const auto* linear = layer.ptr()->as<nn::LinearImpl>();
      if (linear != nullptr && linear->options.in_features() == Classifier::kHidden &&
          linear->options.out_features() == Classifier::kHidden && (*random)() % 2 == 0) {
        log->push_back(0);
        continue;
      }
      x = layer.forward(x);
    }
    if ((*random)() % 2 == 0) {
      x = x * 0.5;
    }
    return classifier.update(F::cross_entropy(x, batch[1]));
  };
  return program;
}

struct AutocastGuard {
  AutocastGuard() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }
  ~AutocastGuard() {
    if (at::autocast::decrement_nesting() == 0) {
      at::autocast::clear_cache();
    }
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;
};

Program autocast_inside() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t) {
    Tensor logits;
    {
      const AutocastGuard autocast;
      logits = classifier.net->forward(batch[0]);
    }
    return F::cross_entropy(logits.to(at::kFloat), batch[1]);
  });
}

Program autocast_inside_of_some_steps() {
  return numbered(
      [](const Classifier& classifier, const Batch& batch, int64_t step) {
        std::optional<AutocastGuard> autocast;
        if (step % 2 == 1) {
          autocast.emplace();
        }
        return classifier.loss(batch);
      },
      9);
}

// The teacher is the network itself, without gradients.
Program grad_mode_off_inside() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t) {
    Tensor target;
    {
      const at::NoGradGuard no_grad;
      target = classifier.net->forward(batch[0] + 0.1 * torch::randn_like(batch[0])).softmax(1);
    }
    const Tensor logits = classifier.net->forward(batch[0]);
    return F::cross_entropy(logits, batch[1]) + F::mse_loss(logits.softmax(1), target);
  });
}

Program grad_mode_off_in_some_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  const auto step = std::make_shared<int64_t>(0);
  program.step = [=](const Batch& batch) {
    const at::AutoGradMode mode((*step)++ % 2 == 0);
    const Tensor loss = classifier.loss(batch);
    return loss.requires_grad() ? classifier.update(loss) : Batch{loss};
  };
  return program;
}

Program inference_mode_inside_for_metrics() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    Batch results = classifier.update(F::cross_entropy(logits, batch[1]));
    const c10::InferenceMode inference;
    const Tensor right = logits.detach().argmax(1).eq(batch[1]).to(at::kFloat).mean();
    log->push_back(right.item<double>());
    results.push_back(right);
    results.push_back(logits.softmax(1).amax(1));
    return results;
  };
  return program;
}

struct ThreadsGuard {
  const int before = at::get_num_threads();
  ThreadsGuard() = default;
  ~ThreadsGuard() { at::set_num_threads(before); }
  ThreadsGuard(const ThreadsGuard&) = delete;
  ThreadsGuard& operator=(const ThreadsGuard&) = delete;
};

Program thread_count_changed_between_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  program.before = [guard = std::make_shared<ThreadsGuard>()](int64_t step) {
    at::set_num_threads(1 + static_cast<int>(step % 2));
  };
  return program;
}

// One op more at every step: never the same course twice.
Program different_course_at_every_step() {
  return numbered(
      [](const Classifier& classifier, const Batch& batch, int64_t step) {
        Tensor x = batch[0];
        for (int64_t i = 0; i < step; ++i) {
          x = torch::tanh(x + 0.1);
        }
        return classifier.loss({x, batch[1]});
      },
      12);
}

Program generator_seeded_inside() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t step) {
    const Tensor noise = torch::randn_like(batch[0]);
    torch::manual_seed(static_cast<uint64_t>(100 + step / 2));
    return classifier.loss({batch[0] + noise + torch::rand_like(noise), batch[1]});
  });
}

// Draws the same dropout masks twice by putting the generator back.
Program generator_put_back_inside() {
  return numbered([](const Classifier& classifier, const Batch& batch, int64_t) {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const Tensor state = generator.get_state();
    const Tensor first = classifier.net->forward(batch[0]);
    generator.set_state(state);
    const Tensor second = classifier.net->forward(batch[0].neg());
    return F::cross_entropy(first + second, batch[1]);
  });
}

Program generator_of_its_own() {
  const Classifier classifier;
  Program program = classifier.program();
  const at::Generator own = at::make_generator<at::CPUGeneratorImpl>(uint64_t{9});
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor noise = torch::randn({kRows, kFeatures}, own);
    const Tensor kept_rows = torch::empty({kRows, 1}).bernoulli_(0.8, own);
    const Batch results =
        classifier.update(classifier.loss({(batch[0] + 0.1 * noise) * kept_rows, batch[1]}));
    *kept = {own.get_state()};
    return results;
  };
  return program;
}

}  // namespace

std::vector<ProgramCase> changing_programs() {
  return {
      {"TemperatureThatChanges", temperature_that_changes},
      {"LossWeightThatChanges", loss_weight_that_changes},
      {"NumbersOfManyOpsChange", numbers_of_many_ops_change, 4},
      {"DropoutProbabilityThatChanges", dropout_probability_that_changes},
      {"DropoutProbabilityThatBecomesZero", dropout_probability_that_becomes_zero, 4},
      {"LearningRateThatChanges", learning_rate_that_changes},
      {"LearningRateScheduleInside", learning_rate_schedule_inside},
      {"EvalBetweenTwoSteps", eval_between_two_steps, 4},
      {"ValidationInsideOfSomeSteps", validation_inside_of_some_steps, 4},
      {"BranchOnAHostRandomNumber", branch_on_a_host_random_number, 4},
      {"LayerDrop", layer_drop, 8},
      {"AutocastInside", autocast_inside},
      {"AutocastInsideOfSomeSteps", autocast_inside_of_some_steps, 4},
      {"GradModeOffInside", grad_mode_off_inside},
      {"GradModeOffInSomeSteps", grad_mode_off_in_some_steps, 4},
      {"InferenceModeInsideForMetrics", inference_mode_inside_for_metrics},
      {"ThreadCountChangedBetweenSteps", thread_count_changed_between_steps, 4},
      {"DifferentCourseAtEveryStep", different_course_at_every_step, 12},
      {"GeneratorSeededInside", generator_seeded_inside, 7},
      {"GeneratorPutBackInside", generator_put_back_inside, 7},
      {"GeneratorOfItsOwn", generator_of_its_own},
  };
}

}  // namespace remat::testing
