// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/libtorch/programs.h"

// Updates inside of the step: optimizers, clipping, accumulation, several losses and optimizers.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
namespace optim = torch::optim;
using at::Tensor;

template <typename Optimizer, typename Options>
Program optimized_by(const Options& options) {
  Classifier classifier;
  classifier.optimizer = std::make_shared<Optimizer>(classifier.net->parameters(), options);
  return classifier.program();
}

Program sgd_with_momentum() {
  return optimized_by<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01));
}

Program sgd_with_nesterov_momentum() {
  return optimized_by<optim::SGD>(optim::SGDOptions(0.1).momentum(0.9).nesterov(true));
}

Program adam() { return optimized_by<optim::Adam>(optim::AdamOptions(0.01)); }

Program adam_with_amsgrad() {
  return optimized_by<optim::Adam>(optim::AdamOptions(0.01).amsgrad(true).weight_decay(0.1));
}

Program adamw() { return optimized_by<optim::AdamW>(optim::AdamWOptions(0.01)); }

Program rmsprop() { return optimized_by<optim::RMSprop>(optim::RMSpropOptions(0.01)); }

Program rmsprop_centered_with_momentum() {
  return optimized_by<optim::RMSprop>(optim::RMSpropOptions(0.01).centered(true).momentum(0.5));
}

Program adagrad() { return optimized_by<optim::Adagrad>(optim::AdagradOptions(0.1)); }

// Calls its closure as often as it likes, and reads on the host in between.
Program lbfgs() {
  Classifier classifier(0.0);
  classifier.optimizer = std::make_shared<optim::LBFGS>(classifier.net->parameters(),
                                                        optim::LBFGSOptions(0.1).max_iter(4));
  Program program = classifier.program();
  program.optimizers.clear();
  program.step = [=, log = program.log](const Batch& batch) {
    const Tensor first = classifier.optimizer->step([&] {
      classifier.optimizer->zero_grad();
      const Tensor loss = classifier.loss(batch);
      loss.backward();
      log->push_back(1);
      return loss;
    });
    return Batch{first};
  };
  return program;
}

Program groups_with_options_of_their_own() {
  Classifier classifier;
  std::vector<Tensor> weights, others;
  for (const Tensor& parameter : classifier.net->parameters()) {
    (parameter.dim() > 1 ? weights : others).push_back(parameter);
  }
  std::vector<optim::OptimizerParamGroup> groups;
  groups.emplace_back(
      weights, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(0.01).weight_decay(0.1)));
  groups.emplace_back(
      others, std::make_unique<optim::AdamWOptions>(optim::AdamWOptions(0.02).weight_decay(0.0)));
  classifier.optimizer = std::make_shared<optim::AdamW>(groups);
  return classifier.program();
}

enum class Clip { norm, largest, value };

Program gradients_clipped(Clip clip) {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    const std::vector<Tensor> parameters = classifier.net->parameters();
    if (clip == Clip::value) {
      nn::utils::clip_grad_value_(parameters, 0.01);
    } else {
      log->push_back(nn::utils::clip_grad_norm_(
          parameters, 0.1, clip == Clip::norm ? 2.0 : std::numeric_limits<double>::infinity(),
          /*error_if_nonfinite=*/clip == Clip::norm));
    }
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program zero_grad_that_keeps_gradients(bool set_to_none) {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    classifier.optimizer->zero_grad(set_to_none);
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

// Gradients are gone when the step returns.
Program zero_grad_last() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    classifier.optimizer->step();
    classifier.optimizer->zero_grad();
    return Batch{loss.detach()};
  };
  return program;
}

Program accumulation_inside_of_the_step() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    classifier.optimizer->zero_grad();
    Tensor total = torch::zeros({});
    for (int64_t i = 0; i < 4; ++i) {
      const Tensor loss = classifier.loss({batch[0].slice(0, 8 * i, 8 * i + 8),
                                           batch[1].slice(0, 8 * i, 8 * i + 8)}) /
                          4;
      loss.backward();
      total += loss.detach();
    }
    classifier.optimizer->step();
    return Batch{total};
  };
  return program;
}

// As many parts as the batch has rows for.
Program accumulation_over_changing_numbers_of_parts() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches.clear();
  for (int64_t i = 0; i < 9; ++i) {
    program.batches.push_back(make_batch(i % 2 == 0 ? 32 : 16));
  }
  program.step = [=](const Batch& batch) {
    classifier.optimizer->zero_grad();
    Batch losses;
    for (const Tensor& rows : torch::arange(batch[0].size(0)).split(8)) {
      losses.push_back(classifier.loss({batch[0].index({rows}), batch[1].index({rows})}));
      losses.back().backward();
    }
    classifier.optimizer->step();
    return losses;
  };
  return program;
}

Program update_every_other_step() {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  program.batches = make_batches(10);
  const auto step = std::make_shared<int64_t>(0);
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    if ((*step)++ % 2 == 1) {
      classifier.optimizer->step();
      classifier.optimizer->zero_grad();
    }
    return Batch{loss};
  };
  return program;
}

Program gan_with_two_optimizers() {
  const nn::Sequential generator(nn::Linear(4, 16), nn::BatchNorm1d(16), nn::ReLU(),
                                 nn::Linear(16, kFeatures));
  const nn::Sequential critic(nn::Linear(kFeatures, 16), nn::LeakyReLU(), nn::Dropout(0.2),
                              nn::Linear(16, 1));
  const auto for_generator =
      std::make_shared<optim::Adam>(generator->parameters(), optim::AdamOptions(0.01));
  const auto for_critic =
      std::make_shared<optim::RMSprop>(critic->parameters(), optim::RMSpropOptions(0.01));
  Program program = {.batches = make_batches(7),
                     .modules = {generator.ptr(), critic.ptr()},
                     .optimizers = {for_generator, for_critic}};
  program.step = [g = generator.ptr(), c = critic.ptr(), for_generator, for_critic,
                  log = program.log](const Batch& batch) {
    const Tensor made = g->forward(torch::randn({kRows, 4}));
    for_critic->zero_grad();
    const Tensor critic_loss =
        F::softplus(-c->forward(batch[0])).mean() + F::softplus(c->forward(made.detach())).mean();
    critic_loss.backward();
    for_critic->step();

    for_generator->zero_grad();
    const Tensor generator_loss = F::softplus(-c->forward(made)).mean();
    generator_loss.backward();
    for_generator->step();
    log->push_back(critic_loss.item<double>());
    return Batch{critic_loss, generator_loss, made.detach()};
  };
  return program;
}

Program several_losses_with_several_backwards() {
  const Classifier classifier;
  const nn::Linear head(Classifier::kClasses, 2);
  const auto optimizer = std::make_shared<optim::SGD>(head->parameters(), 0.1);
  Program program = classifier.program();
  program.modules.push_back(head.ptr());
  program.optimizers.push_back(optimizer);
  program.step = [=, head = head.ptr()](const Batch& batch) {
    classifier.optimizer->zero_grad();
    optimizer->zero_grad();
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor first = F::cross_entropy(logits, batch[1]);
    const Tensor second = head->forward(logits.tanh()).square().mean();
    const Tensor third = classifier.net->parameters()[0].abs().sum() * 0.01;
    first.backward({}, /*retain_graph=*/true);
    second.backward();
    third.backward();
    classifier.optimizer->step();
    optimizer->step();
    return Batch{first, second, third};
  };
  return program;
}

// As a gradient scaler does: the scale follows from what was found, and some updates are left out.
Program scaled_loss_with_updates_left_out() {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  program.batches = make_batches(10);
  for (const size_t i : {2, 6}) {
    program.batches[i][0][0][0] = std::numeric_limits<float>::infinity();
  }
  classifier.net->eval();  // running statistics would become infinite
  const auto scale = std::make_shared<double>(8);
  program.step = [=, log = program.log](const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss({batch[0] * 2, batch[1]});
    (loss * *scale).backward();
    bool finite = true;
    for (const Tensor& parameter : classifier.net->parameters()) {
      finite = finite && parameter.grad().isfinite().all().item<bool>();
      parameter.grad().div_(*scale);
    }
    if (finite) {
      classifier.optimizer->step();
    }
    *scale *= finite ? 1.25 : 0.5;
    log->push_back(*scale);
    return Batch{loss};
  };
  return program;
}

// Twice forward and backward, the second at weights that are moved and put back.
Program sharpness_aware_update() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    const std::vector<Tensor> parameters = classifier.net->parameters();
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    std::vector<Tensor> moves;
    {
      const at::NoGradGuard no_grad;
      std::vector<Tensor> norms;
      for (const Tensor& parameter : parameters) norms.push_back(parameter.grad().norm());
      const Tensor norm = torch::stack(norms).norm();
      for (const Tensor& parameter : parameters) {
        moves.push_back(parameter.grad() * (0.05 / (norm + 1e-12)));
        parameter.add_(moves.back());
      }
    }
    classifier.optimizer->zero_grad();
    classifier.loss(batch).backward();
    {
      const at::NoGradGuard no_grad;
      for (size_t i = 0; i < parameters.size(); ++i) parameters[i].sub_(moves[i]);
    }
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

// Written by hand, with one op over all parameters.
Program update_with_foreach_ops() {
  const Classifier classifier;
  Program program = classifier.program();
  for (const Tensor& parameter : classifier.net->parameters()) {
    program.kept->push_back(torch::zeros_like(parameter));
  }
  program.step = [=, kept = program.kept](const Batch& batch) {
    const std::vector<Tensor> parameters = classifier.net->parameters();
    const Tensor loss = classifier.loss(batch);
    const std::vector<Tensor> gradients = torch::autograd::grad({loss}, parameters);
    const at::NoGradGuard no_grad;
    at::_foreach_mul_(*kept, 0.9);
    at::_foreach_add_(*kept, gradients, 1.0);
    at::_foreach_add_(parameters, *kept, -0.05);
    return Batch{loss};
  };
  return program;
}

Program weights_reset_now_and_then() {
  const Classifier classifier(0.25, 0.9);
  Program program = classifier.program();
  program.batches = make_batches(10);
  const auto step = std::make_shared<int64_t>(0);
  program.step = [=](const Batch& batch) {
    if ((*step)++ % 4 == 3) {
      const at::NoGradGuard no_grad;
      nn::init::kaiming_uniform_(classifier.net->parameters()[0]);
      nn::init::zeros_(classifier.net->parameters()[1]);
    }
    return classifier.update(classifier.loss(batch));
  };
  return program;
}

}  // namespace

std::vector<ProgramCase> update_programs() {
  return {
      {"SgdWithMomentum", sgd_with_momentum},
      {"SgdWithNesterovMomentum", sgd_with_nesterov_momentum},
      {"Adam", adam},
      {"AdamWithAmsgrad", adam_with_amsgrad},
      {"AdamW", adamw},
      {"RMSprop", rmsprop},
      {"RMSpropCenteredWithMomentum", rmsprop_centered_with_momentum},
      {"Adagrad", adagrad},
      {"Lbfgs", lbfgs, 7},
      {"GroupsWithOptionsOfTheirOwn", groups_with_options_of_their_own},
      {"GradientsClippedByNorm", [] { return gradients_clipped(Clip::norm); }},
      {"GradientsClippedByLargest", [] { return gradients_clipped(Clip::largest); }},
      {"GradientsClippedByValue", [] { return gradients_clipped(Clip::value); }},
      {"ZeroGradThatKeepsGradients", [] { return zero_grad_that_keeps_gradients(false); }},
      {"ZeroGradThatDropsGradients", [] { return zero_grad_that_keeps_gradients(true); }},
      {"ZeroGradLast", zero_grad_last, 1},
      {"AccumulationInsideOfTheStep", accumulation_inside_of_the_step},
      {"AccumulationOverChangingNumbersOfParts", accumulation_over_changing_numbers_of_parts, 4},
      {"UpdateEveryOtherStep", update_every_other_step, 4},
      {"GanWithTwoOptimizers", gan_with_two_optimizers},
      {"SeveralLossesWithSeveralBackwards", several_losses_with_several_backwards},
      {"ScaledLossWithUpdatesLeftOut", scaled_loss_with_updates_left_out, 5},
      {"SharpnessAwareUpdate", sharpness_aware_update},
      {"UpdateWithForeachOps", update_with_foreach_ops, 1},
      {"WeightsResetNowAndThen", weights_reset_now_and_then, 4},
  };
}

}  // namespace remat::testing
