// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace remat::detail {

// What the process can still take, in bytes: the least of what Linux says is available and what each
// memory cgroup above the process (version 1 or 2) leaves of its limit, or of the one above which it is
// slowed down (memory.high). Page cache that the group can drop counts as left. `root` is where /proc and
// /sys are found; another one is for tests.
int64_t available_bytes(const std::string& root);

// What the process has in memory that is in no file.
int64_t resident_bytes(const std::string& root);

// The share of the last ten seconds in which a task of the process's cgroup (version 2), or of the machine
// where there is none, waited for memory; 0 where the system does not say.
double stalled_percent(const std::string& root);

}  // namespace remat::detail
