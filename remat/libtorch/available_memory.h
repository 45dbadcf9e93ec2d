// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace remat::detail {

// What the process can still take, in bytes: the least of what Linux says is available and what each
// memory cgroup above the process (version 1 or 2) leaves of its limit. Page cache that the group can
// drop counts as left. `root` is where /proc and /sys are found; another one is for tests.
int64_t available_bytes(const std::string& root);

}  // namespace remat::detail
