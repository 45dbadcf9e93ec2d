// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/spill_files.h"

#include <unistd.h>

#include <filesystem>
#include <string>

namespace remat::testing {

int cut_spill_files() {
  int count = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(each.path(), gone).string();
    // Of a file that never had a name the system shows "/folder/#number (deleted)".
    const bool unlinked = target.ends_with(" (deleted)") &&
                          (target.find("/#") != std::string::npos || target.find("/remat-") != std::string::npos);
    if (unlinked && truncate(each.path().c_str(), 0) == 0) {
      ++count;
    }
  }
  return count;
}

}  // namespace remat::testing
