// SPDX-License-Identifier: Apache-2.0
// Recorder: where the values of the run lie, if not where LibTorch's allocator puts them.
#include <c10/core/CPUAllocator.h>

#include <cstring>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/capture.h"
#include "remat/libtorch/followed_tensor.h"
#include "remat/libtorch/recorder.h"

namespace remat::detail {

void* Recorder::answer(size_t bytes) {
  if (pool() == nullptr) {
    const int64_t needed = live_bytes_ + static_cast<int64_t>(bytes);
    if (needed > options_.most_bytes) {
      throw DoesNotFit(concat("[", options_.verb, "] the plain step needs more than ",
                              format_bytes(options_.most_bytes), " beside its parameters and its batch"),
                       needed);
    }
    return nullptr;
  }
  void* const address = pool()->answer(bytes);
  if (address != nullptr) {
    allocated(address, bytes);
  }
  return address;
}

bool Recorder::spill_failed() const { return pool() != nullptr && pool()->failed(); }

void Recorder::check_pool() const {
  if (pool() != nullptr) {
    pool()->check();
  }
}

// An op finds what it uses in memory, so that its time is that of its kernel.
void Recorder::use_in_pool(Values arguments) const {
  if (pool() == nullptr) {
    return;
  }
  std::vector<const void*> addresses;
  visit_tensors(arguments, [&](const at::Tensor& tensor, TensorPlace) {
    if (tensor.has_storage()) {
      addresses.push_back(tensor.storage().data());
    }
  });
  pool()->use(addresses);
}

int64_t Recorder::pool_ns() const { return pool() == nullptr ? 0 : pool()->counts().spent_ns; }

void Recorder::settle() {
  if (pool() == nullptr) {
    return;
  }
  const auto settle_storage = [&](c10::StorageImpl* storage) {
    if (storage == nullptr || storage->nbytes() == 0 || !pool()->owns(storage->data())) {
      return;
    }
    const void* const from = storage->data();
    c10::DataPtr own = c10::GetCPUAllocator()->allocate(storage->nbytes());
    if (!pool()->use_or_read(from)) {
      return;  // stays where it was, as zeros: the pool has failed
    }
    std::memcpy(own.get(), from, storage->nbytes());
    unwatch(*storage);
    storage->set_data_ptr_noswap(std::move(own));
  };
  for (const c10::Storage& storage : held) {
    settle_storage(storage ? storage.unsafeGetStorageImpl() : nullptr);
  }
  for (const SeenStorage& storage : trace.storages) {
    settle_storage(storage.impl.lock().get());
  }
}

}  // namespace remat::detail
