// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/written_copies.h"

#include <c10/core/CPUAllocator.h>

#include "remat/libtorch/device.h"
#include "remat/libtorch/spill_pool.h"

namespace remat::detail {

WrittenCopies::WrittenCopies(const Recorder& recorder) : pool_(recorder.pool()) {
  for (size_t i = 0; i < recorder.trace.storages.size(); ++i) {
    const SeenStorage& storage = recorder.trace.storages[i];
    if (storage.external && storage.external->written && !storage.borrowed) {
      auto* bytes = static_cast<char*>(recorder.held[i].mutable_data()) + storage.base_bytes;
      const ListenGuard not_counted(pool_);
      copies_.push_back({static_cast<StorageNumber>(i), bytes,
                         c10::GetCPUAllocator()->allocate(static_cast<size_t>(storage.bytes)), storage.bytes});
      cpu_device().copy(copies_.back().bytes.get(), bytes, storage.bytes);
    }
  }
}

std::vector<StorageNumber> WrittenCopies::restore() const {
  std::vector<StorageNumber> lost;
  for (const Copy& each : copies_) {
    if (pool_ == nullptr || pool_->use_or_read(each.bytes.get())) {
      cpu_device().copy(each.address, each.bytes.get(), each.count);
    } else {
      lost.push_back(each.number);
    }
  }
  return lost;
}

}  // namespace remat::detail
