// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <type_traits>
#include <utility>

#include "remat/libtorch/packing_loops.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// Between kBlock elements and the bits of one word: bit i belongs to element i.
namespace remat::detail {

inline int64_t words_of(int64_t elements) { return (elements + kBlock - 1) / kBlock; }

// The bits of kBlock elements from any element on; zeros behind the last word.
REMAT_INLINE uint64_t bits_at(const void* words, int64_t word_count, int64_t element) {
  const int64_t i = element / kBlock;
  const auto shift = static_cast<int>(element % kBlock);
  const uint64_t low = load<uint64_t>(words, i) >> shift;
  return shift == 0 || i + 1 == word_count ? low
                                           : low | load<uint64_t>(words, i + 1) << (kBlock - shift);
}

// Calls work with a zero of the unsigned integer of `bytes` bytes (1, 2, 4 or 8), to tell the type.
template <class Work>
auto with_unsigned(int64_t bytes, const Work& work) {
  return bytes == 1   ? work(uint8_t{})
         : bytes == 2 ? work(uint16_t{})
         : bytes == 4 ? work(uint32_t{})
                      : work(uint64_t{});
}

// A vector of elements. It is handed on by reference: how it is by value depends on the machine.
template <class T, int bytes>
struct LanesOf {
  typedef T Type __attribute__((vector_size(bytes)));
  typedef T Anywhere __attribute__((vector_size(bytes), aligned(1), may_alias));
};
template <class T, int bytes>
using Lanes = typename LanesOf<T, bytes>::Type;

template <class T, int bytes>
REMAT_INLINE void load_lanes(const void* from, Lanes<T, bytes>& lanes) {
  lanes = *static_cast<const typename LanesOf<T, bytes>::Anywhere*>(from);
}
template <class T, int bytes>
REMAT_INLINE void store_lanes(void* to, const Lanes<T, bytes>& lanes) {
  *static_cast<typename LanesOf<T, bytes>::Anywhere*>(to) = lanes;
}

template <class T, int bytes>
REMAT_INLINE bool any_bit(const Lanes<T, bytes>& lanes) {
  uint64_t found = 0;
  for (int i = 0; i < bytes / 8; ++i) {
    found |= load<uint64_t>(&lanes, i);
  }
  return found != 0;
}

// In lane i bit i or, for lanes of a byte, bit i % 8.
template <class U, int bytes>
inline constexpr auto kBitOfLane = [] {
  std::array<U, bytes / sizeof(U)> bits{};
  for (size_t i = 0; i < bits.size(); ++i) {
    bits[i] = static_cast<U>(U{1} << (sizeof(U) == 1 ? i % 8 : i));
  }
  return bits;
}();

// Lane i becomes byte i / 8 of `bits`: two for each 16 lanes, the most that a machine shuffles.
template <int bytes, size_t... i>
REMAT_INLINE void spread_bytes(uint64_t bits, Lanes<uint8_t, bytes>& lanes,
                               std::index_sequence<i...> /*all lanes*/) {
  using Copy = std::conditional_t<bytes == 16, uint16_t, uint32_t>;
  const Lanes<Copy, bytes> copies = Lanes<Copy, bytes>{} + static_cast<Copy>(bits);
  const auto from = (Lanes<uint8_t, bytes>)copies;
#if defined(__clang__)
  lanes = __builtin_shufflevector(from, from, (i / 16 * 16 + i / 8)...);
#else
  const Lanes<uint8_t, bytes> byte_of_lane = {static_cast<uint8_t>(i / 16 * 16 + i / 8)...};
  lanes = __builtin_shuffle(from, byte_of_lane);
#endif
}

// From the lowest bits to masks: lanes with all bits set or with none.
template <class U, int bytes>
REMAT_INLINE void masks_of(uint64_t bits, Lanes<U, bytes>& masks) {
  Lanes<U, bytes> bit_of_lane;
  load_lanes<U, bytes>(kBitOfLane<U, bytes>.data(), bit_of_lane);
  Lanes<U, bytes> copies;  // through the reference, the compiler would write them lane by lane
  if constexpr (sizeof(U) > 1) {
    copies = Lanes<U, bytes>{} + static_cast<U>(bits);
  } else {
    spread_bytes<bytes>(bits, copies, std::make_index_sequence<bytes>());
  }
  masks = (Lanes<U, bytes>)((copies & bit_of_lane) == bit_of_lane);
}

// From masks to bits.
template <class U>
REMAT_INLINE uint64_t word_of(const std::array<U, kBlock>& masks) {
  std::array<uint8_t, kBlock> bytes;
  for (int64_t i = 0; i < kBlock; ++i) {
    bytes[i] = static_cast<uint8_t>(masks[i]);
  }
  uint64_t word = 0;
#if defined(__SSE2__)
  for (int i = 0; i < 4; ++i) {
    word |= uint64_t{static_cast<uint16_t>(_mm_movemask_epi8(load<__m128i>(bytes.data(), i)))}
            << (16 * i);
  }
#else
  for (int64_t i = 0; i < kBlock; ++i) {
    word |= uint64_t{bytes[i] & 1u} << i;
  }
#endif
  return word;
}

}  // namespace remat::detail
