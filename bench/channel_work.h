// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

// What channel_bench moves, and what computes meanwhile.
namespace remat::bench {

inline double seconds(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}
inline double wall() { return seconds(CLOCK_MONOTONIC); }

inline double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  return samples[samples.size() / 2];
}

// In huge pages, as arenas are, or in small ones; full of bytes that no disk can make smaller.
class Memory {
 public:
  explicit Memory(int64_t bytes, bool huge = true) : bytes_(static_cast<size_t>(bytes)) {
    void* const found =
        mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) {
      throw std::runtime_error("no memory");
    }
    begin_ = static_cast<char*>(found);
    madvise(begin_, bytes_, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    uint64_t word = 1;
    for (size_t i = 0; i < bytes_; i += 8) {
      word = word * 6364136223846793005u + 1442695040888963407u;
      std::memcpy(begin_ + i, &word, 8);
    }
  }
  ~Memory() { munmap(begin_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* at(int64_t offset) const { return begin_ + offset; }

 private:
  size_t bytes_;
  char* begin_ = nullptr;
};

// A product of matrices that stay in the cache.
inline void multiply(std::vector<float>& memory) {
  constexpr int64_t n = 160;
  float* const a = memory.data();
  float* const b = a + n * n;
  float* const c = b + n * n;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < n; ++k) {
      const float factor = a[i * n + k];
      for (int64_t j = 0; j < n; ++j) {
        c[i * n + j] += factor * b[k * n + j];
      }
    }
  }
}

// Past the caches.
inline void add(std::vector<float>& memory) {
  const size_t half = memory.size() / 2;
  for (size_t i = 0; i < half; ++i) {
    memory[i] += memory[i + half];
  }
}

// The caller and one more thread, which do the same amount of work at every op and wait for each
// other, at first without sleeping, as OpenMP's threads do.
class Kernels {
 public:
  Kernels(bool in_cache, double op_seconds) : in_cache_(in_cache) {
    for (std::vector<float>& each : memory_) {
      each.assign(in_cache ? 160 * 160 * 3 : 16 << 20, 0.5f);
    }
    other_ = std::thread([this] {
      for (int64_t op = 1;; ++op) {
        wait_for(begun_, op);
        if (ending_) {
          return;
        }
        work(memory_[1]);
        ended_ = op;
        ended_.notify_one();
      }
    });
    double fastest = op_seconds;
    for (int i = 0; i < 10; ++i) {  // of a busy machine, what is its own
      const double begun = wall();
      run();
      fastest = std::min(fastest, wall() - begun);
    }
    repeats_ = std::max<int64_t>(1, static_cast<int64_t>(op_seconds / fastest));
  }
  ~Kernels() {
    ending_ = true;
    begin();
    other_.join();
  }
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;

  void run() {
    begin();
    work(memory_[0]);
    wait_for(ended_, begun_);
  }

 private:
  void begin() {
    ++begun_;
    begun_.notify_one();
  }
  static void wait_for(const std::atomic<int64_t>& count, int64_t op) {
    for (int i = 0; i < 100'000 && count < op; ++i) {
    }
    for (int64_t found = count; found < op; found = count) {
      count.wait(found);
    }
  }
  void work(std::vector<float>& memory) const {
    for (int64_t i = 0; i < repeats_; ++i) {
      in_cache_ ? multiply(memory) : add(memory);
    }
  }

  bool in_cache_;
  int64_t repeats_ = 1;
  std::vector<float> memory_[2];
  std::atomic<int64_t> begun_ = 0;  // ops
  std::atomic<int64_t> ended_ = 0;  // by the other thread
  std::atomic<bool> ending_ = false;
  std::thread other_;
};

}  // namespace remat::bench
