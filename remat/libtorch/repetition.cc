// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/repetition.h"

#include <algorithm>
#include <map>

#include "remat/core/error.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {
namespace {

void check_batch(const Repetition& repetition, const Batch& batch) {
  const auto same = [](const at::Tensor& tensor, const Window& window) {
    return tensor.defined() ? tensor.has_storage() && same_shape(tensor, window)
                            : window.dtype == c10::ScalarType::Undefined;
  };
  if (!std::ranges::equal(batch, repetition.batch, same)) {
    throw Error("[step] the batch has other shapes, types or strides than those of the steps that were "
                "followed; expected the same, since the function is no longer called: raise "
                "StepOptions::follow");
  }
}

}  // namespace

Batch repeat(Variant& variant, const Repetition& repetition, const Batch& batch,
             const std::function<int64_t(Variant&)>& use_arena) {
  check_batch(repetition, batch);
  const int64_t moved_bytes = use_arena(variant);
  Runner& runner = *variant.runner;
  runner.on_access({});
  runner.start();
  runner.counts().moved_bytes = moved_bytes;
  for (size_t i = 0; i < variant.trace.storages.size(); ++i) {
    const SeenStorage& storage = variant.trace.storages[i];
    if (!storage.external) {
      continue;
    }
    char* bytes = nullptr;
    if (storage.role == Role::input) {
      // The first tensor of the batch that lies on this storage begins where the slice does, unless
      // another one lies before it.
      const auto position = static_cast<size_t>(storage.external->position);
      const auto before = repetition.batch[position].offset *
                          static_cast<int64_t>(batch[position].dtype().itemsize());
      bytes = static_cast<char*>(batch[position].data_ptr()) - before;
    } else {
      bytes = static_cast<char*>(const_cast<void*>(repetition.externals[i].data()));
    }
    runner.bind(variant.made.id_of[i], bytes);
  }
  try {
    runner.run_rest();
  } catch (const MoveFailed& failed) {
    const bool undone = runner.can_undo();
    runner.undo();
    if (!undone) {
      throw_half_done(failed);
    }
    throw;
  } catch (...) {
    runner.undo();
    throw;
  }
  std::map<size_t, c10::Storage> lent;
  const auto tensor_of = [&](const Repetition::Made& made) {
    if (!made.storage) {
      return made.tensor;
    }
    const size_t number = index(*made.storage);
    if (!lent.contains(number)) {
      const auto& outputs = variant.graph.outputs;
      const auto output = std::ranges::find(outputs, variant.made.id_of[number]) - outputs.begin();
      lent[number] = runner.arena().lend(runner.output_offset(static_cast<size_t>(output)),
                                         variant.trace.storages[number].bytes);
    }
    return make_tensor(made.window, lent[number]);
  };
  for (const Repetition::Gradient& gradient : repetition.gradients) {
    if (const auto parameter = gradient.parameter.lock()) {
      at::Tensor(parameter).mutable_grad() = tensor_of(gradient.made);
    }
  }
  Batch results;
  for (const Repetition::Made& made : repetition.results) {
    results.push_back(tensor_of(made));
  }
  return results;
}

}  // namespace remat::detail
