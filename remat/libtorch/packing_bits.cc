// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packing_bits.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <atomic>
#include <bit>

#include "remat/libtorch/packing_rules.h"

namespace remat::detail {
namespace {

// Packs one bit for each element, of type U. classify(width, x, set, wrong) looks at a vector of
// elements at x: it gives the masks of those whose bit is set, and adds to `wrong` a bit for any
// that the rule does not know.
template <class U, class Classify>
bool pack_bits(const PackFormat& format, const void* from, void* to, const Classify& classify) {
  std::atomic<bool> all_known = true;
  const auto kernel =
      [ =, &all_known ](auto width, int64_t begin, int64_t end) __attribute__((always_inline)) {
    constexpr int kBytes = width;
    Lanes<U, kBytes> wrong{};
    std::array<U, kBlock> last;
    for (int64_t i = begin; i < end; i += kBlock) {
      const void* x = byte_at(from, i * static_cast<int64_t>(sizeof(U)));
      const int64_t count = std::min(end - i, kBlock);
      if (count < kBlock) {  // made a whole block of by elements that are known
        last.fill(load<U>(x, 0));
        std::memcpy(last.data(), x, count * sizeof(U));
        x = last.data();
      }
      std::array<U, kBlock> masks;
      for (size_t at = 0; at < sizeof(masks); at += kBytes) {
        Lanes<U, kBytes> set;
        classify(width, byte_at(x, at), set, wrong);
        store_lanes<U, kBytes>(byte_at(masks.data(), at), set);
      }
      store(to, i / kBlock, word_of(masks) & (~uint64_t{} >> (kBlock - count)));
    }
    if (any_bit<U, kBytes>(wrong)) {
      all_known = false;
    }
  };
  over_blocks(format.elements, sizeof(U), from, kernel);
  return all_known;
}

// Writes clear for the bits that are not set, and clear ^ change for those that are.
template <class U>
void unpack_bits(const PackFormat& format, const void* words, void* to, U clear, U change) {
  const auto kernel = [=](auto width, int64_t begin, int64_t end) __attribute__((always_inline)) {
    constexpr int kBytes = width;
    std::array<U, kBlock> last;
    for (int64_t i = begin; i < end; i += kBlock) {
      const bool whole = end - i >= kBlock;
      void* const block = byte_at(to, i * static_cast<int64_t>(sizeof(U)));
      const auto word = load<uint64_t>(words, i / kBlock);
      for (size_t at = 0; at < sizeof(last); at += kBytes) {
        Lanes<U, kBytes> masks;
        masks_of<U, kBytes>(word >> (at / sizeof(U)), masks);
        store_lanes<U, kBytes>(byte_at(whole ? block : last.data(), at), clear ^ (change & masks));
      }
      if (!whole) {
        std::memcpy(block, last.data(), (end - i) * sizeof(U));
      }
    }
  };
  over_blocks(format.elements, sizeof(U), to, kernel);
}

// Of `value`, which is the first; the number of elements if all are the same.
template <class U>
int64_t first_different(const PackFormat& format, const void* from, U value) {
  int64_t i = 0;
  // A stretch that equals the one that begins an element later holds the same value throughout.
  constexpr int64_t kStretch = 4096;
  constexpr int64_t kBytes = sizeof(U);
  while (i + kStretch < format.elements &&
         std::memcmp(byte_at(from, i * kBytes), byte_at(from, (i + 1) * kBytes),
                     kStretch * kBytes) == 0) {
    i += kStretch;
  }
  while (i < format.elements && load<U>(from, i) == value) {
    ++i;
  }
  return i;
}

// How a vector of elements is compared with the bounds of a format: as ATen's kernels do it. What
// pack_bits asks for is made by rule(not_at_most_low, above_low, at_least_high, is_nan, set, wrong)
// of the masks of these comparisons, of which all but the first and the last are false for NaN.
template <class Float, class Integer>
struct Comparison {
  using U = Integer;
  explicit Comparison(const PackFormat& format)
      : low(static_cast<Float>(format.low)), high(static_cast<Float>(format.high)) {}
  template <int bytes, class Rule>
  REMAT_INLINE void operator()(Width<bytes>, const Rule& rule, const void* from,
                               Lanes<U, bytes>& set, Lanes<U, bytes>& wrong) const {
    using Masks = Lanes<U, bytes>;
    Lanes<Float, bytes> x;
    load_lanes<Float, bytes>(from, x);
    rule(~(Masks)(x <= low), (Masks)(x > low), (Masks)(x >= high), (Masks)(x != x), set, wrong);
  }
  Float low;
  Float high;
};

// bfloat16 and float16 are compared by their places in the order of all their numbers: that of a
// positive number is its bits, that of -0 is -1, and -infinity has the least. ATen compares them as
// float32. So does the search for the places of the bounds, and it sees, as ATen does, whether this
// thread takes denormal numbers for 0.
template <class Reduced, int16_t kInfinity>
struct ReducedComparison {
  using U = uint16_t;
  explicit ReducedComparison(const PackFormat& format)
      : at_most_low(
            last_place([low = static_cast<float>(format.low)](float x) { return x <= low; })),
        below_high(
            last_place([high = static_cast<float>(format.high)](float x) { return x < high; })) {}

  // The greatest place whose number is `before` a bound, as all below it are; one below the least
  // if none is.
  template <class Before>
  static int16_t last_place(const Before& before) {
    int last = -kInfinity - 2;
    for (int step = 1 << 15; step > 0; step /= 2) {
      const int place = last + step;
      const auto bits = static_cast<uint16_t>(place < 0 ? place ^ 0x7fff : place);
      if (place <= kInfinity && before(static_cast<float>(Reduced(bits, Reduced::from_bits())))) {
        last = place;
      }
    }
    return static_cast<int16_t>(last);
  }

  template <int bytes, class Rule>
  REMAT_INLINE void operator()(Width<bytes>, const Rule& rule, const void* from,
                               Lanes<U, bytes>& set, Lanes<U, bytes>& wrong) const {
    using Masks = Lanes<U, bytes>;
    Lanes<int16_t, bytes> x;
    load_lanes<int16_t, bytes>(from, x);
    const Lanes<int16_t, bytes> place = x ^ (x >> 15 & 0x7fff);
    const Masks is_nan = (Masks)((x & 0x7fff) > kInfinity);
    const Masks above_low = (Masks)(place > at_most_low);
    rule(above_low | is_nan, above_low & ~is_nan, (Masks)(place > below_high) & ~is_nan, is_nan,
         set, wrong);
  }
  int16_t at_most_low;
  int16_t below_high;
};
using BFloat16Comparison = ReducedComparison<c10::BFloat16, 0x7f80>;
using HalfComparison = ReducedComparison<c10::Half, 0x7c00>;

template <class Compare>
bool pack_compared(const PackFormat& format, const void* from, void* to) {
  using U = typename Compare::U;
  const Compare compare(format);
  const auto packed_by = [&](const auto& rule) {
    return pack_bits<U>(
        format, from,
        to, [=](auto width, const void* x, auto& set, auto& wrong) __attribute__((always_inline)) {
          compare(width, rule, x, set, wrong);
        });
  };
  if (format.rule == PackRule::between) {
    return packed_by([](const auto&, const auto& above_low, const auto& at_least_high,
                        const auto& is_nan, auto& set, auto& wrong) __attribute__((always_inline)) {
      set = above_low & ~at_least_high;
      wrong |= is_nan;
    });
  }
  if (format.nan_is_above) {
    return packed_by(
        [](const auto& not_at_most_low, const auto&, const auto&, const auto&, auto& set, auto&)
            __attribute__((always_inline)) { set = not_at_most_low; });
  }
  return packed_by([](const auto&, const auto& above_low, const auto&, const auto&, auto& set,
                      auto&) __attribute__((always_inline)) { set = above_low; });
}

}  // namespace

bool pack_two_values(const PackFormat& format, const void* from, void* to) {
  return with_unsigned(c10::elementSize(format.dtype), [&](auto zero) {
    using U = decltype(zero);
    const U clear = format.elements == 0 ? U{} : load<U>(from, 0);
    const int64_t other = first_different(format, from, clear);
    const U set = other == format.elements ? clear : load<U>(from, other);
    store(to, 0, TwoValues{.clear = clear, .set = set});
    return pack_bits<U>(
        format, from, byte_at(to, sizeof(TwoValues)),
        [=](auto width, const void* at, auto& is_set, auto& wrong) __attribute__((always_inline)) {
          using Vector = Lanes<U, width>;
          Vector x;
          load_lanes<U, width>(at, x);
          is_set = (Vector)(x == set);
          wrong |= ~(is_set | (Vector)(x == clear));
        });
  });
}

void unpack_two_values(const PackFormat& format, const void* from, void* to) {
  with_unsigned(c10::elementSize(format.dtype), [&](auto zero) {
    using U = decltype(zero);
    const auto values = load<TwoValues>(from, 0);
    unpack_bits(format, byte_at(from, sizeof(TwoValues)), to, static_cast<U>(values.clear),
                static_cast<U>(values.clear ^ values.set));
  });
}

bool pack_bools(const PackFormat& format, const void* from, void* to) {
  return pack_bits<uint8_t>(
      format, from, to,
      [](auto width, const void* at, auto& set, auto& wrong) __attribute__((always_inline)) {
        using Vector = Lanes<uint8_t, width>;
        Vector x;
        load_lanes<uint8_t, width>(at, x);
        set = (Vector)(x == 1);
        wrong |= x & 0xfe;
      });
}

void unpack_bools(const PackFormat& format, const void* from, void* to) {
  unpack_bits<uint8_t>(format, from, to, 0, 1);
}

bool pack_comparison(const PackFormat& format, const void* from, void* to) {
  switch (format.dtype) {
    case c10::ScalarType::Float:
      return pack_compared<Comparison<float, uint32_t>>(format, from, to);
    case c10::ScalarType::Double:
      return pack_compared<Comparison<double, uint64_t>>(format, from, to);
    case c10::ScalarType::BFloat16: return pack_compared<BFloat16Comparison>(format, from, to);
    default: return pack_compared<HalfComparison>(format, from, to);
  }
}

}  // namespace remat::detail
