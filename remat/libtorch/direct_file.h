// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace remat::detail {

// Direct I/O on a file: past the page cache.
struct DirectAccess {
  bool possible = false;
  int64_t alignment_bytes = 1;  // of addresses, offsets and sizes
  std::string why_not = {};
};

// Switches a file, which is empty and open for reading and writing, to direct I/O and tries it;
// leaves it without if that is not possible. -ENOSPC and the like from the trial count as possible:
// the next write will tell.
DirectAccess make_direct(int file);

}  // namespace remat::detail
