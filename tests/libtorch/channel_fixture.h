// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <ostream>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/file_channel.h"

namespace remat::testing {

// Memory as direct I/O wants it, full of bytes that tell where they come from.
class Block {
 public:
  explicit Block(int64_t bytes, uint64_t seed = 0)
      : bytes_(bytes),
        memory_(static_cast<char*>(std::aligned_alloc(4096, static_cast<size_t>(bytes))),
                &std::free) {
    fill(seed);
  }
  void fill(uint64_t seed) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; i < bytes_; i += 8) {
      const uint64_t word = random();
      std::memcpy(data() + i, &word, sizeof(word));
    }
  }
  char* data() { return memory_.get(); }
  const char* data() const { return memory_.get(); }
  int64_t bytes() const { return bytes_; }
  bool operator==(const Block& other) const {
    return bytes_ == other.bytes_ &&
           std::memcmp(data(), other.data(), static_cast<size_t>(bytes_)) == 0;
  }

 private:
  int64_t bytes_;
  std::unique_ptr<char, decltype(&std::free)> memory_;
};

// What a disk may do wrong, or slowly.
struct Faults {
  int64_t fail_at = -1;     // the n-th transfer, from 0 on
  int64_t fail_until = -1;  // and those up to here
  int error = 0;
  int64_t most_bytes = 0;  // said to be moved by one transfer; of the last block, less than all
  int64_t alignment_bytes = 1;  // of what is moved
  int64_t bytes_per_second = 0;
  bool breaks_at_end = false;  // wait() throws, as when the ring is gone
};

class FaultyTransfers final : public detail::FileTransfers {
 public:
  FaultyTransfers(std::unique_ptr<detail::FileTransfers> real, const Faults& faults)
      : real_(std::move(real)), faults_(faults) {}

  void begin(int64_t id, const detail::Transfer& transfer) override {
    const int64_t number = count_++;
    if (faults_.fail_at >= 0 && number >= faults_.fail_at &&
        number <= std::max(faults_.fail_at, faults_.fail_until)) {
      failed_.push_back({id, -faults_.error});
      return;
    }
    detail::Transfer shorter = transfer;
    if (faults_.most_bytes > 0) {
      shorter.bytes = std::min(transfer.bytes, most_moved());
    }
    real_->begin(id, shorter);
  }
  Ended wait() override {
    if (faults_.breaks_at_end) {
      throw std::runtime_error("the ring is gone");
    }
    if (!failed_.empty()) {
      const Ended ended = failed_.back();
      failed_.pop_back();
      return ended;
    }
    Ended ended = real_->wait();
    if (faults_.bytes_per_second > 0 && ended.result > 0) {
      std::this_thread::sleep_for(
          std::chrono::nanoseconds(ended.result * 1'000'000'000 / faults_.bytes_per_second));
    }
    if (faults_.most_bytes > 0 && ended.result == most_moved()) {
      ended.result = faults_.most_bytes;
    }
    return ended;
  }
  int64_t depth() const override { return real_->depth(); }

 private:
  int64_t most_moved() const {
    return faults_.most_bytes / faults_.alignment_bytes * faults_.alignment_bytes;
  }

  std::unique_ptr<detail::FileTransfers> real_;
  Faults faults_;
  int64_t count_ = 0;
  std::vector<Ended> failed_;
};

struct Way {
  const char* name;
  bool uring;
  bool direct;
};
inline constexpr Way kWays[] = {
    {"uring", true, true}, {"blocking", false, true}, {"page_cache", false, false}};
inline void PrintTo(const Way& way, std::ostream* out) { *out << way.name; }

// The same tests for every way in which bytes go to a file.
class EveryWay : public ::testing::TestWithParam<Way> {
 protected:
  detail::FileChannelOptions options(std::string folder = ::testing::TempDir()) const {
    detail::FileChannelOptions made;
    made.folder = std::move(folder);
    made.prefer_uring = GetParam().uring;
    made.direct = GetParam().direct;
    made.piece_bytes = 16 * KiB;  // many of them in small requests
    return made;
  }
  std::unique_ptr<detail::FileChannel> open(Faults faults = {}) const {
    detail::FileChannelOptions chosen = options();
    faults.alignment_bytes = chosen.direct ? 4096 : 1;
    chosen.around_transfers = [faults](std::unique_ptr<detail::FileTransfers> real) {
      return std::make_unique<FaultyTransfers>(std::move(real), faults);
    };
    return detail::open_file_channel(std::move(chosen));
  }
};

// What an action throws, or nothing.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

inline bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace remat::testing
