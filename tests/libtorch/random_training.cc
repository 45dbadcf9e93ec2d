// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/random_statements.h"

// Statements of random programs around forward: what begins a step, losses, backward, updates,
// results.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

// Bounded, so that six steps of a random program do not end in infinities.
Tensor loss_of(const Call& call) {
  const Tensor x = call.saving(call.a);
  switch (choice(call, 4)) {
    case 0: return F::cross_entropy(x, call.world.batch[2]);
    case 1: return torch::tanh(x).pow(2).mean();
    case 2: return F::smooth_l1_loss(x, call.b.tensor.detach().clone());
    default: return torch::sigmoid(x).sum() * 0.0625;
  }
}

// Of the gradient by a register's values: double backward.
Tensor gradient_penalty(const Call& call) {
  const Tensor x = call.a.tensor.detach().clone().requires_grad_();
  const Tensor y = torch::tanh(call.world.net->linear[choice(call, 2)]->forward(x)).sum();
  const Tensor gradient = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
  return gradient.pow(2).sum(1).add(1e-3).sqrt().sub(1).pow(2).mean();
}

void add_loss(World& world, const Tensor& loss) {
  world.loss = world.loss.defined() ? world.loss + loss : loss;
}

void backward(World& world, bool retain_graph) {
  const Tensor loss = std::exchange(world.loss, Tensor());
  if (!loss.defined() || !loss.requires_grad()) {
    return;
  }
  loss.backward({}, retain_graph);
  world.results.push_back(loss);
  if (!retain_graph) {
    world.forget_graph();
  }
}

void update_by_hand(World& world, int way, double rate) {
  const torch::NoGradGuard no_grad;
  const std::vector<Tensor> parameters = world.net->parameters();
  world.velocities.resize(parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& parameter = parameters[i];
    const Tensor& gradient = parameter.grad();
    if (!gradient.defined()) {
      continue;
    }
    switch (way) {
      case 0: parameter.add_(gradient, -rate); break;
      case 1: parameter.sub_(gradient * rate); break;
      case 2: parameter.copy_(parameter - rate * gradient); break;
      case 3: parameter.data().mul_(1 - rate).add_(gradient, -rate); break;
      default:
        if (!world.velocities[i].defined()) {
          world.velocities[i] = torch::zeros_like(parameter);
        }
        world.velocities[i].mul_(0.9).add_(gradient);
        parameter.add_(world.velocities[i], -rate);
    }
  }
}

void update(const Call& call) {
  World& world = call.world;
  world.forget_graph();
  const double rate = 0.05 * call.number;
  if (world.optimizer) {
    for (torch::optim::OptimizerParamGroup& group : world.optimizer->param_groups()) {
      group.options().set_lr(rate);
    }
    world.optimizer->step();
  } else {
    update_by_hand(world, choice(call, 5), rate);
  }
}

const StatementKind kTrainingKinds[] = {
    {Role::begin, 3, "drop gradients",
     [](const Call& call) { return call.world.net->zero_grad(true), nothing(); }},
    {Role::begin, 1, "set gradients to zero",
     [](const Call& call) { return call.world.net->zero_grad(false), nothing(); }},
    {Role::begin, 1, "net.train(step % 2 == {c%2})",
     [](const Call& call) {
       call.world.forget_graph();
       call.world.net->train(call.world.step % 2 == choice(call, 2));
       return nothing();
     }},
    {Role::begin, 1, "linear0.weight.requires_grad_(step % 3 != 2)",
     [](const Call& call) {
       call.world.forget_graph();
       call.world.net->linear[0]->weight.requires_grad_(call.world.step % 3 != 2);
       return nothing();
     }},
    {Role::loss, 5,
     "loss += {c|cross_entropy({a}, labels)|tanh({a})^2.mean()|smooth_l1({a}, {b})|"
     "sigmoid({a}).sum()}",
     [](const Call& call) { return add_loss(call.world, loss_of(call)), nothing(); }},
    {Role::loss, 1,
     "loss += {n} * {c|cross_entropy({a}, labels)|tanh({a})^2.mean()|smooth_l1({a}, {b})|"
     "sigmoid({a}).sum()}",
     [](const Call& call) { return add_loss(call.world, loss_of(call) * call.number), nothing(); }},
    {Role::loss, 1, "loss += gradient penalty(linear{c%2}, {a})",
     [](const Call& call) { return add_loss(call.world, gradient_penalty(call)), nothing(); }},
    {Role::backward, 3, "loss.backward()",
     [](const Call& call) { return backward(call.world, false), nothing(); }},
    {Role::backward, 1, "loss.backward(retain_graph)",
     [](const Call& call) { return backward(call.world, true), nothing(); }},
    {Role::update, 5,
     "update with rate 0.05 * {n} (by hand: {c|p.add_|p.sub_|p.copy_|p.data|velocity})",
     [](const Call& call) { return update(call), nothing(); }},
    {Role::update, 2, "log(clip_grad_norm_(parameters, {n}))",
     [](const Call& call) {
       const auto parameters = call.world.net->parameters();
       call.world.log(torch::nn::utils::clip_grad_norm_(parameters, call.number));
       return nothing();
     }},
    {Role::update, 1, "clip_grad_value_(parameters, 0.01)",
     [](const Call& call) {
       torch::nn::utils::clip_grad_value_(call.world.net->parameters(), 0.01);
       return nothing();
     }},
    {Role::update, 1, "average = 0.9 average + 0.1 linear0.weight",
     [](const Call& call) {
       const torch::NoGradGuard no_grad;
       call.world.net->average.lerp_(call.world.net->linear[0]->weight, 0.1);
       return nothing();
     }},
    {Role::result, 2, "return {a} as well",
     [](const Call& call) { return call.world.results.push_back(call.a.tensor), nothing(); }},
    {Role::result, 1, "return {a}.detach()[:, {c%8}] as well",
     [](const Call& call) {
       call.world.results.push_back(call.a.tensor.detach().select(1, choice(call, kWidth)));
       return nothing();
     }},
};

}  // namespace

std::span<const StatementKind> training_kinds() { return kTrainingKinds; }

}  // namespace remat::testing
