// SPDX-License-Identifier: Apache-2.0
#include "remat/cli/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include "remat/core/error.h"

namespace remat {
namespace {

[[noreturn]] void fail(const char* what, const std::string& path) {
  throw Error(detail::concat("cannot ", what, " ", path, ": ", std::strerror(errno)));
}

// An open file, closed with its scope unless `close` was asked how that went.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close(); }

  int get() const { return fd_; }
  bool close() {
    const int fd = fd_;
    fd_ = -1;
    return fd < 0 || ::close(fd) == 0;
  }

 private:
  int fd_;
};

// Holds back what would end the program between a part file's creation and its renaming.
class SignalsHeld {
 public:
  SignalsHeld() {
    sigset_t held;
    sigemptyset(&held);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&held, signal);
    sigprocmask(SIG_BLOCK, &held, &before_);
  }
  SignalsHeld(const SignalsHeld&) = delete;
  SignalsHeld& operator=(const SignalsHeld&) = delete;
  ~SignalsHeld() { sigprocmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

std::string read_all(int fd, const std::string& path) {
  std::string content;
  std::array<char, 65536> block{};
  for (;;) {
    const ssize_t count = ::read(fd, block.data(), block.size());
    if (count < 0) fail("read", path);
    if (count == 0) return content;
    content.append(block.data(), static_cast<size_t>(count));
  }
}

bool write_all(int fd, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(fd, content.data(), content.size());
    if (count < 0) return false;
    content.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// Devices and pipes cannot be replaced by renaming.
void write_in_place(const std::string& path, std::string_view content) {
  Descriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (file.get() < 0 || !write_all(file.get(), content) || !file.close()) fail("write", path);
}

mode_t mode_of_new_files() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return 0666 & ~mask;
}

// The part file lies beside `target`, for rename works within a file system only; its name is its
// own, for two tools may write the same file at once.
void replace(const std::filesystem::path& target, mode_t mode, std::string_view content) {
  constexpr std::string_view kSuffix = ".part";
  std::string part = target.parent_path() / ".remat.XXXXXX";
  part += kSuffix;
  const SignalsHeld held;
  Descriptor file(::mkstemps(part.data(), static_cast<int>(kSuffix.size())));
  if (file.get() < 0) fail("write", target);
  if (write_all(file.get(), content) && ::fchmod(file.get(), mode) == 0 && file.close() &&
      ::rename(part.c_str(), target.c_str()) == 0) {
    return;
  }
  const int reason = errno;
  ::unlink(part.c_str());
  errno = reason;
  fail("write", target);
}

}  // namespace

std::string read_file(const std::string& path) {
  if (path == "-") return read_all(STDIN_FILENO, shown_path(path));
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) fail("read", path);
  return read_all(file.get(), path);
}

void write_file(const std::string& path, std::string_view content) {
  if (path == "-") {
    std::cout << content << std::flush;
    if (!std::cout) fail("write", "standard output");
    return;
  }
  struct stat there {};
  if (::stat(path.c_str(), &there) != 0) return replace(path, mode_of_new_files(), content);
  if (!S_ISREG(there.st_mode)) return write_in_place(path, content);
  // Renaming would get round a write protection.
  if (::access(path.c_str(), W_OK) != 0) fail("write", path);
  // A link stays a link; what it leads to is replaced.
  std::error_code unresolved;
  const std::filesystem::path target = std::filesystem::canonical(path, unresolved);
  replace(unresolved ? std::filesystem::path(path) : target, there.st_mode & 07777, content);
}

void check_writable(const std::string& path) {
  if (path.empty() || path == "-") return;
  struct stat there {};
  if (::stat(path.c_str(), &there) == 0) {
    if (S_ISDIR(there.st_mode)) errno = EISDIR;
    if (S_ISDIR(there.st_mode) || ::access(path.c_str(), W_OK) != 0) fail("write", path);
    return;
  }
  const std::string parent = std::filesystem::path(path).parent_path();
  const std::string folder = parent.empty() ? "." : parent;
  if (::stat(folder.c_str(), &there) != 0) fail("write", path);
  if (!S_ISDIR(there.st_mode)) errno = ENOTDIR;
  if (!S_ISDIR(there.st_mode) || ::access(folder.c_str(), W_OK | X_OK) != 0) fail("write", path);
}

std::string shown_path(const std::string& path) { return path == "-" ? "standard input" : path; }

std::string name_of_file(const std::string& path) {
  return path == "-" ? shown_path(path) : std::filesystem::path(path).stem().string();
}

}  // namespace remat
