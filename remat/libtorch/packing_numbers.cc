// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "remat/libtorch/packing_half.h"
#include "remat/libtorch/packing_loops.h"
#include "remat/libtorch/packing_rules.h"

namespace remat::detail {
namespace {

// Calls work with a zero of the packed type, narrower than `Wide`.
template <class Wide, class Work>
auto with_narrower(int64_t bytes, const Work& work) {
  if constexpr (sizeof(Wide) == 2) {
    return work(uint8_t{});
  } else if constexpr (sizeof(Wide) == 4) {
    return bytes == 1 ? work(uint8_t{}) : work(uint16_t{});
  } else {
    return bytes == 1 ? work(uint8_t{}) : bytes == 2 ? work(uint16_t{}) : work(uint32_t{});
  }
}

template <class Work>
auto with_widths(const PackFormat& format, const Work& work) {
  switch (c10::elementSize(format.dtype)) {
    case 2:
      return with_narrower<uint16_t>(format.narrow_bytes,
                                     [&](auto narrow) { return work(uint16_t{}, narrow); });
    case 4:
      return with_narrower<uint32_t>(format.narrow_bytes,
                                     [&](auto narrow) { return work(uint32_t{}, narrow); });
    default:
      return with_narrower<uint64_t>(format.narrow_bytes,
                                     [&](auto narrow) { return work(uint64_t{}, narrow); });
  }
}

// Packs elements of type Wide one by one: to_narrow(x) is kept, and lost(x) is not zero where that
// is not enough.
template <class Wide, class ToNarrow, class Lost>
bool pack_numbers(const PackFormat& format, const void* from, void* to, const ToNarrow& to_narrow,
                  const Lost& lost) {
  std::atomic<bool> all_kept = true;
  const auto kernel =
      [ =, &all_kept ](auto, int64_t begin, int64_t end) __attribute__((always_inline)) {
    Wide bits = 0;
    for (int64_t i = begin; i < end; ++i) {
      const auto x = load<Wide>(from, i);
      bits |= lost(x);
      store(to, i, to_narrow(x));
    }
    if (bits != 0) {
      all_kept = false;
    }
  };
  over_blocks(format.elements, sizeof(Wide), from, kernel);
  return all_kept;
}

template <class Narrow, class ToWide>
void unpack_numbers(const PackFormat& format, const void* from, void* to, const ToWide& to_wide) {
  const auto kernel = [=](auto, int64_t begin, int64_t end) __attribute__((always_inline)) {
    for (int64_t i = begin; i < end; ++i) {
      store(to, i, to_wide(load<Narrow>(from, i)));
    }
  };
  over_blocks(format.elements, c10::elementSize(format.dtype), to, kernel);
}

}  // namespace

bool pack_narrow(const PackFormat& format, const void* from, void* to) {
  return with_widths(format, [&](auto wide, auto narrow) {
    using Wide = decltype(wide);
    using Narrow = decltype(narrow);
    const auto base = static_cast<Wide>(format.narrow_base);
    return pack_numbers<Wide>(
        format, from,
        to, [=](Wide x) __attribute__((always_inline)) { return static_cast<Narrow>(x - base); },
        [=](Wide x) __attribute__((always_inline)) {
          return static_cast<Wide>(static_cast<Wide>(x - base) >> (8 * sizeof(Narrow)));
        });
  });
}

void unpack_narrow(const PackFormat& format, const void* from, void* to) {
  with_widths(format, [&](auto wide, auto narrow) {
    using Wide = decltype(wide);
    const auto base = static_cast<Wide>(format.narrow_base);
    unpack_numbers<decltype(narrow)>(
        format, from,
        to, [=](auto x) __attribute__((always_inline)) { return static_cast<Wide>(x + base); });
  });
}

bool pack_from_bfloat16(const PackFormat& format, const void* from, void* to) {
  return pack_numbers<uint32_t>(
      format, from, to,
      [](uint32_t x) __attribute__((always_inline)) { return static_cast<uint16_t>(x >> 16); },
      [](uint32_t x) __attribute__((always_inline)) { return x & 0xffff; });
}

void unpack_from_bfloat16(const PackFormat& format, const void* from, void* to) {
  unpack_numbers<uint16_t>(
      format, from, to,
      [](uint16_t x) __attribute__((always_inline)) { return uint32_t{x} << 16; });
}

bool pack_from_half(const PackFormat& format, const void* from, void* to) {
  std::atomic<bool> all_kept = true;
  over_threads(format.elements, sizeof(float), from, [&](int64_t begin, int64_t end) {
    if (!float_to_half(byte_at(from, begin * 4), byte_at(to, begin * 2), end - begin)) {
      all_kept = false;
    }
  });
  return all_kept;
}

void unpack_from_half(const PackFormat& format, const void* from, void* to) {
  over_threads(format.elements, sizeof(float), to, [&](int64_t begin, int64_t end) {
    half_to_float(byte_at(from, begin * 2), byte_at(to, begin * 4), end - begin);
  });
}

}  // namespace remat::detail
