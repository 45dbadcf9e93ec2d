// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/channel_speed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <numeric>
#include <utility>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/units.h"

namespace remat::detail {
namespace {

constexpr int64_t kLargestRequest = 8 * MiB;
constexpr int64_t kSmallestRequest = MiB;
constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kUnderWay = 4;  // the queue does not run dry while this thread is woken
constexpr size_t kFewest = 6;
constexpr size_t kGroup = 4;
constexpr size_t kGroups = 7;
constexpr size_t kSmallRequests = 16;

int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t median(std::vector<int64_t> samples) {
  const auto middle = samples.begin() + static_cast<std::ptrdiff_t>((samples.size() - 1) / 2);
  std::nth_element(samples.begin(), middle, samples.end());
  return *middle;
}

// In huge pages where there are some, as arenas are, and with contents that no disk can make
// smaller.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(bytes) {
    void* const memory =
        mmap(nullptr, size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      throw Error(concat("[offload] the system has no ", format_bytes(bytes),
                         " to measure a channel with: ", std::strerror(errno)));
    }
    begin_ = static_cast<char*>(memory);
    madvise(begin_, size(), MADV_HUGEPAGE);
    uint64_t word = 1;
    for (int64_t i = 0; i < bytes; i += 8) {
      word = word * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(begin_ + i, &word, sizeof(word));
    }
  }
  ~Scratch() { munmap(begin_, size()); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  char* begin() const { return begin_; }

 private:
  size_t size() const { return static_cast<size_t>(bytes_); }

  int64_t bytes_;
  char* begin_ = nullptr;
};

class Measurement {
 public:
  Measurement(Channel& channel, int64_t scratch_bytes)
      : channel_(channel), scratch_bytes_(scratch_bytes), scratch_(scratch_bytes) {}

  ChannelSpeed run() {
    channel_.reserve(scratch_bytes_);
    // A disk of 50 MB/s takes 20 ms for the smallest request; what is faster gets larger ones.
    const int64_t first_ns = once(true, kSmallestRequest);
    const int64_t fitting = kSmallestRequest * (20 * kMillisecond) / std::max<int64_t>(first_ns, 1);
    request_bytes_ = std::clamp(fitting / MiB * MiB, kSmallestRequest,
                                std::min(kLargestRequest, scratch_bytes_ / 2));
    places_ = scratch_bytes_ / request_bytes_;
    // A new file is slower: the file system finds out where its bytes go. Steps write over them
    // again and again.
    places_ = static_cast<int64_t>(intervals(true, static_cast<size_t>(places_)).size());
    ChannelSpeed speed;
    speed.write_bytes_per_second = bandwidth(true);
    speed.read_bytes_per_second = bandwidth(false);
    speed.latency_ns = latency();
    return speed;
  }

 private:
  Channel::Ticket begin(bool write, int64_t offset, int64_t bytes) {
    char* const memory = scratch_.begin() + offset;
    return write ? channel_.write(offset, memory, bytes) : channel_.read(offset, memory, bytes);
  }

  int64_t once(bool write, int64_t bytes) {
    const int64_t begun_ns = now_ns();
    channel_.wait(begin(write, 0, bytes));
    return now_ns() - begun_ns;
  }

  // Whether a series of measurements may end: a few of them, so that one disturbance is not the
  // median, unless they take very long.
  static bool enough(size_t found, int64_t elapsed_ns) {
    return (found >= kFewest && elapsed_ns > 50 * kMillisecond) ||
           (found >= 2 && elapsed_ns > 120 * kMillisecond);
  }

  // Between the ends of requests that follow each other closely: up to so many, fewer on a slow
  // disk.
  std::vector<int64_t> intervals(bool write, size_t count) {
    std::vector<int64_t> found;
    std::deque<Channel::Ticket> under_way;
    const int64_t begun_ns = now_ns();
    int64_t last_ns = begun_ns;
    for (int64_t i = 0; found.size() < count && !enough(found.size(), last_ns - begun_ns); ++i) {
      under_way.push_back(begin(write, i % places_ * request_bytes_, request_bytes_));
      if (static_cast<int64_t>(under_way.size()) == std::min(kUnderWay, places_)) {
        channel_.wait(under_way.front());
        under_way.pop_front();
        found.push_back(now_ns() - last_ns);
        last_ns += found.back();
      }
    }
    for (const Channel::Ticket ticket : under_way) {
      channel_.wait(ticket);
    }
    return found;
  }

  // Requests end in bursts, since several are under way: the median is over groups of them.
  double bandwidth(bool write) {
    const std::vector<int64_t> found = intervals(write, kGroups * kGroup);
    const size_t group = std::clamp<size_t>(found.size() / 3, 1, kGroup);
    std::vector<int64_t> sums;
    for (size_t i = 0; i + group <= found.size(); i += group) {
      sums.push_back(std::accumulate(found.begin() + static_cast<std::ptrdiff_t>(i),
                                     found.begin() + static_cast<std::ptrdiff_t>(i + group),
                                     int64_t{0}));
    }
    return static_cast<double>(request_bytes_) * static_cast<double>(group) * 1e9 /
           static_cast<double>(median(sums));
  }

  int64_t latency() {
    const int64_t bytes = std::max<int64_t>(channel_.alignment_bytes(), 4096);
    std::vector<int64_t> found;
    const int64_t begun_ns = now_ns();
    while (found.size() < kSmallRequests && !enough(found.size(), now_ns() - begun_ns)) {
      found.push_back(once(found.size() % 2 == 0, bytes));
    }
    return median(std::move(found));
  }

  Channel& channel_;
  int64_t scratch_bytes_;
  Scratch scratch_;
  int64_t request_bytes_ = 0;
  int64_t places_ = 0;
};

}  // namespace

ChannelSpeed measure_channel(Channel& channel, int64_t scratch_bytes) {
  if (scratch_bytes < 2 * MiB) {
    throw Error(concat("[offload] a channel cannot be measured with ", format_bytes(scratch_bytes),
                       " of memory; expected at least 2 MiB"));
  }
  Measurement measurement(channel, scratch_bytes / MiB * MiB);
  try {
    return measurement.run();
  } catch (...) {
    channel.drain();  // before the memory goes
    throw;
  }
}

}  // namespace remat::detail
