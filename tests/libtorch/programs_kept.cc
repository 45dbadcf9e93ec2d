// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/programs.h"

// What lives between steps: buffers, copies, lists, hidden states, and what the user does to
// parameters and gradients from outside.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;

Program tensors_left_behind_in_a_list() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    kept->push_back(logits.detach());
    kept->push_back(logits.softmax(1));
    const Batch results = classifier.update(F::cross_entropy(logits, batch[1]));
    kept->push_back(classifier.net->parameters()[0].grad());
    kept->push_back(batch[0]);
    return results;
  };
  return program;
}

// The last losses are used again: tensors of earlier steps come back.
Program baseline_of_earlier_losses() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    const Tensor baseline = kept->empty() ? torch::zeros({}) : torch::stack(*kept).mean();
    kept->push_back(loss.detach());
    if (kept->size() > 2) {
      kept->erase(kept->begin());
    }
    return classifier.update((loss - baseline).square());
  };
  return program;
}

Program moving_average_of_the_weights() {
  const Classifier classifier;
  Program program = classifier.program();
  *program.kept = {};
  for (const Tensor& parameter : classifier.net->parameters()) {
    program.kept->push_back(parameter.detach().clone());
  }
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Batch results = classifier.update(classifier.loss(batch));
    const at::NoGradGuard no_grad;
    const std::vector<Tensor> parameters = classifier.net->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      (*kept)[i].mul_(0.9).add_(parameters[i], 0.1);
    }
    return results;
  };
  return program;
}

// The copy is a new tensor each time.
Program moving_average_that_is_replaced() {
  const Classifier classifier;
  Program program = classifier.program();
  *program.kept = {classifier.net->parameters()[0].detach().clone()};
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor pull = (classifier.net->parameters()[0] - kept->front()).square().sum();
    const Batch results = classifier.update(classifier.loss(batch) + 0.1 * pull);
    kept->front() = 0.9 * kept->front() + 0.1 * classifier.net->parameters()[0].detach();
    return results;
  };
  return program;
}

struct ActNormImpl : nn::Module {
  ActNormImpl() {
    scale = register_buffer("scale", torch::ones({kFeatures}));
    initialised = register_buffer("initialised", torch::zeros({}, at::kBool));
  }
  Tensor forward(const Tensor& x) {
    if (!initialised.item<bool>()) {
      scale.copy_(x.std(0));
      initialised.fill_(true);
    }
    return x / scale;
  }
  Tensor scale, initialised;
};

Program buffer_initialised_from_the_first_batch() {
  const Classifier classifier;
  const auto norm = std::make_shared<ActNormImpl>();
  Program program = with_loss(classifier, [=](const Batch& batch) {
    return classifier.loss({norm->forward(batch[0]), batch[1]});
  });
  program.modules.push_back(norm);
  return program;
}

// Not a buffer but a tensor that comes to be in the first step, by a flag of the host.
Program held_tensor_made_in_the_first_step() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, kept = program.kept](const Batch& batch) {
    if (kept->empty()) {
      kept->push_back(batch[0].mean(0));
      kept->push_back(torch::arange(kFeatures, at::kFloat).sin());
    }
    return classifier.update(
        classifier.loss({batch[0] - kept->at(0) + 0.1 * kept->at(1), batch[1]}));
  };
  return program;
}

Program queue_of_earlier_features() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  *program.kept = {torch::randn({3 * kRows, Classifier::kClasses})};
  const auto step = std::make_shared<int64_t>(0);
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor keys = classifier.net->forward(batch[0]);
    Tensor& queue = kept->front();
    const Tensor similarity = keys.mm(queue.clone().t()).logsumexp(1).mean();
    const Batch results = classifier.update(F::cross_entropy(keys, batch[1]) + 0.01 * similarity);
    const int64_t first = ((*step)++ % 3) * kRows;
    queue.slice(0, first, first + kRows).copy_(keys.detach());
    return results;
  };
  return program;
}

Program hidden_state_carried_on() {
  const nn::GRU gru(nn::GRUOptions(4, kHidden));
  const auto optimizer = std::make_shared<torch::optim::SGD>(gru->parameters(), 0.1);
  Program program = {.modules = {gru.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 7; ++i) {
    program.batches.push_back({torch::randn({5, 6, 4})});
  }
  *program.kept = {torch::zeros({1, 6, kHidden})};
  program.step = [gru = gru.ptr(), optimizer, kept = program.kept](const Batch& batch) {
    optimizer->zero_grad();
    const auto [out, hidden] = gru->forward(batch[0], kept->front());
    const Tensor loss = out.square().mean();
    loss.backward();
    optimizer->step();
    kept->front() = hidden.detach();
    return Batch{loss};
  };
  return program;
}

// The same through the results: what a step returns is the next one's batch.
Program results_become_the_next_batch() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    Batch results = classifier.update(loss);
    results.push_back(batch[0] * 0.5 + 0.1 * loss.detach());
    return results;
  };
  program.chain = [](const Batch& results, Batch& batch) { batch[0] = results[1]; };
  return program;
}

Program backward_outside_of_the_step() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, kept = program.kept](const Batch& batch) {
    *kept = {classifier.loss(batch)};
    return Batch{kept->front() * 2};
  };
  program.before = [=, kept = program.kept](int64_t step) {
    if (step > 0) {
      classifier.update(kept->front());
    }
  };
  return program;
}

Program accumulation_outside_of_the_step() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(12);
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch) / 3;
    loss.backward();
    return Batch{loss};
  };
  program.before = [=](int64_t step) {
    if (step > 0 && step % 3 == 0) {
      classifier.optimizer->step();
      classifier.optimizer->zero_grad();
    }
  };
  return program;
}

Program gradients_never_cleared() {
  const Classifier classifier(0.25, 0.5);
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program parameters_frozen_and_unfrozen() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(10);
  program.before = [=](int64_t step) {
    for (size_t i = 0; i < 2; ++i) {
      classifier.net->parameters()[i].set_requires_grad(step % 3 != 1);
    }
  };
  return program;
}

Program parameter_replaced_by_set_data() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  program.before = [=](int64_t step) {
    Tensor weight = classifier.net->parameters()[0];
    if (step == 3) {
      weight.set_data(torch::randn_like(weight));
    } else if (step == 5) {
      weight.set_data(weight.detach().t().contiguous().t());  // other strides
    }
  };
  return program;
}

Program parameters_changed_between_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.before = [=](int64_t step) {
    const at::NoGradGuard no_grad;
    for (const Tensor& parameter : classifier.net->parameters()) {
      parameter.mul_(1.0 - 0.01 * static_cast<double>(step));
    }
    classifier.net->buffers()[0].data_ptr<float>()[0] = static_cast<float>(step);
  };
  return program;
}

Program buffers_resized_between_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  *program.kept = {torch::randn({2, Classifier::kClasses})};
  program.before = [kept = program.kept](int64_t step) {
    kept->front()
        .resize_({2 + step % 2, Classifier::kClasses})
        .fill_(0.1 * static_cast<double>(step));
  };
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor distance = torch::cdist(logits, kept->front()).amin(1).mean();
    const Batch results = classifier.update(F::cross_entropy(logits, batch[1]) + 0.1 * distance);
    kept->front().add_(logits.detach().mean());
    return results;
  };
  return program;
}

Program list_that_grows_between_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  *program.kept = {torch::randn({1, kFeatures})};
  program.step = [=, kept = program.kept](const Batch& batch) {
    const Tensor prototypes = torch::cat(*kept);
    const Tensor loss =
        classifier.loss({batch[0] - prototypes.mean(0) + 0.1 * prototypes.sum(), batch[1]});
    kept->push_back(batch[0].slice(0, 0, 1).clone());
    return classifier.update(loss);
  };
  return program;
}

Program gradient_set_by_hand() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    const std::vector<Tensor> parameters = classifier.net->parameters();
    const Tensor loss = classifier.loss(batch);
    const std::vector<Tensor> gradients = torch::autograd::grad({loss}, parameters);
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i].mutable_grad() = gradients[i] * 0.5 + 0.001 * parameters[i].detach();
    }
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program gradient_set_by_hand_between_steps() {
  const Classifier classifier;
  Program program = classifier.program();
  program.batches = make_batches(9);
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    classifier.optimizer->step();
    return Batch{loss};
  };
  program.before = [=](int64_t step) {
    Tensor weight = classifier.net->parameters()[0];
    if (step % 3 == 0) {
      weight.mutable_grad() = torch::full_like(weight, 0.1);
    } else if (step % 3 == 1) {
      weight.mutable_grad() = Tensor();
    } else {
      weight.mutable_grad() = torch::ones({kFeatures, kHidden}).t();
    }
  };
  return program;
}

Program noise_on_the_weights() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    {
      const at::NoGradGuard no_grad;
      for (Tensor& parameter : classifier.net->parameters()) {
        parameter.add_(torch::randn_like(parameter), 0.01);
      }
    }
    return classifier.update(classifier.loss(batch));
  };
  return program;
}

}  // namespace

std::vector<ProgramCase> kept_programs() {
  return {
      {"TensorsLeftBehindInAList", tensors_left_behind_in_a_list},
      {"BaselineOfEarlierLosses", baseline_of_earlier_losses, 4},
      {"MovingAverageOfTheWeights", moving_average_of_the_weights},
      {"MovingAverageThatIsReplaced", moving_average_that_is_replaced},
      {"BufferInitialisedFromTheFirstBatch", buffer_initialised_from_the_first_batch},
      {"HeldTensorMadeInTheFirstStep", held_tensor_made_in_the_first_step},
      {"QueueOfEarlierFeatures", queue_of_earlier_features, 5},
      {"HiddenStateCarriedOn", hidden_state_carried_on},
      {"ResultsBecomeTheNextBatch", results_become_the_next_batch},
      {"BackwardOutsideOfTheStep", backward_outside_of_the_step},
      {"AccumulationOutsideOfTheStep", accumulation_outside_of_the_step, 3},
      {"GradientsNeverCleared", gradients_never_cleared},
      {"ParametersFrozenAndUnfrozen", parameters_frozen_and_unfrozen, 5},
      {"ParameterReplacedBySetData", parameter_replaced_by_set_data, 4},
      {"ParametersChangedBetweenSteps", parameters_changed_between_steps},
      {"BuffersResizedBetweenSteps", buffers_resized_between_steps, 5},
      {"ListThatGrowsBetweenSteps", list_that_grows_between_steps, 7},
      {"GradientSetByHand", gradient_set_by_hand},
      {"GradientSetByHandBetweenSteps", gradient_set_by_hand_between_steps, 5},
      {"NoiseOnTheWeights", noise_on_the_weights},
  };
}

}  // namespace remat::testing
