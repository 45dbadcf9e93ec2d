// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/resident_set.h"

#include <malloc.h>

#include <fstream>
#include <string>

namespace remat {
namespace {

// A line of /proc/self/status, "VmRSS:  1234 kB", in bytes.
int64_t status_bytes(const std::string& key) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == key && status >> kib) return kib * 1024;
  }
  return 0;
}

bool forget_peak() {
  std::ofstream control("/proc/self/clear_refs");
  control << "5" << std::flush;
  return control.good();
}

}  // namespace

int64_t trimmed_resident_bytes() {
  malloc_trim(0);
  return status_bytes("VmRSS:");
}

std::optional<int64_t> peak_resident_bytes(const std::function<void()>& work) {
  const bool forgotten = forget_peak();
  work();
  if (!forgotten) return std::nullopt;
  return status_bytes("VmHWM:");
}

}  // namespace remat
