// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/core/Allocator.h>

#include <vector>

#include "remat/libtorch/recorder.h"

namespace remat::detail {

// The externals that a step writes, as they are now: so that it can be tried again and again. In the
// pool, if the recorder has one.
class WrittenCopies {
 public:
  explicit WrittenCopies(const Recorder& recorder);
  // Returns the externals whose copies are lost.
  std::vector<StorageNumber> restore() const;

 private:
  struct Copy {
    StorageNumber number;
    char* address;
    c10::DataPtr bytes;
    int64_t count;
  };
  SpillPool* pool_;
  std::vector<Copy> copies_;
};

}  // namespace remat::detail
