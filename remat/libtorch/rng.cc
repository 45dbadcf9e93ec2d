// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/rng.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <cstring>
#include <mutex>
#include <optional>

namespace remat::detail {

struct GeneratorState::Data {
  at::mt19937_data_pod engine{};
  std::optional<float> next_float;
  std::optional<double> next_double;
  at::Tensor opaque;  // devices other than the CPU
};

namespace {

bool same_engine(const at::mt19937_data_pod& a, const at::mt19937_data_pod& b) {
  return a.seed_ == b.seed_ && a.left_ == b.left_ && a.next_ == b.next_ && a.state_ == b.state_;
}

bool same_bytes(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

}  // namespace

GeneratorState GeneratorState::of(const at::Generator& generator) {
  auto data = std::make_shared<Data>();
  if (generator.device().is_cpu()) {
    auto* cpu = generator.get<at::CPUGeneratorImpl>();
    data->engine = cpu->engine().data();
    data->next_float = cpu->next_float_normal_sample();
    data->next_double = cpu->next_double_normal_sample();
  } else {
    data->opaque = generator.get_state();
  }
  GeneratorState state;
  state.data_ = std::move(data);
  return state;
}

void GeneratorState::restore(at::Generator& generator) const {
  if (generator.device().is_cpu()) {
    auto* cpu = generator.get<at::CPUGeneratorImpl>();
    at::mt19937 engine = cpu->engine();  // a fresh one would first be seeded: 1 us
    engine.set_data(data_->engine);
    cpu->set_engine(engine);
    cpu->set_next_float_normal_sample(data_->next_float);
    cpu->set_next_double_normal_sample(data_->next_double);
  } else {
    generator.set_state(data_->opaque);
  }
}

bool GeneratorState::operator==(const GeneratorState& other) const {
  const Data& a = *data_;
  const Data& b = *other.data_;
  if (a.opaque.defined() || b.opaque.defined()) {
    return a.opaque.defined() && b.opaque.defined() && same_bytes(a.opaque, b.opaque);
  }
  return same_engine(a.engine, b.engine) && a.next_float == b.next_float &&
         a.next_double == b.next_double;
}

const at::Generator& default_generator(c10::Device device) {
  return at::globalContext().defaultGenerator(device);
}

void DrawLog::add(const at::Generator& generator, const GeneratorState& before,
                  const GeneratorState& after) {
  const void* key = generator.unsafeGetGeneratorImpl();
  const auto last = last_.find(key);
  if (last == last_.end() || !(last->second == before)) {
    starts_.emplace(count_, before);
  }
  last_.insert_or_assign(key, after);
  ++count_;
}

at::Generator& DrawReplay::next(const at::Generator& generator) {
  const void* key = generator.unsafeGetGeneratorImpl();
  auto mine = private_.find(key);
  if (mine == private_.end()) {
    at::Generator shared = generator;
    std::lock_guard<std::mutex> lock(shared.mutex());
    mine = private_.emplace(key, shared.clone()).first;
  }
  const auto start = log_.starts_.find(count_++);
  if (start != log_.starts_.end()) {
    start->second.restore(mine->second);
  }
  return mine->second;
}

}  // namespace remat::detail
