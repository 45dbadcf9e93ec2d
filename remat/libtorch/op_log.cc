// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/op_log.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <optional>

#include "remat/core/error.h"
#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"

namespace remat::detail {
namespace {

thread_local OpRun* innermost = nullptr;

// The arguments on the stack are ours to change; ArrayRef only promises not to.
c10::IValue& slot(Values values, size_t index) { return const_cast<c10::IValue&>(values[index]); }

const c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl() : nullptr;
}

at::Tensor copy_bytes(const c10::Storage& storage) {
  InterceptPause pause;
  at::AutoDispatchBelowADInplaceOrView below;
  at::Tensor bytes = at::empty({0}, at::TensorOptions(at::kByte).device(storage.device()));
  bytes.set_(storage, 0, {static_cast<int64_t>(storage.nbytes())}, {1});
  return bytes.clone();
}

// The same tensor without its autograd history, sharing data and version counter.
at::Tensor without_history(const at::Tensor& tensor) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  return at::Tensor(impl->shallow_copy_and_detach(impl->version_counter(), true));
}

at::Tensor with_storage(const at::Tensor& tensor, const c10::Storage& storage) {
  auto impl = tensor.unsafeGetTensorImpl()->shallow_copy_and_detach(c10::VariableVersion(0), true);
  impl->set_storage_keep_dtype(storage);
  return at::Tensor(std::move(impl));
}

c10::IValue copy_without_history(const c10::IValue& value) {
  c10::IValue copy = value;
  map_tensors(copy, without_history);
  return copy;
}

// Runs a random op, drawing from the re-run's private generator if there is one. Otherwise the draw
// is made from a copy while the program's generator is locked, and its state moved on: between
// reading the state and drawing no other thread can draw.
void run_random(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack& stack,
                int generator_argument, c10::ArrayRef<FirstRun*> first_runs, Rerun* rerun) {
  const Values arguments = top(stack, op.schema().arguments().size());
  c10::IValue& argument = slot(arguments, generator_argument);
  const at::Generator generator =
      argument.isNone() ? default_generator(device_of(arguments)) : argument.toGenerator();
  if (rerun != nullptr) {
    at::Generator& mine = rerun->draws().next(generator);
    argument = mine;
    std::optional<GeneratorState> before;
    if (!first_runs.empty()) {
      before = GeneratorState::of(mine);
    }
    run_op(op, keys, stack);
    if (before) {
      const GeneratorState after = GeneratorState::of(mine);
      for (FirstRun* run : first_runs) {
        run->draws().add(generator, *before, after);
      }
    }
    return;
  }
  at::Generator shared = generator;
  std::lock_guard<std::mutex> lock(shared.mutex());
  const GeneratorState before = GeneratorState::of(shared);
  at::Generator mine = shared.clone();
  argument = mine;
  run_op(op, keys, stack);
  const GeneratorState after = GeneratorState::of(mine);
  after.restore(shared);
  for (FirstRun* run : first_runs) {
    run->draws().add(generator, before, after);
  }
}

}  // namespace

void throw_changed(const at::Tensor& tensor, uint32_t version_before) {
  throw Error(concat("[checkpoint] a tensor of shape ", tensor.sizes(),
                     " that fn reads, such as a parameter, is at version ", tensor._version(),
                     ", but was at version ", version_before,
                     " in the forward; call backward before changing it"));
}

OpRun::OpRun() : enclosing_(innermost) { innermost = this; }

OpRun::~OpRun() { innermost = enclosing_; }

void OpRun::intercept(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                      torch::jit::Stack& stack) {
  c10::SmallVector<FirstRun*, 4> first_runs;
  OpRun* run = this;
  for (; run != nullptr && run->as_first_run() != nullptr; run = run->enclosing_) {
    first_runs.push_back(run->as_first_run());
  }
  Rerun* rerun = run != nullptr ? run->as_rerun() : nullptr;

  const OpTraits& traits = traits_of(op);
  const size_t argument_count = op.schema().arguments().size();
  struct Logged {
    int64_t number = 0;
    bool keep = false;
  };
  c10::SmallVector<Logged, 4> logged(first_runs.size());
  for (size_t i = 0; i < first_runs.size(); ++i) {
    logged[i].number = first_runs[i]->begin_op(op, top(stack, argument_count), logged[i].keep);
  }

  if (rerun == nullptr || !rerun->take_kept(op, stack)) {
    const bool reads_or_writes = !traits.returns_view || !traits.written.empty();
    if (!traits.written.empty()) {
      for (FirstRun* first_run : first_runs) {
        first_run->log_writes(traits.written, top(stack, argument_count));
      }
    }
    Rerun::Redirections redirections;
    if (rerun != nullptr && reads_or_writes) {
      rerun->check_reads(top(stack, argument_count));
      redirections = rerun->redirect(traits.written, top(stack, argument_count));
    }
    if (traits.random && traits.generator_argument >= 0) {
      run_random(op, keys, stack, traits.generator_argument, first_runs, rerun);
    } else if (traits.random) {
      // It passes the draw on to an op that takes a generator; that one is intercepted.
      run_op_open(op, keys, stack);
    } else {
      run_op(op, keys, stack);
    }
    if (rerun != nullptr) {
      const Values results = top(stack, op.schema().returns().size());
      Rerun::redirect_back(redirections, results);
      rerun->end_op(traits.fresh_results, results);
    }
  }
  for (size_t i = 0; i < first_runs.size(); ++i) {
    first_runs[i]->end_op(op, top(stack, op.schema().returns().size()), logged[i].number,
                          logged[i].keep);
  }
}

int64_t FirstRun::begin_op(const c10::OperatorHandle& op, Values arguments, bool& keep) {
  const OpTraits& traits = traits_of(op);
  log_reads(arguments);
  // Kept results are found by number, and the number of casts depends on autocast's cache.
  if (traits.is_cast) {
    keep = false;
    return -1;
  }
  keep = policy_ && traits.fresh_results &&
         policy_(OpCall{op.schema().name(), op, arguments}) == OpChoice::keep;
  return ops_++;
}

void FirstRun::log_writes(const std::vector<int>& written, Values arguments) {
  for (const int index : written) {
    for_each_tensor(arguments[index], [&](const at::Tensor& tensor) {
      const c10::StorageImpl* storage = storage_of(tensor);
      if (storage != nullptr && created_.count(storage) == 0 && log_.outside.count(storage) == 0) {
        log_.outside.emplace(storage, OutsideStorage{tensor.storage().getWeakStorageImpl(),
                                                     copy_bytes(tensor.storage())});
        log_.reads.erase(storage);
      }
    });
  }
}

void FirstRun::log_reads(Values arguments) {
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [this](const at::Tensor& tensor) {
      const c10::StorageImpl* storage = storage_of(tensor);
      if (storage == nullptr || tensor.is_inference() || created_.count(storage) != 0 ||
          log_.outside.count(storage) != 0 || tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
        return;
      }
      auto found = log_.reads.find(storage);
      if (found == log_.reads.end()) {
        found = log_.reads.emplace(storage, ReadStorage{tensor.storage().getWeakStorageImpl(), {}})
                    .first;
      }
      auto& versions = found->second.versions;
      const auto version = static_cast<uint32_t>(tensor._version());
      if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
        versions.push_back(version);
      }
    });
  }
}

void FirstRun::end_op(const c10::OperatorHandle& op, Values results, int64_t number, bool keep) {
  const OpTraits& traits = traits_of(op);
  if (!traits.fresh_results && !(traits.hides_view && log_.keeps)) {
    return;
  }
  for (const c10::IValue& result : results) {
    for_each_tensor(result, [&](const at::Tensor& tensor) {
      const c10::StorageImpl* storage = storage_of(tensor);
      const auto kept = kept_in_.find(storage);
      if (traits.fresh_results) {
        created_.insert(storage);
      } else if (kept != kept_in_.end()) {
        log_.kept[kept->second].watched.emplace_back(without_history(tensor), tensor._version());
      }
    });
  }
  if (keep) {
    keep_results(op, results, number);
  }
}

void FirstRun::keep_results(const c10::OperatorHandle& op, Values results, int64_t number) {
  KeptResults kept{&op.schema(), {}, {}, ops_, log_.draws.count()};
  for (const c10::IValue& result : results) {
    kept.results.push_back(copy_without_history(result));
    for_each_tensor(kept.results.back(), [&](const at::Tensor& tensor) {
      kept.watched.emplace_back(tensor, tensor._version());
      kept_in_[storage_of(tensor)] = number;
    });
  }
  log_.kept.emplace(number, std::move(kept));
  log_.keeps = true;
  if (traits_of(op).random) {
    log_.draws.break_here();
  }
}

Rerun::~Rerun() {
  // Autograd has counted writes to these tensors that went to a copy. Another graph may have saved
  // them and would refuse to use them.
  for (auto touched = versions_.rbegin(); touched != versions_.rend(); ++touched) {
    c10::VariableVersion counter = touched->first.unsafeGetTensorImpl()->version_counter();
    counter.set_version(touched->second);
  }
}

bool Rerun::take_kept(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!log_.keeps || traits_of(op).is_cast) {
    return false;
  }
  const int64_t number = ops_++;
  std::lock_guard<std::mutex> lock(log_.mutex);
  const auto found = log_.kept.find(number);
  if (found == log_.kept.end()) {
    return false;
  }
  KeptResults& kept = found->second;
  if (kept.schema != &op.schema()) {
    throw Error(concat("[checkpoint] the re-run called ", op.schema().name(), " as op ", number,
                       ", where the first run called another op, whose result was kept; fn must "
                       "call the same ops in the same order each time"));
  }
  const auto changed = [](const auto& watched) {
    return static_cast<uint32_t>(watched.first._version()) != watched.second;
  };
  if (std::any_of(kept.watched.begin(), kept.watched.end(), changed)) {
    return false;
  }
  torch::jit::drop(stack, op.schema().arguments().size());
  for (const c10::IValue& result : kept.results) {
    stack.push_back(copy_without_history(result));
  }
  ops_ = kept.next_op;
  draws_.skip_to(kept.next_draw);
  if (!torch::autograd::get_current_graph_task_keep_graph()) {
    log_.kept.erase(found);
  }
  return true;
}

void Rerun::check_reads(Values arguments) const {
  if (log_.reads.empty()) {
    return;
  }
  for (const c10::IValue& argument : arguments) {
    for_each_tensor(argument, [this](const at::Tensor& tensor) {
      const auto found = log_.reads.find(storage_of(tensor));
      if (found == log_.reads.end() || tensor.is_inference()) {
        return;
      }
      const auto& versions = found->second.versions;
      const auto version = static_cast<uint32_t>(tensor._version());
      if (std::find(versions.begin(), versions.end(), version) == versions.end()) {
        throw_changed(tensor, versions.back());
      }
    });
  }
}

const at::Tensor* Rerun::copy_of(const at::Tensor& tensor) {
  const c10::StorageImpl* storage = storage_of(tensor);
  const auto copy = copies_.find(storage);
  if (copy != copies_.end()) {
    return &copy->second;
  }
  const auto outside = log_.outside.find(storage);
  if (storage == nullptr || outside == log_.outside.end()) {
    return nullptr;
  }
  const c10::Storage& before = outside->second.contents_before.storage();
  return &copies_.emplace(storage, copy_bytes(before)).first->second;
}

void Rerun::add_trial_copies(const std::vector<int>& written, Values arguments) {
  for (const int index : written) {
    for_each_tensor(arguments[index], [&](const at::Tensor& tensor) {
      const c10::StorageImpl* storage = storage_of(tensor);
      if (storage != nullptr && created_.count(storage) == 0 && copies_.count(storage) == 0) {
        copies_.emplace(storage, copy_bytes(tensor.storage()));
      }
    });
  }
}

Rerun::Redirections Rerun::redirect(const std::vector<int>& written, Values arguments) {
  Redirections redirections;
  if (is_trial_) {
    add_trial_copies(written, arguments);
  }
  if (log_.outside.empty() && copies_.empty()) {
    return redirections;
  }
  for (const int index : written) {
    for_each_tensor(arguments[index], [&](const at::Tensor& tensor) {
      if (copy_of(tensor) != nullptr && !tensor.is_inference()) {
        versions_.emplace_back(without_history(tensor), tensor._version());
      }
    });
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    map_tensors(slot(arguments, i), [&](const at::Tensor& tensor) {
      const at::Tensor* copy = copy_of(tensor);
      if (copy == nullptr) {
        return tensor;
      }
      at::Tensor redirected = with_storage(tensor, copy->storage());
      redirections.emplace_back(redirected, tensor);
      return redirected;
    });
  }
  return redirections;
}

void Rerun::redirect_back(const Redirections& redirections, Values results) {
  for (size_t i = 0; i < results.size() && !redirections.empty(); ++i) {
    map_tensors(slot(results, i), [&](const at::Tensor& tensor) {
      for (const auto& [redirected, original] : redirections) {
        if (redirected.is_same(tensor)) {
          return original;
        }
      }
      return tensor;
    });
  }
}

bool Rerun::created(const at::Tensor& tensor) const {
  return created_.count(storage_of(tensor)) != 0;
}

void Rerun::end_op(bool fresh_results, Values results) {
  if (is_trial_ && fresh_results) {
    for (const c10::IValue& result : results) {
      for_each_tensor(result,
                      [&](const at::Tensor& tensor) { created_.insert(storage_of(tensor)); });
    }
  }
}

}  // namespace remat::detail
