// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packing_half.h"

#include <c10/util/Half.h>

#include <bit>

#include "remat/libtorch/packing_bits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace remat::detail {
namespace {

constexpr int64_t kLanes = 8;  // of the machine's instructions
constexpr int16_t kHalfInfinity = 0x7c00;

float float_of(uint16_t half) { return c10::Half(half, c10::Half::from_bits()); }

#if defined(__x86_64__)
__attribute__((target("avx2,f16c"))) void half_to_float_lanes(const void* from, void* to,
                                                              int64_t count) {
  for (int64_t i = 0; i < count; i += kLanes) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(byte_at(from, i * 2)));
    _mm256_storeu_ps(reinterpret_cast<float*>(byte_at(to, i * 4)), _mm256_cvtph_ps(half));
  }
}

__attribute__((target("avx2,f16c"))) bool float_to_half_lanes(const void* from, void* to,
                                                              int64_t count) {
  __m256i lost = _mm256_setzero_si256();
  for (int64_t i = 0; i < count; i += kLanes) {
    const __m256 x = _mm256_loadu_ps(reinterpret_cast<const float*>(byte_at(from, i * 4)));
    const __m128i half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m256i back = _mm256_castps_si256(_mm256_cvtph_ps(half));
    lost = _mm256_or_si256(lost, _mm256_xor_si256(_mm256_castps_si256(x), back));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(byte_at(to, i * 2)), half);
  }
  return _mm256_testz_si256(lost, lost) != 0;
}

__attribute__((target("avx2,f16c"))) bool scale_half_block_lanes(uint64_t bits, float clear,
                                                                 float set, const void* from,
                                                                 void* to) {
  const __m256i infinity = _mm256_set1_epi16(kHalfInfinity);
  __m256i found = _mm256_setzero_si256();
  for (int64_t i = 0; i < kBlock; i += 2 * kLanes) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(byte_at(from, i * 2)));
    const __m256i exponent = _mm256_and_si256(x, infinity);
    found = _mm256_or_si256(found, _mm256_cmpeq_epi16(exponent, infinity));
  }
  if (_mm256_testz_si256(found, found) == 0) {
    return false;
  }
  for (int64_t i = 0; i < kBlock; i += kLanes) {
    Lanes<uint32_t, 32> masks;
    masks_of<uint32_t, 32>(bits >> i, masks);
    const __m256 factor =
        _mm256_blendv_ps(_mm256_set1_ps(clear), _mm256_set1_ps(set), (__m256)masks);
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(byte_at(from, i * 2)));
    const __m256 product = _mm256_mul_ps(_mm256_cvtph_ps(half), factor);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(byte_at(to, i * 2)),
                     _mm256_cvtps_ph(product, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
  }
  return true;
}
#endif

int64_t in_lanes(int64_t count) {
  return vectors() == Vectors::plain ? 0 : count / kLanes * kLanes;
}

}  // namespace

void half_to_float(const void* from, void* to, int64_t count) {
#if defined(__x86_64__)
  half_to_float_lanes(from, to, in_lanes(count));
#endif
  for (int64_t i = in_lanes(count); i < count; ++i) {
    store(to, i, float_of(load<uint16_t>(from, i)));
  }
}

bool float_to_half(const void* from, void* to, int64_t count) {
  bool same = true;
#if defined(__x86_64__)
  same = float_to_half_lanes(from, to, in_lanes(count));
#endif
  for (int64_t i = in_lanes(count); i < count; ++i) {
    const c10::Half half(load<float>(from, i));
    same &= std::bit_cast<uint32_t>(static_cast<float>(half)) == load<uint32_t>(from, i);
    store(to, i, half.x);
  }
  return same;
}

bool scale_half_block(uint64_t bits, float clear, float set, const void* from, void* to) {
#if defined(__x86_64__)
  if (vectors() == Vectors::avx2) {
    return scale_half_block_lanes(bits, clear, set, from, to);
  }
#endif
  for (int64_t i = 0; i < kBlock; ++i) {
    if ((load<int16_t>(from, i) & kHalfInfinity) == kHalfInfinity) {
      return false;
    }
  }
  for (int64_t i = 0; i < kBlock; ++i) {
    const float x = float_of(load<uint16_t>(from, i));
    store(to, i, c10::Half(x * ((bits >> i & 1) != 0 ? set : clear)).x);
  }
  return true;
}

}  // namespace remat::detail
