// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packing_kernels.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "tests/libtorch/packing_fixture.h"

#if defined(__SANITIZE_THREAD__)
// LibTorch's loops on several threads: ThreadSanitizer sees their copies, but not how OpenMP's
// threads meet.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libtorch_cpu.so"; }
#endif

namespace remat::testing {
namespace {

using detail::can_pack;
using detail::can_unpack;
using detail::pack;
using detail::packed_bytes;
using detail::PackFormat;
using detail::PackRule;
using detail::unpack;

// Elements that are one of two bit patterns.
at::Tensor two_patterns(at::ScalarType dtype, int64_t size, uint64_t first, uint64_t second,
                        double share) {
  at::Tensor tensor = at::empty({size}, dtype);
  const at::Tensor chosen = at::rand({size}) < share;
  const auto* const is_second = chosen.const_data_ptr<bool>();
  for (int64_t i = 0; i < size; ++i) {
    std::memcpy(static_cast<char*>(tensor.mutable_data_ptr()) + i * tensor.element_size(),
                is_second[i] ? &second : &first, tensor.element_size());
  }
  return tensor;
}

// Every float16 or bfloat16 there is.
at::Tensor all_of(at::ScalarType dtype) {
  return at::arange(1 << 16, at::kInt).to(at::kUInt16).view(dtype);
}

at::Tensor special_floats(at::ScalarType dtype, int64_t size) {
  const double tiny = dtype == at::kDouble ? 5e-324 : dtype == at::kHalf ? 6e-8 : 1e-40;
  const double inf = std::numeric_limits<double>::infinity();
  const at::Tensor values = at::tensor({0.0, -0.0, 1.0, -1.0, 6.0, 5.9, tiny, -tiny, inf, -inf,
                                        std::nan(""), -std::nan(""), 0.1, -0.1},
                                       at::kDouble)
                                .to(dtype);
  return values.index_select(0, at::randint(values.numel(), {size}));
}

TEST(PackingKernels, TwoValuesComeBack) {
  torch::manual_seed(1);
  in_every_setting([] {
    for (const int64_t size : kSizes) {
      const auto try_patterns = [&](at::ScalarType dtype, uint64_t first, uint64_t second) {
        for (const double share : {0.1, 0.5, 0.0, 1.0}) {
          const at::Tensor tensor = two_patterns(dtype, size, first, second, share);
          expect_round_trip(format_of(PackRule::two_values, tensor), tensor);
        }
      };
      try_patterns(at::kFloat, 0, 0x3f8e38e4);           // a mask of dropout with p = 0.1
      try_patterns(at::kFloat, 0x80000000, 0x7fc12345);  // -0 and a NaN with a payload
      try_patterns(at::kByte, 0, 0xff);
      try_patterns(at::kBFloat16, 0, 0x3f80);
      try_patterns(at::kHalf, 0x7c01, 0xfe00);  // a signalling NaN
      try_patterns(at::kDouble, 0, 0x3ff0000000000001);
      try_patterns(at::kLong, 0x100000000, 0x200000000);  // differ above 32 bits only
    }
  });
}

TEST(PackingKernels, TwoValuesAreFoundWhereverTheSecondAppears) {
  in_every_setting([] {
    for (const int64_t at : {1, 4095, 4096, 4097, 9000, 139'999}) {
      const at::Tensor tensor = at::zeros({140'000});
      tensor[at] = 2;
      expect_round_trip(format_of(PackRule::two_values, tensor), tensor);
    }
  });
}

TEST(PackingKernels, AThirdValueIsRefused) {
  torch::manual_seed(2);
  in_every_setting([] {
    for (const int64_t size : {67, 300'001}) {
      const at::Tensor floats = two_patterns(at::kFloat, size, 0, 0x3f800000, 0.3);
      expect_found_anywhere(format_of(PackRule::two_values, floats), floats, uint32_t{0x80000000});
      const at::Tensor bytes = two_patterns(at::kByte, size, 3, 4, 0.3);
      expect_found_anywhere(format_of(PackRule::two_values, bytes), bytes, uint8_t{5});
      const at::Tensor halves = two_patterns(at::kHalf, size, 3, 4, 0.3);
      expect_found_anywhere(format_of(PackRule::two_values, halves), halves, uint16_t{0x103});
      const at::Tensor longs = two_patterns(at::kLong, size, 3, 4, 0.3);
      expect_found_anywhere(format_of(PackRule::two_values, longs), longs, uint64_t{3} << 32);
    }
  });
}

TEST(PackingKernels, Bools) {
  torch::manual_seed(3);
  in_every_setting([] {
    for (const int64_t size : kSizes) {
      const at::Tensor tensor = at::rand({size}) < 0.4;
      expect_round_trip(format_of(PackRule::bools, tensor), tensor);
    }
    for (const int64_t size : {67, 300'001}) {
      const at::Tensor tensor = at::rand({size}) < 0.4;
      expect_found_anywhere(format_of(PackRule::bools, tensor), tensor, uint8_t{2});
      expect_found_anywhere(format_of(PackRule::bools, tensor), tensor, uint8_t{0x81});
    }
  });
}

// The bits of above and between are those of the comparisons, for every value that a type of 16
// bits has.
TEST(PackingKernels, ComparisonsKeepTheRightBits) {
  torch::manual_seed(4);
  const auto expect_bits = [](const PackFormat& format, const at::Tensor& tensor,
                              const at::Tensor& expected) {
    const OddMemory from(tensor);
    const OddMemory bools(expected);
    OddMemory packed(packed_bytes(format));
    OddMemory unpacked(tensor.numel());
    ASSERT_TRUE(pack(format, from.data(), packed.data()));
    unpack(format_of(PackRule::bools, expected), packed.data(), unpacked.data());
    EXPECT_TRUE(unpacked == bools)
        << tensor.scalar_type() << " against " << format.low << " and " << format.high;
  };
  const double inf = std::numeric_limits<double>::infinity();
  in_every_setting([&] {
    for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
      const bool is_small = at::elementSize(dtype) == 2;
      const at::Tensor x = is_small ? all_of(dtype) : special_floats(dtype, 1003);
      const at::Tensor wide = dtype == at::kDouble ? x : x.to(at::kFloat);
      const at::Tensor numbers = x.masked_select(x.isfinite() | x.isinf());
      const at::Tensor wide_numbers = wide.masked_select(wide.isnan().logical_not());
      PackFormat above = format_of(PackRule::above, x);
      PackFormat between = format_of(PackRule::between, numbers);
      for (const double low : {0.0, -0.0, 1.0, -1.0, 0.1, 1e-7, 7e4, -7e4, inf, -inf}) {
        above.low = between.low = low;
        above.nan_is_above = true;
        expect_bits(above, x, wide.le(low).logical_not());
        above.nan_is_above = false;
        expect_bits(above, x, wide.gt(low));
        for (const double high : {6.0, 0.0, -0.0, -2.0, 1e-7, inf, -inf}) {
          between.high = high;
          expect_bits(between, numbers, wide_numbers.gt(low) & wide_numbers.lt(high));
        }
      }
    }
  });
}

TEST(PackingKernels, BetweenRefusesNaN) {
  in_every_setting([] {
    for (const int64_t size : {67, 140'037}) {
      const auto format = [&](const at::Tensor& tensor) {
        PackFormat between = format_of(PackRule::between, tensor);
        between.high = 6;
        return between;
      };
      const at::Tensor floats = at::randn({size});
      expect_found_anywhere(format(floats), floats, std::numeric_limits<float>::quiet_NaN());
      const at::Tensor doubles = at::randn({size}, at::kDouble);
      expect_found_anywhere(format(doubles), doubles, -std::numeric_limits<double>::quiet_NaN());
      expect_found_anywhere(format(floats.to(at::kBFloat16)), floats.to(at::kBFloat16),
                            uint16_t{0x7f81});
      expect_found_anywhere(format(floats.to(at::kHalf)), floats.to(at::kHalf), uint16_t{0xfc01});
      EXPECT_TRUE(packs(format(floats), floats));
    }
  });
}

// Integers of `dtype` from `base` on that fit into `bytes` bytes, the least and the greatest among
// them.
at::Tensor narrow_integers(at::ScalarType dtype, int64_t size, int64_t base, int64_t bytes) {
  const int64_t bits = 8 * static_cast<int64_t>(at::elementSize(dtype));
  const int64_t greatest =
      bits == 64 ? std::numeric_limits<int64_t>::max() : (int64_t{1} << (bits - 1)) - 1;
  const int64_t last = std::min(greatest, base + (int64_t{1} << (8 * bytes)) - 1);
  at::Tensor tensor = at::randint(base, last, {size}, at::kLong).to(dtype);
  if (size > 1) {
    tensor[0] = base;
    tensor[size - 1] = last;
  }
  return tensor;
}

TEST(PackingKernels, NarrowIntegers) {
  torch::manual_seed(5);
  in_every_setting([] {
    for (const at::ScalarType dtype : {at::kShort, at::kInt, at::kLong}) {
      for (int64_t bytes = 1; bytes < static_cast<int64_t>(at::elementSize(dtype)); bytes *= 2) {
        for (const int64_t base : {0, -100, 7}) {
          for (const int64_t size : {0, 1, 7, 65, 1000, 70'003}) {
            const at::Tensor tensor = narrow_integers(dtype, size, base, bytes);
            PackFormat format = format_of(PackRule::narrow, tensor);
            format.narrow_base = base;
            format.narrow_bytes = bytes;
            expect_round_trip(format, tensor);
          }
        }
      }
    }
  });
}

TEST(PackingKernels, IntegersOutsideOfTheRangeAreRefused) {
  in_every_setting([] {
    for (const int64_t size : {67, 70'003}) {
      const at::Tensor longs = narrow_integers(at::kLong, size, -100, 1);
      PackFormat format = format_of(PackRule::narrow, longs);
      format.narrow_base = -100;
      expect_found_anywhere(format, longs, int64_t{-101});
      expect_found_anywhere(format, longs, int64_t{156});
      expect_found_anywhere(format, longs, std::numeric_limits<int64_t>::min());
      expect_found_anywhere(format, longs, std::numeric_limits<int64_t>::max());
      const at::Tensor shorts = narrow_integers(at::kShort, size, 0, 1);
      expect_found_anywhere(format_of(PackRule::narrow, shorts), shorts, int16_t{256});
      expect_found_anywhere(format_of(PackRule::narrow, shorts), shorts, int16_t{-1});
    }
  });
}

TEST(PackingKernels, FloatsThatCameFromNarrowerOnes) {
  torch::manual_seed(6);
  in_every_setting([] {
    for (const int64_t size : kSizes) {
      const at::Tensor floats = at::randn({size}) * 100;
      const at::Tensor brain = floats.to(at::kBFloat16).to(at::kFloat);
      expect_round_trip(format_of(PackRule::from_bfloat16, brain), brain);
      const at::Tensor half = floats.to(at::kHalf).to(at::kFloat);
      expect_round_trip(format_of(PackRule::from_half, half), half);
    }
    // Every value, and NaN with every payload: of float16 not the signalling ones, which no
    // conversion leaves as they are.
    const at::Tensor brains = at::empty({1 << 16}, at::kInt);
    std::ranges::generate_n(
        brains.mutable_data_ptr<int32_t>(), 1 << 16,
        [next = uint32_t{0}]() mutable { return static_cast<int32_t>(next++ << 16); });
    expect_round_trip(format_of(PackRule::from_bfloat16, brains.view(at::kFloat)),
                      brains.view(at::kFloat));
    const at::Tensor halves = all_of(at::kHalf);
    const at::Tensor numbers = halves.masked_select(halves.isnan().logical_not()).to(at::kFloat);
    expect_round_trip(format_of(PackRule::from_half, numbers), numbers);
  });
}

TEST(PackingKernels, FloatsThatDidNotAreRefused) {
  in_every_setting([] {
    for (const int64_t size : {67, 140'037}) {
      const at::Tensor ones = at::ones({size});
      const PackFormat brain = format_of(PackRule::from_bfloat16, ones);
      for (const uint32_t bits :
           {0x3f800001u, 0x3f808000u, 0x7fc00001u, 0x00000001u, 0x80000001u}) {
        expect_found_anywhere(brain, ones, bits);
      }
      const PackFormat half = format_of(PackRule::from_half, ones);
      // One bit too many, too large, too small, a denormal, NaN with a payload that float16 has
      // not, signalling NaN.
      for (const uint32_t bits :
           {0x3f801000u, 0x47800000u, 0x33000000u, 0x00000001u, 0x7fc00001u, 0x7f802000u}) {
        expect_found_anywhere(half, ones, bits);
      }
    }
  });
}

TEST(PackingKernels, FormatsThatNoRuleKnows) {
  EXPECT_FALSE(
      can_pack({.rule = PackRule::two_values, .dtype = at::kComplexDouble, .elements = 4}));
  EXPECT_FALSE(can_pack({.rule = PackRule::bools, .dtype = at::kFloat, .elements = 4}));
  EXPECT_FALSE(can_pack({.rule = PackRule::above, .dtype = at::kLong, .elements = 4}));
  EXPECT_FALSE(
      can_pack({.rule = PackRule::above, .dtype = at::kFloat, .elements = 4, .low = std::nan("")}));
  EXPECT_FALSE(can_pack(
      {.rule = PackRule::between, .dtype = at::kFloat, .elements = 4, .high = std::nan("")}));
  EXPECT_FALSE(can_pack({.rule = PackRule::narrow, .dtype = at::kByte, .elements = 4}));
  EXPECT_FALSE(
      can_pack({.rule = PackRule::narrow, .dtype = at::kInt, .elements = 4, .narrow_bytes = 4}));
  EXPECT_FALSE(
      can_pack({.rule = PackRule::narrow, .dtype = at::kLong, .elements = 4, .narrow_bytes = 3}));
  EXPECT_FALSE(can_pack({.rule = PackRule::from_half, .dtype = at::kDouble, .elements = 4}));
  EXPECT_FALSE(can_pack({.rule = PackRule::pool_offsets, .dtype = at::kInt, .elements = 4}));
  EXPECT_FALSE(can_pack({.rule = PackRule::bools, .dtype = at::kBool, .elements = -1}));
  EXPECT_TRUE(can_unpack(PackRule::narrow));
  EXPECT_FALSE(can_unpack(PackRule::above));
  EXPECT_FALSE(can_unpack(PackRule::between));
}

TEST(PackingKernels, PackedBytesCountWords) {
  EXPECT_EQ(packed_bytes({.rule = PackRule::bools, .dtype = at::kBool, .elements = 65}), 16);
  EXPECT_EQ(packed_bytes({.rule = PackRule::above, .dtype = at::kFloat, .elements = 64}), 8);
  EXPECT_EQ(packed_bytes({.rule = PackRule::two_values, .dtype = at::kFloat, .elements = 0}), 16);
  EXPECT_EQ(packed_bytes({.rule = PackRule::two_values, .dtype = at::kFloat, .elements = 1}), 24);
  EXPECT_EQ(packed_bytes(
                {.rule = PackRule::narrow, .dtype = at::kLong, .elements = 5, .narrow_bytes = 2}),
            10);
  EXPECT_EQ(packed_bytes({.rule = PackRule::from_half, .dtype = at::kFloat, .elements = 5}), 10);
}

// The bits behind the last element are clear: equal values are packed into equal bytes.
TEST(PackingKernels, BitsBehindTheLastElementAreClear) {
  in_every_setting([] {
    const OddMemory ones(at::ones({65}, at::kBool));
    const PackFormat format = {.rule = PackRule::bools, .dtype = at::kBool, .elements = 65};
    OddMemory packed(packed_bytes(format));
    ASSERT_TRUE(pack(format, ones.data(), packed.data()));
    EXPECT_EQ(detail::load<uint64_t>(packed.data(), 0), ~uint64_t{});
    EXPECT_EQ(detail::load<uint64_t>(packed.data(), 1), 1);
  });
}

// Whatever the bytes are, what pack() takes comes back, and what it refuses is against the rule.
TEST(PackingKernels, RandomBytesComeBackOrAreRefused) {
  std::mt19937_64 random(9);
  const auto below = [&](uint64_t count) { return static_cast<int64_t>(random() % count); };
  int64_t taken = 0;
  in_every_setting([&] {
    for (int round = 0; round < 400; ++round) {
      const auto rules = {PackRule::two_values, PackRule::bools, PackRule::narrow,
                          PackRule::from_bfloat16, PackRule::from_half};
      const auto dtypes = {at::kByte, at::kShort, at::kInt,   at::kLong,
                           at::kHalf, at::kFloat, at::kDouble};
      PackFormat format{.rule = *(rules.begin() + below(rules.size())),
                        .dtype = *(dtypes.begin() + below(dtypes.size()))};
      format.elements = below(3) == 0 ? below(5) : below(500);
      format.narrow_bytes = int64_t{1} << below(3);
      format.narrow_base = below(3) - 1;
      if (!can_pack(format)) {
        continue;
      }
      const auto element = static_cast<int64_t>(at::elementSize(format.dtype));
      OddMemory from(format.elements * element);
      const uint64_t kept = below(2) == 0 ? ~uint64_t{} << below(64) : ~uint64_t{} >> below(64);
      const uint64_t values = 1 + below(4);
      const uint64_t seed = random();
      for (int64_t i = 0; i < format.elements; ++i) {
        uint64_t value = (seed + random() % values) * 0x9e3779b97f4a7c15 & kept;
        if (format.rule == PackRule::from_half) {
          value = below(2) == 0 ? value
                                : std::bit_cast<uint32_t>(static_cast<float>(
                                      at::Half(static_cast<float>(value % 2049))));
        }
        std::memcpy(from.data() + i * element, &value, element);
      }
      OddMemory packed(packed_bytes(format));
      OddMemory back(from.bytes());
      const bool fits = pack(format, from.data(), packed.data());
      const auto matches = [&](int64_t i) {
        uint64_t x = 0;
        std::memcpy(&x, from.data() + i * element, element);
        const uint64_t all = ~uint64_t{} >> (64 - 8 * element);
        switch (format.rule) {
          case PackRule::bools: return x <= 1;
          case PackRule::narrow:
            return ((x - static_cast<uint64_t>(format.narrow_base)) & all) >>
                       (8 * format.narrow_bytes) ==
                   0;
          case PackRule::from_bfloat16: return (x & 0xffff) == 0;
          default: return true;
        }
      };
      bool expected = true;
      std::set<std::string> patterns;
      for (int64_t i = 0; i < format.elements; ++i) {
        expected &= matches(i);
        patterns.emplace(from.data() + i * element, element);
      }
      expected &= format.rule != PackRule::two_values || patterns.size() <= 2;
      if (format.rule != PackRule::from_half) {
        EXPECT_EQ(fits, expected) << "rule " << static_cast<int>(format.rule) << ", round "
                                  << round;
      }
      if (fits) {
        ++taken;
        unpack(format, packed.data(), back.data());
        EXPECT_TRUE(back == from) << "rule " << static_cast<int>(format.rule) << ", round "
                                  << round;
      }
    }
  });
  EXPECT_GT(taken, 200);
}

}  // namespace
}  // namespace remat::testing
