// SPDX-License-Identifier: Apache-2.0
#include <torch/csrc/autograd/function_hook.h>

#include "remat/libtorch/checkpoint.h"
#include "tests/libtorch/programs.h"

// Autograd beyond a single backward: custom functions, hooks, gradients of gradients, checkpoints.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
namespace nn = torch::nn;
using at::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Tensor gradient_of(const Tensor& value, const Tensor& variable, bool create_graph) {
  return torch::autograd::grad({value}, {variable}, /*grad_outputs=*/{}, /*retain_graph=*/true,
                               create_graph)[0];
}

Program gradient_penalty_by_double_backward() {
  const Classifier classifier(0.0);
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor x = batch[0].detach().requires_grad_();
    const Tensor logits = classifier.net->forward(x);
    const Tensor slope = gradient_of(logits.logsumexp(1).sum(), x, /*create_graph=*/true);
    return F::cross_entropy(logits, batch[1]) + (slope.norm(2, 1) - 1).square().mean();
  });
}

Program interpolated_gradient_penalty() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor share = torch::rand({kRows, 1});
    const Tensor x = (share * batch[0] + (1 - share) * batch[0].flip(0)).requires_grad_();
    const Tensor slope = gradient_of(classifier.net->forward(x).sum(), x, /*create_graph=*/true);
    return classifier.loss(batch) + 10 * (slope.square().sum(1).sqrt() - 1).square().mean();
  });
}

Program backward_with_create_graph() {
  const Classifier classifier(0.0);
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward({}, /*retain_graph=*/true, /*create_graph=*/true);
    Tensor curvature = torch::zeros({});
    for (const Tensor& parameter : classifier.net->parameters()) {
      curvature = curvature + parameter.grad().square().sum();
    }
    const std::vector<Tensor> seconds =
        torch::autograd::grad({curvature}, classifier.net->parameters());
    size_t i = 0;
    for (const Tensor& parameter : classifier.net->parameters()) {
      parameter.mutable_grad() = parameter.grad().detach() + 0.01 * seconds[i++];
    }
    classifier.optimizer->step();
    return Batch{loss, curvature};
  };
  return program;
}

// One step of learning on one half, judged on the other: the gradient goes through the update.
Program learning_to_learn() {
  const Tensor weight = torch::randn({kFeatures, 3}).requires_grad_();
  const Tensor rate = torch::full({}, 0.1).requires_grad_();
  const auto optimizer =
      std::make_shared<torch::optim::Adam>(std::vector<Tensor>{weight, rate}, 0.01);
  Program program = {.batches = make_batches(7), .optimizers = {optimizer}};
  *program.kept = {weight, rate};
  program.step = [=](const Batch& batch) {
    const auto x = batch[0].chunk(2), y = batch[1].chunk(2);
    optimizer->zero_grad();
    const Tensor inner = F::cross_entropy(x[0].mm(weight), y[0]);
    const Tensor moved = weight - rate * gradient_of(inner, weight, /*create_graph=*/true);
    const Tensor loss = F::cross_entropy(x[1].mm(moved), y[1]);
    loss.backward();
    optimizer->step();
    return Batch{inner, loss, weight.grad(), rate.grad()};
  };
  return program;
}

// The batch itself is moved along its gradient.
Program adversarial_examples() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    Tensor x = batch[0];
    x.requires_grad_();
    classifier.loss({x, batch[1]}).backward();
    const Tensor moved = (x + 0.1 * x.grad().sign()).detach();
    x.mutable_grad() = Tensor();
    x.requires_grad_(false);
    return classifier.update(classifier.loss({moved, batch[1]}));
  };
  return program;
}

Program retained_graph_used_twice() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=](const Batch& batch) {
    classifier.optimizer->zero_grad();
    const Tensor loss = classifier.loss(batch);
    loss.backward({}, /*retain_graph=*/true);
    loss.backward();
    classifier.optimizer->step();
    return Batch{loss};
  };
  return program;
}

Program tied_weights() {
  const nn::Embedding embedding(12, 8);
  const nn::GRU gru(nn::GRUOptions(8, 8));
  const auto parameters = std::make_shared<std::vector<Tensor>>(gru->parameters());
  parameters->push_back(embedding->weight);
  const auto optimizer = std::make_shared<torch::optim::AdamW>(*parameters, 0.01);
  Program program = {.modules = {embedding.ptr(), gru.ptr()}, .optimizers = {optimizer}};
  for (int64_t i = 0; i < 7; ++i) {
    program.batches.push_back(
        {torch::randint(12, {5, 6}, at::kLong), torch::randint(12, {5, 6}, at::kLong)});
  }
  program.step = [e = embedding.ptr(), g = gru.ptr(), optimizer](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor hidden = std::get<0>(g->forward(e->forward(batch[0])));
    const Tensor logits = F::linear(hidden, e->weight);
    const Tensor loss = F::cross_entropy(logits.view({-1, 12}), batch[1].view({-1}));
    loss.backward();
    optimizer->step();
    return Batch{loss};
  };
  return program;
}

// A straight-through sign: saves a tensor and a number, counts its calls on the host.
struct StraightSign : torch::autograd::Function<StraightSign> {
  static Tensor forward(AutogradContext* context, const Tensor& x, double width,
                        std::vector<double>* log) {
    context->save_for_backward({x});
    context->saved_data["width"] = width;
    context->saved_data["log"] = reinterpret_cast<int64_t>(log);
    log->push_back(width);
    return x.sign();
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const Tensor x = context->get_saved_variables()[0];
    reinterpret_cast<std::vector<double>*>(context->saved_data["log"].toInt())->push_back(-1);
    const double width = context->saved_data["width"].toDouble();
    return {gradients[0] * (x.abs() < width).to(at::kFloat), Tensor(), Tensor()};
  }
};

Program custom_autograd_function() {
  const Classifier classifier;
  Program program = classifier.program();
  program.step = [=, log = program.log](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const double width = 0.5 + 0.1 * static_cast<double>(log->size());
    const Tensor signs = StraightSign::apply(logits, width, log.get());
    return classifier.update(F::cross_entropy(logits + signs, batch[1]));
  };
  return program;
}

Program tensor_hooks() {
  const Classifier classifier;
  Program program = classifier.program();
  for (const Tensor& parameter : classifier.net->parameters()) {
    parameter.register_hook([log = program.log](const Tensor& gradient) {
      log->push_back(static_cast<double>(gradient.numel()));
      return gradient * 0.5;
    });
  }
  program.step = [=, log = program.log, kept = program.kept](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    logits.register_hook([=](const Tensor& gradient) {
      *kept = {gradient};
      log->push_back(gradient.abs().max().item<double>());  // read in the middle of backward
      return gradient.clamp(-0.01, 0.01);
    });
    logits.retain_grad();
    Batch results = classifier.update(F::cross_entropy(logits, batch[1]));
    results.push_back(logits.grad());
    return results;
  };
  return program;
}

// Updates each parameter as soon as its gradient is there, and drops that.
struct UpdateHook : torch::autograd::PostAccumulateGradHook {
  explicit UpdateHook(std::shared_ptr<std::vector<double>> log_of_it) : log(std::move(log_of_it)) {}
  void operator()(const torch::autograd::Variable& parameter) override {
    const at::NoGradGuard no_grad;
    Tensor(parameter).add_(parameter.grad(), -0.1);
    Tensor(parameter).mutable_grad() = Tensor();
    log->push_back(static_cast<double>(parameter.numel()));
  }
  std::shared_ptr<std::vector<double>> log;
};

Program update_in_post_accumulate_grad_hooks() {
  const Classifier classifier;
  Program program = classifier.program();
  for (const Tensor& parameter : classifier.net->parameters()) {
    torch::autograd::impl::set_post_acc_grad_hooks(parameter,
                                                   std::make_unique<UpdateHook>(program.log));
  }
  program.step = [=](const Batch& batch) {
    const Tensor loss = classifier.loss(batch);
    loss.backward();
    return Batch{loss};
  };
  return program;
}

Program checkpoint_inside() {
  const Classifier classifier;
  const nn::Sequential block(nn::Linear(kFeatures, 24), nn::Tanh(), nn::Dropout(0.2),
                             nn::Linear(24, kFeatures));
  const auto optimizer = std::make_shared<torch::optim::SGD>(block->parameters(), 0.1);
  Program program = classifier.program();
  program.modules.push_back(block.ptr());
  program.optimizers.push_back(optimizer);
  program.step = [=](const Batch& batch) {
    optimizer->zero_grad();
    const Tensor x = remat::checkpoint(block, batch[0]);
    const Tensor y = remat::checkpoint(block, x);
    const Batch results = classifier.update(classifier.loss({x + y, batch[1]}));
    optimizer->step();
    return results;
  };
  return program;
}

// Gradients of a sum of vectors, of some parameters only, with one that is not used.
Program gradients_asked_for_by_name() {
  const Classifier classifier;
  Program program = classifier.program();
  const Tensor unused = torch::randn({3}).requires_grad_();
  program.step = [=](const Batch& batch) {
    const std::vector<Tensor> parameters = classifier.net->parameters();
    const Tensor logits = classifier.net->forward(batch[0]);
    const std::vector<Tensor> gradients = torch::autograd::grad(
        {logits, logits.square()}, {parameters[0], parameters[4], unused},
        {torch::ones_like(logits), torch::full_like(logits, 0.5)}, /*retain_graph=*/{},
        /*create_graph=*/false, /*allow_unused=*/true);
    const at::NoGradGuard no_grad;
    parameters[0].sub_(gradients[0], 0.001);
    parameters[4].sub_(gradients[1], 0.001);
    return Batch{logits.detach(), gradients[0], gradients[1], gradients[2]};
  };
  return program;
}

Program soft_choice_by_gumbel_noise() {
  const Classifier classifier;
  return with_loss(classifier, [classifier](const Batch& batch) {
    const Tensor logits = classifier.net->forward(batch[0]);
    const Tensor soft = F::gumbel_softmax(logits, F::GumbelSoftmaxFuncOptions().hard(true));
    const Tensor sampled = soft.detach().multinomial(1);
    return -(soft * F::one_hot(batch[1], 3)).sum() +
           F::cross_entropy(logits, sampled.squeeze(1)) * 0.1;
  });
}

}  // namespace

std::vector<ProgramCase> autograd_programs() {
  return {
      {"GradientPenaltyByDoubleBackward", gradient_penalty_by_double_backward},
      {"InterpolatedGradientPenalty", interpolated_gradient_penalty},
      {"BackwardWithCreateGraph", backward_with_create_graph},
      {"LearningToLearn", learning_to_learn, 3},
      {"AdversarialExamples", adversarial_examples, 3},
      {"RetainedGraphUsedTwice", retained_graph_used_twice},
      {"TiedWeights", tied_weights},
      {"CustomAutogradFunction", custom_autograd_function},
      {"TensorHooks", tensor_hooks},
      {"UpdateInPostAccumulateGradHooks", update_in_post_accumulate_grad_hooks, 1},
      {"CheckpointInside", checkpoint_inside},
      {"GradientsAskedForByName", gradients_asked_for_by_name, 1},
      {"SoftChoiceByGumbelNoise", soft_choice_by_gumbel_noise},
  };
}

}  // namespace remat::testing
