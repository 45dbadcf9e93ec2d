// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/memory_cgroup.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <fstream>

namespace remat::testing {
namespace {

constexpr const char* kFirstVersion = "/sys/fs/cgroup/memory";
constexpr const char* kSecondVersion = "/sys/fs/cgroup";

}  // namespace

MemoryCgroup::MemoryCgroup(int64_t limit_bytes) {
  static std::atomic<int> count = 0;
  const bool first = std::filesystem::exists(std::string(kFirstVersion) + "/memory.limit_in_bytes");
  second_version_ = !first && std::filesystem::exists(std::string(kSecondVersion) + "/cgroup.controllers");
  if (!first && !second_version_) {
    why_not_ = "there is no memory controller";
    return;
  }
  folder_ = std::string(first ? kFirstVersion : kSecondVersion) + "/remat_" + std::to_string(getpid()) + "_" +
            std::to_string(count++);
  std::error_code error;
  std::filesystem::create_directory(folder_, error);
  if (error) {
    why_not_ = folder_ + ": " + error.message();
    return;
  }
  if (second_version_) {
    // The group has the files of a controller only if its parent hands it down.
    std::ofstream(std::string(kSecondVersion) + "/cgroup.subtree_control") << "+memory" << std::flush;
    write("memory.swap.max", "0");
    why_not_.clear();  // a kernel without swap has no such file
  }
  write(second_version_ ? "memory.max" : "memory.limit_in_bytes", std::to_string(limit_bytes));
}

MemoryCgroup::~MemoryCgroup() {
  std::error_code ignored;
  std::filesystem::remove(folder_, ignored);
}

void MemoryCgroup::write(const std::string& file, const std::string& text) {
  std::ofstream out(folder_ + "/" + file);
  out << text << std::flush;
  if (!out) {
    why_not_ = folder_ + "/" + file + " cannot be written";
  }
}

MemoryCgroup::Ended MemoryCgroup::run(const std::vector<std::string>& arguments) const {
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  int ends[2];
  if (pipe(ends) != 0) {
    return {.code = -1, .output = "no pipe"};
  }
  const pid_t child = fork();
  if (child == 0) {
    std::ofstream(folder_ + "/cgroup.procs") << getpid() << std::flush;
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    close(ends[0]);
    close(ends[1]);
    std::vector<char*> words = {const_cast<char*>(program.c_str())};
    for (const std::string& each : arguments) {
      words.push_back(const_cast<char*>(each.c_str()));
    }
    words.push_back(nullptr);
    execv(program.c_str(), words.data());
    _exit(127);
  }
  close(ends[1]);
  Ended ended;
  char part[4096];
  for (ssize_t count = 0; (count = read(ends[0], part, sizeof(part))) > 0;) {
    ended.output.append(part, static_cast<size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ended.killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

int64_t MemoryCgroup::oom_kills() const {
  std::ifstream file(folder_ + (second_version_ ? "/memory.events" : "/memory.oom_control"));
  int64_t number = 0;
  for (std::string word; file >> word >> number;) {
    if (word == "oom_kill") {
      return number;
    }
  }
  return 0;
}

int64_t MemoryCgroup::peak_bytes() const {
  std::ifstream file(folder_ + (second_version_ ? "/memory.peak" : "/memory.max_usage_in_bytes"));
  int64_t bytes = 0;
  return file >> bytes ? bytes : 0;
}

}  // namespace remat::testing
