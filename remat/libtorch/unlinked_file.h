// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace remat::detail {

// A new file in a folder, for reading and writing, that has no name: nothing is left behind,
// however the process ends. Gives its descriptor, to be closed by the caller, or -1 with errno.
int open_unlinked_file(const std::string& folder);

// For file systems that cannot make a file without a name: one with a name, which is then removed.
int open_and_unlink_file(const std::string& folder);

// What the file system of a file still has room for, where it counts that.
std::optional<int64_t> free_bytes_beside(int file);

// Whether a file lies in memory (tmpfs), so that moving bytes there gains nothing.
bool lies_in_memory(int file);

}  // namespace remat::detail
