// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/tape.h"

#include <algorithm>
#include <iterator>
#include <stdexcept>
#include <utility>

namespace remat::bench {
namespace {

// 20 GB/s of memory against the 1.25 GB/s of a 10 Gbit network.
constexpr int64_t kMemoryOverNetwork = 16;

}  // namespace

std::vector<Tensor> Tape::record(std::vector<Tensor> results, JointBackward backward) {
  for (Tensor& result : results) result.variable = new_variable();
  records_.push_back({results, std::move(backward), scope_});
  return results;
}

Tensor Tape::record(const Tensor& result, Backward backward) {
  const auto joint = [backward = std::move(backward)](const std::vector<Tensor>& grads) {
    backward(grads.at(0));
  };
  return record(std::vector<Tensor>{result}, JointBackward(joint)).at(0);
}

void Tape::give_gradient(const Tensor& of, const Tensor& grad) {
  if (!of.needs_gradient()) return;
  std::optional<Tensor>& first = gradients_[static_cast<size_t>(of.variable)];
  if (!first) {
    first = grad;
    ++storages_.at(grad.storage).held;
    return;
  }
  int32_t& held = storages_.at(first->storage).held;
  if (held == 1 && first->dense && first->storage != grad.storage) {
    first = run_one({.kind = "add_", .reads = {grad}, .updates = {*first}});
    return;
  }
  --held;
  first = run_one({.kind = "add", .reads = {*first, grad}, .creates = {floats(of.shape)}});
  ++storages_.at(first->storage).held;
}

Tensor& Tape::gradient(const Tensor& param) {
  std::optional<Tensor>& grad = gradients_[static_cast<size_t>(param.variable)];
  if (!grad) throw std::logic_error("no gradient for " + param.storage);
  return *grad;
}

void Tape::run_record(const Record& record) {
  std::vector<Tensor> grads;
  for (const Tensor& result : record.results) {
    std::optional<Tensor>& grad = gradients_[static_cast<size_t>(result.variable)];
    if (!grad) continue;
    --storages_.at(grad->storage).held;
    grads.push_back(*std::exchange(grad, std::nullopt));
  }
  if (grads.empty()) return;
  if (grads.size() != record.results.size()) {
    throw std::logic_error(record.scope + ": some results have no gradient");
  }
  scope_ = record.scope;
  record.backward(grads);
}

void Tape::run_backward(const Tensor& loss, int64_t bucket_bytes) {
  phase_ = Phase::backward;
  scope_ = "loss";
  unreduced_ = params_;
  give_gradient(loss, run_one({.kind = "ones_like", .creates = {floats(loss.shape)}}));
  for (size_t i = records_.size(); i-- > 0;) {
    run_record(records_[i]);
    if (bucket_bytes > 0) reduce_ready_gradients(bucket_bytes);
  }
  if (bucket_bytes > 0) reduce_ready_gradients(1);
  scope_.clear();
}

// A gradient counts as ready when it is there: parameters that are used twice are not for this.
void Tape::reduce_ready_gradients(int64_t bucket_bytes) {
  const auto is_ready = [&](const Tensor& param) {
    return gradients_[static_cast<size_t>(param.variable)].has_value();
  };
  std::vector<Tensor> bucket;
  std::copy_if(unreduced_.begin(), unreduced_.end(), std::back_inserter(bucket), is_ready);
  Call call{.kind = "c10d::allreduce_coalesced_", .once = true};
  int64_t bytes = 0;
  for (const Tensor& param : bucket) {
    call.updates.push_back(gradient(param));
    bytes += param.bytes();
  }
  if (bytes < bucket_bytes) return;
  call.moved_bytes = bytes * kMemoryOverNetwork;
  scope_ = "data_parallel";
  const std::vector<Tensor> reduced = run(call);
  for (size_t i = 0; i < bucket.size(); ++i) gradient(bucket[i]) = reduced[i];
  std::erase_if(unreduced_, is_ready);
}

Graph Tape::finish(const Tensor& loss, const StepEnd& end) {
  run_backward(loss, end.bucket_bytes);
  phase_ = Phase::optimizer;
  if (end.optimizer) end.optimizer(*this);
  builder_.output(loss.storage);
  if (!end.optimizer) {
    for (const Tensor& param : params_) builder_.output(gradient(param).storage);
  }
  return std::move(builder_).build();
}

}  // namespace remat::bench
