// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/fault_trainer.h"

namespace remat::testing {
namespace {

using at::Tensor;
namespace nn = torch::nn;
namespace F = torch::nn::functional;

constexpr int64_t kRows = 6;
constexpr int64_t kWidth = 8;
constexpr int64_t kOutOfRange = 1000;

void set_generator_state(const Tensor& state) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  generator.set_state(state);
}

size_t index_of(Site site) { return static_cast<size_t>(site); }

}  // namespace

std::string name_of(Site site) {
  static constexpr const char* kNames[] = {"embedding", "forward_rows", "target", "hook_rows",
                                           "update_rows"};
  return kNames[index_of(site)];
}

FaultNetImpl::FaultNetImpl() {
  embedding = register_module("embedding", nn::Embedding(10, kWidth));
  first = register_module("first", nn::Linear(kWidth, kWidth));
  norm = register_module("norm", nn::BatchNorm1d(kWidth));
  last = register_module("last", nn::Linear(kWidth, 3));
  memory = register_buffer("memory", torch::zeros({kRows, kWidth}));
}

FaultTrainer::FaultTrainer(Reads reads) : reads_(reads) {
  torch::manual_seed(11);
  net_ = FaultNet();
  std::vector<Tensor> by_optimizer = net_->embedding->parameters();
  for (const Tensor& parameter : net_->first->parameters()) {
    by_optimizer.push_back(parameter);
  }
  optimizer_.emplace(by_optimizer, torch::optim::SGDOptions(0.1).momentum(0.9));
  for (const Tensor& parameter : net_->parameters()) {
    parameter.register_hook([this](const Tensor&) { tick(); });
  }
  generator_ = generator_state();
}

void FaultTrainer::tick() {
  if (statement_++ == throw_at_) {
    throw UserError("thrown at statement " + std::to_string(throw_at_));
  }
}

Tensor FaultTrainer::loss_of(const Batch& batch) {
  tick();
  Tensor x = net_->embedding->forward(batch[index_of(Site::embedding)]);
  tick();
  x = torch::tanh(net_->first->forward(x));
  tick();
  if (takes_detour) {
    x = x * torch::sigmoid(x);
    tick();
  }
  if (reads_ == Reads::in_forward) {
    host_log_.push_back(x.abs().sum().item<double>());
    tick();
  }
  x = x.index_select(0, batch[index_of(Site::forward_rows)]);
  tick();
  x = net_->norm->forward(x);
  tick();
  {
    const torch::NoGradGuard no_grad;
    net_->memory.mul_(0.9).add_(x, 0.1);
  }
  tick();
  x = F::dropout(x, F::DropoutFuncOptions().p(0.3));
  tick();
  x.narrow(1, 0, 4).mul_(0.5);
  tick();
  const Tensor hook_rows = batch[index_of(Site::hook_rows)];
  x.register_hook([this, hook_rows](const Tensor& gradient) {
    tick();
    return gradient.index_select(0, hook_rows);
  });
  x = net_->last->forward(torch::relu(x + net_->memory));
  tick();
  return F::cross_entropy(x, batch[index_of(Site::target)]);
}

void FaultTrainer::update(const Batch& batch) {
  optimizer_->step();
  tick();
  const torch::NoGradGuard no_grad;
  std::vector<Tensor> by_hand = net_->norm->parameters();
  for (const Tensor& parameter : net_->last->parameters()) {
    by_hand.push_back(parameter);
  }
  velocities_.resize(by_hand.size());
  for (size_t i = 0; i < by_hand.size(); ++i) {
    Tensor& velocity = velocities_[i];
    if (!velocity.defined()) {
      velocity = torch::zeros_like(by_hand[i]);
    }
    velocity.mul_(0.9).add_(by_hand[i].grad());
    tick();
    by_hand[i].add_(velocity, -0.1);
    tick();
  }
  net_->memory.add_(net_->first->weight.index_select(0, batch[index_of(Site::update_rows)]), 0.01);
  tick();
}

Batch FaultTrainer::operator()(const Batch& batch) {
  tick();
  net_->zero_grad();
  const Tensor loss = loss_of(batch);
  tick();
  if (reads_ == Reads::the_loss) {
    host_log_.push_back(loss.item<double>());
    tick();
  }
  if (catches) {
    try {
      loss.backward();
    } catch (const UserError&) {
      host_log_.push_back(-1);
      return {loss};
    }
  } else {
    loss.backward();
  }
  tick();
  update(batch);
  return {loss};
}

std::optional<std::string> FaultTrainer::run(const StepCall& step, const Batch& batch) {
  statement_ = 0;
  results_.clear();
  host_log_.clear();
  std::optional<std::string> thrown;
  set_generator_state(generator_);
  try {
    results_ = step(batch);
  } catch (const std::exception& error) {
    thrown = first_line(error);
  }
  generator_ = generator_state();
  throw_at_ = -1;
  return thrown;
}

std::optional<std::string> FaultTrainer::run_plainly(const Batch& batch) {
  return run([this](const Batch& given) { return (*this)(given); }, batch);
}

NamedTensors FaultTrainer::lasting_state() {
  NamedTensors state;
  for (const auto& [name, parameter] : net_->named_parameters().pairs()) {
    state.emplace_back(name, parameter);
    const auto found = optimizer_->state().find(parameter.unsafeGetTensorImpl());
    if (found != optimizer_->state().end()) {
      const auto& of_parameter = dynamic_cast<torch::optim::SGDParamState&>(*found->second);
      state.emplace_back("momentum of " + name, of_parameter.momentum_buffer());
    }
  }
  for (const auto& [name, buffer] : net_->named_buffers().pairs()) {
    state.emplace_back(name, buffer);
  }
  add_numbered(state, "velocity", velocities_);
  state.emplace_back("generator", generator_);
  return cloned(std::move(state));
}

NamedTensors FaultTrainer::whole_state() {
  NamedTensors state;
  for (const auto& [name, parameter] : net_->named_parameters().pairs()) {
    state.emplace_back("gradient of " + name, parameter.grad());
  }
  add_numbered(state, "result", results_);
  state.emplace_back("what the host saw", torch::tensor(host_log_, at::kDouble));
  state.emplace_back("statements that ran", torch::tensor(statement_));
  state = cloned(std::move(state));
  const NamedTensors lasting = lasting_state();
  state.insert(state.end(), lasting.begin(), lasting.end());
  return state;
}

Batch fault_batch(int number, std::optional<Site> bad) {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(100 + number);
  const int64_t limits[] = {10, kRows, 3, kRows, kWidth};
  Batch batch;
  for (const Site site : kSites) {
    const int64_t limit = limits[index_of(site)];
    batch.push_back(torch::randint(limit, {kRows}, generator, torch::dtype(at::kLong)));
    if (site == bad) {
      batch.back()[kRows - 1] = kOutOfRange;
    }
  }
  return batch;
}

}  // namespace remat::testing
