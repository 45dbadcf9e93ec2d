// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "remat/libtorch/allocator.h"
#include "remat/libtorch/device.h"

namespace remat::detail {

// The one block of memory that steps run in. What a step leaves for its caller (loss, gradients)
// stays where it was made, without a copy, and becomes an ordinary tensor there; when the arena is
// wanted again, whatever is still held is moved out to memory of its own.
class Arena {
 public:
  Arena(Device& device, int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  char* at(int64_t offset) const { return memory_ + offset; }
  int64_t bytes() const { return bytes_; }

  // A storage on the arena's bytes, for the caller of a step.
  c10::Storage lend(int64_t offset, int64_t bytes);
  // Gives the arena's bytes to a followed storage.
  void lend(int64_t offset, const c10::intrusive_ptr<c10::StorageImpl>& storage);
  // Moves what is still held of the storages that were lent. Returns the bytes moved. Whoever kept
  // a raw pointer into a lent tensor loses it here.
  int64_t reclaim();
  // Gives the pages beyond the first `bytes` back to the system, if any step touched them; they come
  // back, zeroed, when they are used. Nothing there may be lent.
  void use_only(int64_t bytes);

 private:
  Device& device_;
  char* memory_;
  int64_t bytes_;
  int64_t touched_bytes_ = 0;  // the most that was used since pages were given back
  std::optional<MemoryRange> range_;
  std::vector<c10::weak_intrusive_ptr<c10::StorageImpl>> lent_;
};

}  // namespace remat::detail
