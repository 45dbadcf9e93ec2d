// SPDX-License-Identifier: Apache-2.0
// Recorder: what the host does between two ops, to bytes and to generators.
#include <algorithm>
#include <mutex>

#include "remat/core/error.h"
#include "remat/libtorch/followed_tensor.h"
#include "remat/libtorch/recorder.h"
#include "remat/libtorch/tensor_view.h"

namespace remat::detail {

uint64_t Recorder::digest_of(StorageNumber number) const {
  const SeenStorage& storage = trace[number];
  const auto impl = storage.impl.lock();
  return impl == nullptr ? 0
                         : digest(static_cast<const char*>(impl->data()) + storage.base_bytes,
                                  static_cast<size_t>(storage.bytes));
}

// The bytes are no longer those that the last op left: from here on the storage is the host's, under
// a number of its own, and read anew whenever the program comes here.
StorageNumber Recorder::continue_after_host_write(StorageNumber number, const at::Tensor& tensor) {
  host_accessed(number);
  // What an external held before is lost.
  repeatable_ = repeatable_ && !(trace[number].external && digest_[index(number)] &&
                                 *digest_[index(number)] != digest_of(number));
  const SeenStorage before = trace[number];
  const StorageNumber after = add_storage(tensor);  // takes the StorageImpl over
  trace[after].bytes = before.bytes;
  trace[after].base_bytes = before.base_bytes;
  meet_external(after, tensor);
  trace[after].before_host_write = number;
  return after;
}

// Right after the op that touched the storage last: the host may look as soon as that has run.
void Recorder::insert_access(StorageNumber number) {
  SeenStorage& storage = trace[number];
  const int32_t place = std::max(storage.last_touch, storage.creator) + 1;
  SeenOp access{.op = host_access_op(), .kind = CallKind::access};
  if (place > 0) {
    const SeenOp& last = trace.ops[static_cast<size_t>(place) - 1];
    access.phase = last.phase;
    access.scope = last.scope;
  }
  SeenTensor bytes;
  bytes.view.storage = number;
  bytes.view.dtype = at::kByte;
  bytes.view.sizes = {storage.bytes};
  bytes.view.strides = {1};
  access.arguments = {at::Tensor()};
  access.tensors = {bytes};
  access.reads = {number};
  access.keys = c10::DispatchKeySet(c10::DispatchKey::CPU);
  access.once = true;
  trace.ops.insert(trace.ops.begin() + place, std::move(access));
  digests.insert(digests.begin() + place, std::vector<uint64_t>());
  for (SeenStorage& each : trace.storages) {
    each.creator += each.creator >= place ? 1 : 0;
    each.last_touch += each.last_touch >= place ? 1 : 0;
  }
}

void Recorder::host_wrote(StorageNumber number, const at::Tensor& tensor) {
  continue_after_host_write(number, tensor);
}

void Recorder::host_accessed(StorageNumber number) {
  if (!trace[number].host_writes_later) {
    trace[number].host_writes_later = true;
    if (!trace[number].external || trace[number].external->written) {
      insert_access(number);
    }
  }
}

void Recorder::rename(StorageNumber number, const c10::intrusive_ptr<c10::StorageImpl>& impl) {
  SeenStorage& storage = trace[number];
  std::erase_if(number_of_, [&](const auto& each) { return each.second == number; });
  number_of_[impl.get()] = number;
  storage.impl = c10::weak_intrusive_ptr<c10::StorageImpl>(impl);
}

// Nobody but ops may move a generator while a step is recorded: what the host does to it is seen
// nowhere else.
void Recorder::check_generators() {
  if (!options_.follows) {
    return;
  }
  for (size_t i = 0; i < last_states_.size(); ++i) {
    at::Generator generator = generators_[i].first;
    const std::lock_guard lock(generator.mutex());
    generator_moved_ = generator_moved_ || !(GeneratorState::of(generator) == last_states_[i]);
  }
}

void Recorder::note_generators(bool drew) {
  if (!options_.follows || (!drew && last_states_.size() == generators_.size())) {
    return;
  }
  last_states_.clear();
  for (auto& each : generators_) {
    const std::lock_guard lock(each.first.mutex());
    last_states_.push_back(GeneratorState::of(each.first));
  }
}

// Between two ops whoever gets at the bytes of what the step made is the host.
void Recorder::watch_for_host(Values values, bool on) {
  if (!options_.follows) {
    return;
  }
  visit_tensors(values, [&](const at::Tensor& tensor, TensorPlace) {
    c10::StorageImpl& impl = *tensor.storage().unsafeGetStorageImpl();
    const auto known = number_of_.find(&impl);
    if (!on) {
      unwatch(impl);
    } else if (known != number_of_.end() && impl.nbytes() > 0) {
      const auto& external = trace[known->second].external;
      if (!external || external->written) {
        watch(impl);
      }
    }
  });
}

void Recorder::stop_watching() {
  for (const SeenStorage& storage : trace.storages) {
    if (const auto impl = storage.impl.lock(); impl != nullptr && options_.follows) {
      unwatch(*impl);
    }
  }
}

void Recorder::bytes_wanted(const c10::StorageImpl& storage) {
  const auto known = number_of_.find(&storage);
  // What empty() made is looked at when an op first uses it.
  if (known != number_of_.end() && !trace[known->second].uninitialised) {
    host_accessed(known->second);
  }
}

}  // namespace remat::detail
