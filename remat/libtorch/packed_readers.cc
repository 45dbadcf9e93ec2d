// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packed_readers.h"

#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/hardtanh_backward_cpu_dispatch.h>
#include <ATen/ops/leaky_relu_backward_cpu_dispatch.h>
#include <ATen/ops/mul_cpu_dispatch.h>
#include <ATen/ops/threshold_backward_cpu_dispatch.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <bit>
#include <cmath>

#include "remat/core/error.h"
#include "remat/libtorch/packed_changes.h"
#include "remat/libtorch/packing_bits.h"
#include "remat/libtorch/packing_rules.h"

namespace remat::detail {
namespace {

// Where a NaN is read or made, its bits are those of ATen's kernel, and they depend on where the
// element lies: in one of ATen's vectors, or behind the last one of a thread's share. So the shares
// are divided as ATen divides them, and a tile that begins with a block that holds NaN or infinity
// is given to ATen's kernel. Blocks and tiles are multiples of what that kernel does at once, two
// of its vectors.
constexpr int64_t kTile = 2048;

// Goes over all elements: fast(begin, end) returns how far it came, exact(begin, end) does what it
// would not.
template <class Fast, class Exact>
void over_shares(const PackedPair& pair, const Fast& fast, const Exact& exact) {
  in_threads(pair.format.elements, at::internal::GRAIN_SIZE, pair.in,
             [&](int64_t begin, int64_t end) {
               while ((begin = fast(begin, end)) < end) {
                 const int64_t tile_end = std::min(begin + kTile, end);
                 exact(begin, tile_end);
                 begin = tile_end;
               }
             });
}

// ATen's kernel on a tile, with a tensor of clear and set values in the place of the packed one.
template <class Kernel>
void call_on_tile(const PackedPair& pair, const TwoValues& values, int64_t begin, int64_t end,
                  const Kernel& kernel) {
  std::array<uint64_t, kTile> unpacked;
  with_unsigned(pair.element_bytes(), [&](auto zero) {
    using U = decltype(zero);
    for (int64_t i = begin; i < end; ++i) {
      const bool set = (bits_at(pair.words, words_of(pair.format.elements), i) & 1) != 0;
      store(unpacked.data(), i - begin, static_cast<U>(set ? values.set : values.clear));
    }
  });
  const auto tensor = [&](const void* memory) {
    return at::from_blob(const_cast<void*>(memory), {end - begin}, pair.format.dtype);
  };
  at::Tensor out = tensor(byte_at(pair.out, begin * pair.element_bytes()));
  kernel(out, tensor(byte_at(pair.in, begin * pair.element_bytes())), tensor(unpacked.data()));
}

// A number in the bits of an element, and back.
uint64_t bits_of(c10::ScalarType dtype, float value) {
  switch (dtype) {
    case c10::ScalarType::Float: return std::bit_cast<uint32_t>(value);
    case c10::ScalarType::Double: return std::bit_cast<uint64_t>(double{value});
    case c10::ScalarType::BFloat16: return c10::BFloat16(value).x;
    default: return c10::Half(value).x;
  }
}

double value_of(c10::ScalarType dtype, uint64_t bits) {
  switch (dtype) {
    case c10::ScalarType::Float: return std::bit_cast<float>(static_cast<uint32_t>(bits));
    case c10::ScalarType::Double: return std::bit_cast<double>(bits);
    case c10::ScalarType::BFloat16:
      return c10::BFloat16(static_cast<uint16_t>(bits), c10::BFloat16::from_bits());
    default: return c10::Half(static_cast<uint16_t>(bits), c10::Half::from_bits());
  }
}

// What is to ATen's comparisons as the packed tensor was: not above 0, or above it and below 2.
TwoValues zero_or_one(c10::ScalarType dtype) {
  return {.clear = bits_of(dtype, 0), .set = bits_of(dtype, 1)};
}

}  // namespace

void packed_threshold_backward(const PackFormat& format, const void* packed, const void* grad,
                               void* out) {
  REMAT_ASSERT(format.rule == PackRule::above && format.nan_is_above && can_pack(format));
  const PackedPair pair{format, packed, grad, out};
  const auto threshold_backward = [](at::Tensor& to, const at::Tensor& g, const at::Tensor& x) {
    at::cpu::threshold_backward_out(to, g, x, 0);
  };
  over_shares(
      pair, [&](int64_t begin, int64_t end) { return select_elements(pair, begin, end); },
      [&](int64_t begin, int64_t end) {
        call_on_tile(pair, zero_or_one(format.dtype), begin, end, threshold_backward);
      });
}

void packed_hardtanh_backward(const PackFormat& format, const void* packed, const void* grad,
                              void* out) {
  REMAT_ASSERT(format.rule == PackRule::between && can_pack(format));
  const PackedPair pair{format, packed, grad, out};
  const auto hardtanh_backward = [](at::Tensor& to, const at::Tensor& g, const at::Tensor& x) {
    at::cpu::hardtanh_backward_out(to, g, x, 0, 2);
  };
  over_shares(
      pair, [&](int64_t begin, int64_t end) { return select_elements(pair, begin, end); },
      [&](int64_t begin, int64_t end) {
        call_on_tile(pair, zero_or_one(format.dtype), begin, end, hardtanh_backward);
      });
}

void packed_leaky_relu_backward(const PackFormat& format, const void* packed, const void* grad,
                                double slope, void* out) {
  REMAT_ASSERT(format.rule == PackRule::above && !format.nan_is_above && format.low == 0 &&
               can_pack(format));
  const PackedPair pair{format, packed, grad, out};
  const auto leaky_relu_backward = [&](at::Tensor& to, const at::Tensor& g, const at::Tensor& x) {
    at::cpu::leaky_relu_backward_out(to, g, x, slope, /*self_is_result=*/false);
  };
  over_shares(
      pair,
      [&](int64_t begin, int64_t end) {
        return std::isfinite(slope) ? scale_elements(pair, {.clear = slope, .set = 1}, begin, end)
                                    : begin;
      },
      [&](int64_t begin, int64_t end) {
        call_on_tile(pair, zero_or_one(format.dtype), begin, end, leaky_relu_backward);
      });
}

void packed_mul(const PackFormat& format, const void* packed, const void* other, bool packed_first,
                void* out) {
  REMAT_ASSERT(format.rule == PackRule::two_values && can_pack(format));
  const auto values = load<TwoValues>(packed, 0);
  const Factors factors = {.clear = value_of(format.dtype, values.clear),
                           .set = value_of(format.dtype, values.set)};
  const bool finite = std::isfinite(factors.clear) && std::isfinite(factors.set);
  const PackedPair pair{format, byte_at(packed, sizeof(TwoValues)), other, out};
  const auto mul = [&](at::Tensor& to, const at::Tensor& x, const at::Tensor& mask) {
    at::cpu::mul_out(to, packed_first ? mask : x, packed_first ? x : mask);
  };
  over_shares(
      pair,
      [&](int64_t begin, int64_t end) {
        return finite ? scale_elements(pair, factors, begin, end) : begin;
      },
      [&](int64_t begin, int64_t end) { call_on_tile(pair, values, begin, end, mul); });
}

}  // namespace remat::detail
