// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <c10/util/FunctionRef.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>

// How the kernels of packing go over their elements: on ATen's threads, in vectors that the
// compiler makes of loops. Every kernel is an inlined function of (width of a vector, begin, end)
// over elements; it is compiled once for each kind of vectors, and the widest kind that the machine
// has is chosen at run time.
#define REMAT_INLINE inline __attribute__((always_inline))

namespace remat::detail {

// Elements that become the bits of one word. Threads begin at multiples of it: no two write the
// same word.
inline constexpr int64_t kBlock = 64;

REMAT_INLINE const char* byte_at(const void* memory, int64_t bytes) {
  return static_cast<const char*>(memory) + bytes;
}
REMAT_INLINE char* byte_at(void* memory, int64_t bytes) {
  return static_cast<char*>(memory) + bytes;
}

// Storages begin anywhere: no pointer is assumed to be aligned.
template <class T>
REMAT_INLINE T load(const void* from, int64_t i) {
  T value;
  std::memcpy(&value, byte_at(from, i * static_cast<int64_t>(sizeof(T))), sizeof(T));
  return value;
}

template <class T>
REMAT_INLINE void store(void* to, int64_t i, T value) {
  std::memcpy(byte_at(to, i * static_cast<int64_t>(sizeof(T))), &value, sizeof(T));
}

// The machine's vectors: those that every x86-64 (or other) machine has, or AVX2 with conversions
// of float16.
enum class Vectors : uint8_t { plain, avx2 };
Vectors widest_vectors();
Vectors vectors();              // what kernels use: the widest, unless a test says otherwise
void use_vectors(Vectors use);  // those, or the widest that there are

// Calls work(begin, end) for parts of [0, count) on ATen's threads, divided as ATen's own
// elementwise loops divide so many elements. at::parallel_for does not do it: it is a template, and
// in a library that is not compiled with OpenMP it stays on one thread. `memory` must have `count`
// bytes, and is not touched.
void in_threads(int64_t count, int64_t grain, const void* memory,
                c10::function_ref<void(int64_t, int64_t)> work);

// How many bytes a vector has, for kernels that are written in vectors.
template <int bytes>
using Width = std::integral_constant<int, bytes>;

// The kernel is copied: what it holds by value can then stay in registers, whatever it writes.
template <class Work>
void run_plain(Work work, int64_t begin, int64_t end) {
  work(Width<16>{}, begin, end);
}
#if defined(__x86_64__)
template <class Work>
__attribute__((target("avx2"))) void run_avx2(Work work, int64_t begin, int64_t end) {
  work(Width<32>{}, begin, end);
}
#endif

template <class Work>
void in_vectors(const Work& work, int64_t begin, int64_t end) {
#if defined(__x86_64__)
  if (vectors() == Vectors::avx2) {
    return run_avx2(work, begin, end);
  }
#endif
  run_plain(work, begin, end);
}

// Calls work(begin, end) over elements, in threads; `begin` is a multiple of kBlock.
template <class Work>
void over_threads(int64_t elements, int64_t element_bytes, const void* memory, const Work& work) {
  constexpr int64_t kBytesPerThread = 128 << 10;  // less is not worth to wake a thread for
  const int64_t blocks = (elements + kBlock - 1) / kBlock;
  const int64_t grain = std::max<int64_t>(1, kBytesPerThread / (kBlock * element_bytes));
  in_threads(blocks, grain, memory, [&](int64_t begin, int64_t end) {
    work(begin * kBlock, std::min(end * kBlock, elements));
  });
}

// The same in vectors too.
template <class Work>
void over_blocks(int64_t elements, int64_t element_bytes, const void* memory, const Work& work) {
  over_threads(elements, element_bytes, memory,
               [&](int64_t begin, int64_t end) { in_vectors(work, begin, end); });
}

}  // namespace remat::detail
