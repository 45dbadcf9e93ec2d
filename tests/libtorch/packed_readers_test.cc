// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packed_readers.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <limits>

#include "tests/libtorch/packing_fixture.h"
#include "tests/libtorch/testing.h"
#include "tests/testing/skip.h"

namespace remat::testing {
namespace {

using detail::PackFormat;
using detail::PackRule;

const std::vector<at::ScalarType> kFloats = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf};

// Enough for ATen to divide them among two threads, so that each share has elements behind its last
// vector.
const std::vector<int64_t> kReaderSizes = {0, 1, 63, 65, 2048 + 64 + 5, 32'768, 70'001};

// Numbers of all kinds; in one of `rare` elements one of NaN (quiet and signalling, with payloads),
// infinities, denormals, the greatest and both zeros.
at::Tensor numbers(at::ScalarType dtype, int64_t size, int64_t rare, bool with_nan = true) {
  at::Tensor x = at::randn({size}, at::kDouble).to(dtype);
  const int bits = 8 * static_cast<int>(at::elementSize(dtype));
  const int exponent_bits = dtype == at::kHalf ? 5 : dtype == at::kDouble ? 11 : 8;
  const int fraction_bits = bits - 1 - exponent_bits;
  const uint64_t sign = uint64_t{1} << (bits - 1);
  const uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << fraction_bits;
  const uint64_t quiet = infinity | uint64_t{1} << (fraction_bits - 1);
  std::vector<uint64_t> patterns = {0, sign,     infinity,     infinity | sign,
                                    1, 1 | sign, infinity - 1, uint64_t{1} << fraction_bits};
  if (with_nan) {
    patterns.insert(patterns.end(),
                    {quiet, quiet | sign, quiet | 5, infinity | 3, infinity | sign | 1});
  }
  std::mt19937_64 random(static_cast<uint64_t>(size) ^ static_cast<uint64_t>(rare));
  for (int64_t i = 0; i < size; ++i) {
    if (random() % rare == 0) {
      std::memcpy(static_cast<char*>(x.mutable_data_ptr()) + i * x.element_size(),
                  &patterns[random() % patterns.size()], x.element_size());
    }
  }
  return x;
}

using Packed = std::function<void(const void* packed, const void* in, void* out)>;

// The reader gives the bits of `expected`, into other memory and over its own input.
void expect_same(const PackFormat& format, const at::Tensor& x, const at::Tensor& in,
                 const at::Tensor& expected, const Packed& reader) {
  const OddMemory from(x);
  const OddMemory other(in);
  const OddMemory wanted(expected);
  OddMemory packed(detail::packed_bytes(format));
  ASSERT_TRUE(detail::pack(format, from.data(), packed.data()))
      << x.scalar_type() << ", " << x.numel();
  OddMemory out(other.bytes());
  reader(packed.data(), other.data(), out.data());
  EXPECT_TRUE(out == wanted) << x.scalar_type() << ", " << x.numel();
  OddMemory same(in);
  reader(packed.data(), same.data(), same.data());
  EXPECT_TRUE(same == wanted) << x.scalar_type() << ", " << x.numel() << ", in place";
}

// How seldom special values are: in every block, in few.
const std::vector<int64_t> kRarities = {3, 500};

template <class Body>
void over_numbers(bool with_nan, const Body& body) {
  torch::manual_seed(1);
  in_every_setting([&] {
    for (const at::ScalarType dtype : kFloats) {
      for (const int64_t size : kReaderSizes) {
        for (const int64_t rare : kRarities) {
          body(numbers(dtype, size, 4, with_nan), numbers(dtype, size, rare));
        }
      }
    }
  });
}

TEST(PackedReaders, ThresholdBackward) {
  over_numbers(true, [](const at::Tensor& x, const at::Tensor& grad) {
    for (const double threshold : {0.0, 0.3}) {
      PackFormat format = format_of(PackRule::above, x);
      format.low = threshold;
      expect_same(format, x, grad, at::threshold_backward(grad, x, threshold),
                  [&](const void* packed, const void* in, void* out) {
                    packed_threshold_backward(format, packed, in, out);
                  });
    }
  });
}

TEST(PackedReaders, HardtanhBackward) {
  over_numbers(false, [](const at::Tensor& x, const at::Tensor& grad) {
    for (const auto& [low, high] : {std::pair{0.0, 6.0}, std::pair{-0.7, 0.1}}) {
      PackFormat format = format_of(PackRule::between, x);
      format.low = low;
      format.high = high;
      expect_same(format, x, grad, at::hardtanh_backward(grad, x, low, high),
                  [&](const void* packed, const void* in, void* out) {
                    packed_hardtanh_backward(format, packed, in, out);
                  });
    }
  });
}

// Why `between` refuses NaN: ATen keeps the gradient behind its last vector, and not inside of
// vectors.
TEST(PackedReaders, HardtanhBackwardOfNaNDependsOnWhereItIs) {
  const at::Tensor x = at::full({1025}, std::nanf(""));
  const at::Tensor result = at::hardtanh_backward(at::ones({1025}), x, 0, 6);
  EXPECT_EQ(result[0].item<float>(), 0);
  EXPECT_EQ(result[1024].item<float>(), 1);
}

TEST(PackedReaders, LeakyReluBackward) {
  over_numbers(true, [](const at::Tensor& x, const at::Tensor& grad) {
    for (const double slope : {0.01, 0.0, -3.0, std::numeric_limits<double>::quiet_NaN()}) {
      PackFormat format = format_of(PackRule::above, x);
      format.nan_is_above = false;
      expect_same(format, x, grad, at::leaky_relu_backward(grad, x, slope, false),
                  [&](const void* packed, const void* in, void* out) {
                    packed_leaky_relu_backward(format, packed, in, slope, out);
                  });
    }
  });
}

TEST(PackedReaders, Mul) {
  over_numbers(true, [](const at::Tensor&, const at::Tensor& other) {
    const double inf = std::numeric_limits<double>::infinity();
    for (const auto& [clear, set] : {std::pair{0.0, 1 / 0.9},
                                     {-0.0, 3e-5},
                                     {0.0, inf},
                                     {2.0, std::nan("")},
                                     {1.0, 1.0},
                                     {1e-3, 6e4}}) {
      const at::Tensor chosen = at::rand({other.numel()}) < 0.6;
      const at::Tensor mask = at::where(chosen, at::full({}, set, other.scalar_type()),
                                        at::full({}, clear, other.scalar_type()));
      const PackFormat format = format_of(PackRule::two_values, mask);
      expect_same(format, mask, other, at::mul(other, mask),
                  [&](const void* packed, const void* in, void* out) {
                    packed_mul(format, packed, in, false, out);
                  });
      expect_same(format, mask, other, at::mul(mask, other),
                  [&](const void* packed, const void* in, void* out) {
                    packed_mul(format, packed, in, true, out);
                  });
    }
  });
}

// What at::Context::setFlushDenormal asks for is seen by packing and by reading, as by ATen.
TEST(PackedReaders, DenormalNumbersTakenForZero) {
  const int threads = at::get_num_threads();
  at::set_num_threads(1);  // it holds for the calling thread
  if (!at::globalContext().setFlushDenormal(true)) {
    REMAT_SKIP("this machine has no such mode");
  }
  for (const at::ScalarType dtype : kFloats) {
    const at::Tensor x = numbers(dtype, 2000, 2);
    const at::Tensor grad = numbers(dtype, 2000, 3);
    const PackFormat above = format_of(PackRule::above, x);
    expect_same(above, x, grad, at::threshold_backward(grad, x, 0),
                [&](const void* packed, const void* in, void* out) {
                  packed_threshold_backward(above, packed, in, out);
                });
    const at::Tensor mask =
        at::where(at::rand({2000}) < 0.5, at::full({}, 1.5, dtype), at::full({}, 0.0, dtype));
    const PackFormat two_values = format_of(PackRule::two_values, mask);
    expect_same(two_values, mask, grad, at::mul(grad, mask),
                [&](const void* packed, const void* in, void* out) {
                  packed_mul(two_values, packed, in, false, out);
                });
  }
  at::globalContext().setFlushDenormal(false);
  at::set_num_threads(threads);
}

// Products at the edges of what the type has: rounding to even, overflow, denormal results.
TEST(PackedReaders, MulRoundsAsATen) {
  in_every_setting([] {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
      const at::Tensor all = at::arange(1 << 16, at::kInt).to(at::kUInt16).view(dtype);
      for (const double factor : {1.0 / 0.9, 1.5, 0.3333, 1e-3, 7e-6, 300.0}) {
        const at::Tensor mask = at::full({1 << 16}, factor, at::kDouble).to(dtype);
        mask[7] = 0;
        const PackFormat format = format_of(PackRule::two_values, mask);
        expect_same(format, mask, all, at::mul(all, mask),
                    [&](const void* packed, const void* in, void* out) {
                      packed_mul(format, packed, in, false, out);
                    });
        const at::Tensor finite = all.masked_select(all.isfinite());
        const PackFormat shorter =
            format_of(PackRule::two_values, mask.slice(0, 0, finite.numel()));
        expect_same(shorter, mask.slice(0, 0, finite.numel()).contiguous(), finite,
                    at::mul(finite, mask.slice(0, 0, finite.numel())),
                    [&](const void* packed, const void* in, void* out) {
                      packed_mul(shorter, packed, in, false, out);
                    });
      }
    }
  });
}

}  // namespace
}  // namespace remat::testing
