// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "remat/libtorch/tape.h"

namespace remat::detail {

// Something an op asked of the allocator, or gave back.
struct MemoryRequest {
  void* address = nullptr;
  int64_t bytes = 0;
  bool frees = false;
};

struct RequestLayout {
  std::vector<Allocation> allocations;  // in the order of the requests
  int64_t workspace_bytes = 0;
};

// Which request of an op became which of its results (at these addresses; null where it has no
// bytes); the others are scratch, laid out in the op's workspace by first fit.
RequestLayout lay_out(const std::vector<MemoryRequest>& requests,
                      const std::vector<const void*>& results);

}  // namespace remat::detail
