// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>

namespace remat::detail {

// Addresses at which a file is mapped. Where the system cannot bring a page of it (somebody cut the file
// short, the disk fails), it would end the process with SIGBUS. While this lives, whoever touches such a
// page finds zeros instead, and `lost` is set: the owner looks at it before the bytes are believed.
//
// Installs a handler for SIGBUS when first used; faults at other addresses go to the one before it. Of more
// than 64 at a time the others are without this.
class LostPages {
 public:
  LostPages(void* begin, size_t bytes, std::atomic<bool>& lost);
  ~LostPages();
  LostPages(const LostPages&) = delete;
  LostPages& operator=(const LostPages&) = delete;

 private:
  size_t slot_;
};

}  // namespace remat::detail
