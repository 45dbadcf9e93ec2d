// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/available_memory.h"

#include <algorithm>
#include <fstream>
#include <initializer_list>
#include <limits>
#include <optional>
#include <sstream>

namespace remat::detail {
namespace {

constexpr int64_t kUnlimited = std::numeric_limits<int64_t>::max();

// The number in a file that holds one; none where it is missing or says "max".
std::optional<int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// The number behind a word: "MemAvailable: 12345 kB", "inactive_file 4096".
std::optional<int64_t> number_behind(const std::string& path, const std::string& word) {
  std::ifstream file(path);
  for (std::string found; file >> found;) {
    int64_t number = 0;
    if (found == word && file >> number) {
      return number;
    }
  }
  return std::nullopt;
}

// What a folder of the cgroup file system leaves of its least limit.
int64_t left_in(const std::string& folder, std::initializer_list<const char*> limit_files, const char* usage_file,
                const char* cache_word) {
  int64_t limit = kUnlimited;
  for (const char* const file : limit_files) {
    limit = std::min(limit, number_in(folder + file).value_or(kUnlimited));
  }
  const auto usage = number_in(folder + usage_file);
  if (limit == kUnlimited || !usage) {
    return kUnlimited;
  }
  const int64_t cache = number_behind(folder + "/memory.stat", cache_word).value_or(0);
  return std::max<int64_t>(0, limit - *usage + std::min(cache, *usage));
}

// The folders from the process's own up to the root of its hierarchy.
template <typename Visit>
void visit_upwards(const std::string& mount, std::string path, Visit visit) {
  while (true) {
    visit(mount + (path == "/" ? "" : path));
    if (path.empty() || path == "/") {
      return;
    }
    path.resize(path.rfind('/'));
  }
}

// "some avg10=1.23 avg60=..."
std::optional<double> stalled_in(const std::string& path) {
  std::ifstream file(path);
  std::string some, average;
  if (!(file >> some >> average) || some != "some" || !average.starts_with("avg10=")) {
    return std::nullopt;
  }
  std::istringstream number(average.substr(6));
  double percent = 0;
  return number >> percent ? std::optional(percent) : std::nullopt;
}

}  // namespace

int64_t resident_bytes(const std::string& root) {
  return number_behind(root + "proc/self/status", "RssAnon:").value_or(0) * 1024;
}

double stalled_percent(const std::string& root) {
  std::ifstream groups(root + "proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.starts_with("0::")) {
      if (const auto found = stalled_in(root + "sys/fs/cgroup" + line.substr(3) + "/memory.pressure")) {
        return *found;
      }
    }
  }
  return stalled_in(root + "proc/pressure/memory").value_or(0);
}

int64_t available_bytes(const std::string& root) {
  int64_t left = number_behind(root + "proc/meminfo", "MemAvailable:").value_or(kUnlimited / 1024) * 1024;
  std::ifstream groups(root + "proc/self/cgroup");  // "4:memory:/user/job", or "0::/user/job"
  for (std::string line; std::getline(groups, line);) {
    std::istringstream parts(line);
    std::string number, controllers, path;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    if (controllers.empty()) {
      visit_upwards(root + "sys/fs/cgroup", path, [&](const std::string& folder) {
        // Above memory.high nobody is ended, but everybody is slowed down.
        left = std::min(left, left_in(folder, {"/memory.max", "/memory.high"}, "/memory.current", "inactive_file"));
      });
    } else if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      visit_upwards(root + "sys/fs/cgroup/memory", path, [&](const std::string& folder) {
        left = std::min(left, left_in(folder, {"/memory.limit_in_bytes"}, "/memory.usage_in_bytes",
                                      "total_inactive_file"));
      });
    }
  }
  return left;
}

}  // namespace remat::detail
