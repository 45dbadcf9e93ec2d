// SPDX-License-Identifier: Apache-2.0
#include <cmath>

#include "tests/libtorch/random_statements.h"

namespace remat::testing {
namespace {

using at::Tensor;
namespace nn = torch::nn;

int64_t rows_of(int shapes, int64_t step) {
  switch (shapes) {
    case 1: return 4;
    case 2: return step % 2 == 0 ? 4 : 6;
    default: return 3 + step * 3 % 4;
  }
}

bool runs(const Statement& statement, World& world, const Register& a) {
  switch (statement.when) {
    case When::always: return true;
    case When::odd_steps: return world.step % 2 == 1;
    case When::from_step_3: return world.step >= 3;
    case When::host_coin: return world.host_uniform() < 0.5;
    case When::torch_coin: return torch::rand({}).item<float>() < 0.5F;
    case When::positive: return a.tensor.sum().item<float>() > 0;
  }
  return true;
}

double number_of(const Statement& statement, World& world, const Register& a) {
  double change = 0;
  switch (statement.change) {
    case Change::never: break;
    case Change::every_step: change = static_cast<double>(world.step); break;
    case Change::host_random: change = world.host_uniform(); break;
    case Change::read_from_tensor: change = std::tanh(a.tensor.mean().item<double>()); break;
  }
  return statement.number * (1 + change / 10);
}

// The optimizer's tensors and counts for one parameter.
void add_optimizer_state(torch::optim::Optimizer& optimizer, const std::string& name,
                         const Tensor& parameter, NamedTensors& state) {
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) {
    return;
  }
  if (const auto* sgd = dynamic_cast<torch::optim::SGDParamState*>(found->second.get())) {
    state.emplace_back("momentum of " + name, sgd->momentum_buffer());
  } else {
    const auto& adam = dynamic_cast<torch::optim::AdamParamState&>(*found->second);
    state.emplace_back("exp_avg of " + name, adam.exp_avg());
    state.emplace_back("exp_avg_sq of " + name, adam.exp_avg_sq());
    state.emplace_back("count of steps of " + name, torch::tensor(adam.step()));
  }
}

void between_steps(Between between, World& world) {
  NetImpl& net = *world.net;
  const torch::NoGradGuard no_grad;
  switch (between) {
    case Between::nothing: break;
    case Between::draws_random: world.log(torch::rand({3}).sum().item<double>()); break;
    case Between::scales_parameter: net.table.mul_(0.97); break;
    case Between::replaces_parameter_data: net.table.set_data(net.table.detach() * 0.97); break;
    case Between::replaces_buffer: net.memory = net.memory.clone(); break;
    case Between::drops_gradients:
      if (world.step % 2 == 1) {
        net.zero_grad();
      }
  }
}

}  // namespace

NetImpl::NetImpl() {
  for (int i = 0; i < 2; ++i) {
    linear[i] = register_module("linear" + std::to_string(i), nn::Linear(kWidth, kWidth));
  }
  conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 2, 3).padding(1)));
  batch_norm = register_module("batch_norm", nn::BatchNorm1d(kWidth));
  batch_norm_2d = register_module("batch_norm_2d", nn::BatchNorm2d(2));
  layer_norm = register_module("layer_norm", nn::LayerNorm(nn::LayerNormOptions({kWidth})));
  dropout = register_module("dropout", nn::Dropout(0.3));
  embedding = register_module("embedding", nn::Embedding(kWidth, kWidth));
  table = register_parameter("table", torch::randn({kWidth, kWidth}) * 0.5);
  memory = torch::randn({kMaxRows, kWidth}) * 0.1;  // may be replaced, so it is not registered
  average = register_buffer("average", linear[0]->weight.detach().clone());
}

World::World(const Setup& setup) : host(17) {
  torch::manual_seed(5);
  net = Net();
  if (setup.optimizer == Optimizer::sgd) {
    const auto options = torch::optim::SGDOptions(0.05).momentum(0.9);
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), options);
  } else if (setup.optimizer == Optimizer::adam) {
    optimizer = std::make_unique<torch::optim::Adam>(net->parameters());
  }
  if (setup.parameter_hook) {
    net->table.register_hook([this](const Tensor& gradient) {
      log(1);
      return gradient * 0.5;
    });
  }
}

void World::forget_graph() {
  loss = Tensor();
  for (Register& one : registers) {
    one = {.tensor = one.tensor.detach()};
  }
}

ProgramRun::ProgramRun(const Program& program)
    : program_(program), world_(std::make_unique<World>(program.setup)) {}

ProgramRun::~ProgramRun() = default;

Batch ProgramRun::next_batch() {
  World& world = *world_;
  if (++world.step > 0) {
    between_steps(program_.setup.between, world);
  }
  const int64_t rows = rows_of(program_.setup.shapes, world.step);
  const Tensor both = torch::randn({rows, 2 * kWidth});
  Tensor first = both.narrow(1, 0, kWidth).clone();
  Tensor second;
  switch (program_.setup.aliasing) {
    case Aliasing::nothing: second = both.narrow(1, kWidth, kWidth).clone(); break;
    case Aliasing::first_tensor: second = first; break;
    case Aliasing::half_of_first:
      first = both.narrow(1, 0, kWidth);
      second = both.narrow(1, kWidth, kWidth);
      break;
    case Aliasing::buffer: second = world.net->memory.narrow(0, 0, rows); break;
    case Aliasing::parameter: second = world.net->table.detach().narrow(0, 0, rows); break;
  }
  return {first, second, torch::randint(kWidth, {rows}, at::kLong)};
}

Batch ProgramRun::operator()(const Batch& batch) {
  World& world = *world_;
  world.batch = batch;
  const Aliasing aliasing = program_.setup.aliasing;
  world.registers = {{.tensor = batch[0]}, {.tensor = batch[1]}};
  if (aliasing == Aliasing::first_tensor || aliasing == Aliasing::half_of_first) {
    // Views of one tensor have one version: autograd takes a write to one for a write to both.
    world.registers[1].saved = world.registers[0].saved;
  } else if (aliasing != Aliasing::nothing) {
    world.registers[1] = {.tensor = batch[1] + 0.5};  // its bytes are written by updates
  }
  for (Register& held : world.held) {
    held.saved = std::make_shared<bool>(false);  // by ops of the step before, which is over
  }
  for (const Statement& statement : program_.statements) {
    const StatementKind& kind = statement_kinds()[static_cast<size_t>(statement.kind)];
    const auto at = [&](int back) -> Register& {
      const size_t count = world.registers.size();
      return world.registers[count - 1 - static_cast<size_t>(back) % count];
    };
    Register& a = at(statement.a);
    Register made = a;
    if (runs(statement, world, a)) {
      const double number = number_of(statement, world, a);
      made = kind.run({world, statement, a, at(statement.b), number});
    }
    if (kind.makes_register()) {
      world.registers.push_back(std::move(made));
      if (world.registers.size() > kRegisters) {
        world.registers.pop_front();
      }
    }
  }
  world.registers.clear();
  world.loss = Tensor();
  world.batch.clear();
  return std::exchange(world.results, {});
}

NamedTensors ProgramRun::state(const Batch& batch, const Batch& results) {
  World& world = *world_;
  NamedTensors state;
  add_numbered(state, "result", results);
  for (const auto& [name, parameter] : world.net->named_parameters().pairs()) {
    state.emplace_back(name, parameter);
    state.emplace_back("gradient of " + name, parameter.grad());
    if (world.optimizer) {
      add_optimizer_state(*world.optimizer, name, parameter, state);
    }
  }
  for (const auto& [name, buffer] : world.net->named_buffers().pairs()) {
    state.emplace_back(name, buffer);
  }
  state.emplace_back("memory", world.net->memory);
  add_numbered(state, "velocity", world.velocities);
  add_numbered(state, "held", {world.held[0].tensor, world.held[1].tensor});
  add_numbered(state, "batch", batch);
  add_numbered(state, "kept result", world.kept_results);
  state.emplace_back("generator", generator_state());
  state.emplace_back("what the host saw", torch::tensor(world.host_log, at::kDouble));
  state = cloned(std::move(state));
  if (program_.setup.keeps_results) {
    world.kept_results.insert(world.kept_results.end(), results.begin(), results.end());
  }
  return state;
}

}  // namespace remat::testing
