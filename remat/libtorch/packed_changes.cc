// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packed_changes.h"

#include <array>
#include <bit>

#include "remat/libtorch/packing_bits.h"
#include "remat/libtorch/packing_half.h"

namespace remat::detail {
namespace {

// The bits that are all set in NaN and infinity.
template <class U>
U exponent_of(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Float: return static_cast<U>(0x7f800000);
    case c10::ScalarType::Double: return static_cast<U>(0x7ff0000000000000);
    case c10::ScalarType::BFloat16: return static_cast<U>(0x7f80);
    default: return static_cast<U>(0x7c00);
  }
}

// Replaces the elements of [begin, end), of type U, by change(width, x, masks): a vector of
// elements and the masks of their bits. Returns `end` or, if `exponent` is not zero, the begin of a
// block with an element in which all bits of it are set; such a block is not written.
template <class U, class Change>
int64_t change_blocks(const PackedPair& pair, U exponent, int64_t begin, int64_t end,
                      const Change& change) {
  int64_t reached = end;
  const auto kernel = [
    =, words = pair.words, in = pair.in, out = pair.out,
    word_count = words_of(pair.format.elements), &reached
  ](auto width, int64_t first, int64_t last) __attribute__((always_inline)) {
    constexpr int kBytes = width;
    using Vector = Lanes<U, kBytes>;
    std::array<U, kBlock> rest;
    for (int64_t i = first; i < last; i += kBlock) {
      const int64_t count = std::min(last - i, kBlock);
      const void* x = byte_at(in, i * static_cast<int64_t>(sizeof(U)));
      void* y = byte_at(out, i * static_cast<int64_t>(sizeof(U)));
      if (count < kBlock) {
        rest.fill(U{});
        std::memcpy(rest.data(), x, count * sizeof(U));
        x = y = rest.data();
      }
      if (exponent != 0) {
        Vector found{};
        for (size_t at = 0; at < sizeof(rest); at += kBytes) {
          Vector lanes;
          load_lanes<U, kBytes>(byte_at(x, at), lanes);
          found |= (Vector)((lanes & exponent) == exponent);
        }
        if (any_bit<U, kBytes>(found)) {
          reached = i;
          return;
        }
      }
      const uint64_t word = bits_at(words, word_count, i);
      for (size_t at = 0; at < sizeof(rest); at += kBytes) {
        Vector lanes, masks;
        load_lanes<U, kBytes>(byte_at(x, at), lanes);
        masks_of<U, kBytes>(word >> (at / sizeof(U)), masks);
        change(width, lanes, masks);
        store_lanes<U, kBytes>(byte_at(y, at), lanes);
      }
      if (count < kBlock) {
        std::memcpy(byte_at(out, i * static_cast<int64_t>(sizeof(U))), rest.data(),
                    count * sizeof(U));
      }
    }
  };
  in_vectors(kernel, begin, end);
  return reached;
}

template <class Float, class U>
int64_t scale_floats(const PackedPair& pair, const Factors& factors, int64_t begin, int64_t end) {
  const auto clear = std::bit_cast<U>(static_cast<Float>(factors.clear));
  const auto both = static_cast<U>(clear ^ std::bit_cast<U>(static_cast<Float>(factors.set)));
  return change_blocks<U>(
      pair, exponent_of<U>(pair.format.dtype), begin,
      end, [=](auto width, auto& x, const auto& masks) __attribute__((always_inline)) {
        using Floats = Lanes<Float, width>;
        x = (Lanes<U, width>)((Floats)x * (Floats)(clear ^ (both & masks)));
      });
}

// In pairs: the first of a pair lies in the lower half of 32 bits. Rounded to the nearest, ties to
// even.
int64_t scale_bfloat16(const PackedPair& pair, const Factors& factors, int64_t begin, int64_t end) {
  const auto clear = std::bit_cast<uint32_t>(static_cast<float>(factors.clear));
  const auto both = clear ^ std::bit_cast<uint32_t>(static_cast<float>(factors.set));
  return change_blocks<uint16_t>(
      pair, exponent_of<uint16_t>(pair.format.dtype), begin,
      end, [=](auto width, auto& x, const auto& masks) __attribute__((always_inline)) {
        using Floats = Lanes<float, width>;
        using Pairs = Lanes<uint32_t, width>;
        using Signed = Lanes<int32_t, width>;
        constexpr uint32_t kUpper = 0xffff0000;
        const Pairs pairs = (Pairs)x;
        const Pairs first_mask = (Pairs)((Signed)((Pairs)masks << 16) >> 31);
        const Pairs second_mask = (Pairs)((Signed)masks >> 31);
        const Pairs first = (Pairs)((Floats)(pairs << 16) * (Floats)(clear ^ (both & first_mask)));
        const Pairs second =
            (Pairs)((Floats)(pairs & kUpper) * (Floats)(clear ^ (both & second_mask)));
        x = (Lanes<uint16_t, width>)((first + 0x7fff + (first >> 16 & 1)) >> 16 |
                                     ((second + 0x7fff + (second >> 16 & 1)) & kUpper));
      });
}

// Block by block, with the machine's conversions.
int64_t scale_half(const PackedPair& pair, const Factors& factors, int64_t begin, int64_t end) {
  const auto clear = static_cast<float>(factors.clear);
  const auto set = static_cast<float>(factors.set);
  const int64_t words = words_of(pair.format.elements);
  for (; begin + kBlock <= end; begin += kBlock) {
    if (!scale_half_block(bits_at(pair.words, words, begin), clear, set,
                          byte_at(pair.in, begin * 2), byte_at(pair.out, begin * 2))) {
      return begin;
    }
  }
  if (begin == end) {
    return end;
  }
  std::array<uint16_t, kBlock> rest{};
  std::memcpy(rest.data(), byte_at(pair.in, begin * 2), (end - begin) * 2);
  if (!scale_half_block(bits_at(pair.words, words, begin), clear, set, rest.data(), rest.data())) {
    return begin;
  }
  std::memcpy(byte_at(pair.out, begin * 2), rest.data(), (end - begin) * 2);
  return end;
}

bool is_reduced(c10::ScalarType dtype) {
  return dtype == c10::ScalarType::BFloat16 || dtype == c10::ScalarType::Half;
}

}  // namespace

// Only types that ATen converts to float32 and back change a NaN.
int64_t select_elements(const PackedPair& pair, int64_t begin, int64_t end) {
  return with_unsigned(pair.element_bytes(), [&](auto zero) {
    using U = decltype(zero);
    const U exponent = is_reduced(pair.format.dtype) ? exponent_of<U>(pair.format.dtype) : U{};
    return change_blocks<U>(
        pair, exponent, begin, end,
        [](auto, auto& x, const auto& masks) __attribute__((always_inline)) { x &= masks; });
  });
}

int64_t scale_elements(const PackedPair& pair, const Factors& factors, int64_t begin, int64_t end) {
  switch (pair.format.dtype) {
    case c10::ScalarType::Float: return scale_floats<float, uint32_t>(pair, factors, begin, end);
    case c10::ScalarType::Double: return scale_floats<double, uint64_t>(pair, factors, begin, end);
    case c10::ScalarType::BFloat16: return scale_bfloat16(pair, factors, begin, end);
    default: return scale_half(pair, factors, begin, end);
  }
}

}  // namespace remat::detail
