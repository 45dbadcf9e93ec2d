// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "remat/libtorch/packing_kernels.h"
#include "remat/libtorch/packing_loops.h"

namespace remat::testing {

// Memory that begins at an odd address, with bytes around it that must not change.
class OddMemory {
 public:
  explicit OddMemory(int64_t bytes) : bytes_(bytes), memory_(bytes + 2 * kAround, kUntouched) {}
  explicit OddMemory(const at::Tensor& tensor) : OddMemory(static_cast<int64_t>(tensor.nbytes())) {
    if (tensor.numel() > 0) {
      std::memcpy(data(), tensor.const_data_ptr(), tensor.nbytes());
    }
  }
  ~OddMemory() {
    for (int64_t i = 0; i < kAround; ++i) {
      EXPECT_EQ(memory_[i], kUntouched) << kAround - i << " bytes before the memory";
      EXPECT_EQ(memory_[kAround + bytes_ + i], kUntouched) << i << " bytes behind the memory";
    }
  }
  OddMemory(const OddMemory&) = delete;
  OddMemory& operator=(const OddMemory&) = delete;
  char* data() { return memory_.data() + kAround; }
  const char* data() const { return memory_.data() + kAround; }
  int64_t bytes() const { return bytes_; }
  bool operator==(const OddMemory& other) const {
    return bytes_ == other.bytes_ && std::memcmp(data(), other.data(), bytes_) == 0;
  }

 private:
  static constexpr int64_t kAround = 71;
  static constexpr char kUntouched = 0x5a;
  int64_t bytes_;
  std::vector<char> memory_;
};

// Calls body with one thread and with two, and with every kind of vectors that the machine has.
template <class Body>
void in_every_setting(const Body& body) {
  const int threads = at::get_num_threads();
  for (const int use_threads : {1, 2}) {
    for (const auto use : {detail::Vectors::plain, detail::Vectors::avx2}) {
      if (use > detail::widest_vectors()) {
        continue;
      }
      at::set_num_threads(use_threads);
      detail::use_vectors(use);
      SCOPED_TRACE(::testing::Message()
                   << use_threads << " threads, vectors " << static_cast<int>(use));
      body();
    }
  }
  at::set_num_threads(threads);
  detail::use_vectors(detail::widest_vectors());
}

// Blocks of 64 elements and what is behind them; the last is enough for two threads whatever the
// type.
inline const std::vector<int64_t> kSizes = {0, 1, 2, 7, 8, 9, 63, 64, 65, 127, 1000, 140'037};

inline detail::PackFormat format_of(detail::PackRule rule, const at::Tensor& tensor) {
  return {.rule = rule, .dtype = tensor.scalar_type(), .elements = tensor.numel()};
}

inline bool packs(const detail::PackFormat& format, const at::Tensor& tensor) {
  const OddMemory from(tensor);
  OddMemory to(detail::packed_bytes(format));
  return detail::pack(format, from.data(), to.data());
}

// The same bytes come back.
inline void expect_round_trip(const detail::PackFormat& format, const at::Tensor& tensor) {
  SCOPED_TRACE(::testing::Message() << "rule " << static_cast<int>(format.rule) << ", "
                                    << tensor.numel() << " of " << tensor.scalar_type());
  const OddMemory from(tensor);
  OddMemory packed(detail::packed_bytes(format));
  OddMemory back(from.bytes());
  ASSERT_TRUE(detail::pack(format, from.data(), packed.data()));
  detail::unpack(format, packed.data(), back.data());
  EXPECT_TRUE(back == from);
}

// A tensor with one element set to `wrong` is refused wherever it is.
template <class T>
void expect_found_anywhere(const detail::PackFormat& format, const at::Tensor& tensor, T wrong) {
  ASSERT_EQ(tensor.element_size(), sizeof(T));
  const int64_t last = tensor.numel() - 1;
  for (const int64_t at : {int64_t{0}, int64_t{1}, last / 3, last / 2 / 64 * 64,
                           last / 2 / 64 * 64 + 63, last - 1, last}) {
    SCOPED_TRACE(::testing::Message() << "rule " << static_cast<int>(format.rule) << ", element "
                                      << at << " of " << last + 1);
    const at::Tensor changed = tensor.clone();
    std::memcpy(static_cast<char*>(changed.mutable_data_ptr()) + at * sizeof(T), &wrong, sizeof(T));
    EXPECT_FALSE(packs(format, changed));
  }
}

}  // namespace remat::testing
