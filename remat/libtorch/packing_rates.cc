// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packing_rates.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>
#include <vector>

#include "remat/core/error.h"
#include "remat/core/units.h"
#include "remat/libtorch/device.h"

namespace remat::detail {
namespace {

using c10::ScalarType;

// Nanoseconds per element, of packing and of unpacking.
struct Rates {
  double pack_ns = 0;
  double unpack_ns = 0;
};
constexpr double kCallNs = 5'000;  // to share the work among threads
constexpr int64_t kBytes = 32 * MiB;
constexpr int64_t kMixed = 256 * KiB;  // elements that differ, and planes of a pooling; then the same again
constexpr int kRounds = 3;

// Of so many bytes, as large as can be. Poolings: planes of 64 x 64 with windows of 2 x 2.
PackFormat of_bytes(PackFormat format, int64_t bytes) {
  constexpr PoolDimension kAlong{.in = 64, .out = 32, .kernel = 2, .stride = 2};
  format.elements = bytes / static_cast<int64_t>(c10::elementSize(format.dtype));
  if (format.rule == PackRule::pool_offsets) {
    format.pool = {.dimensions = {PoolDimension{}, kAlong, kAlong}};
    format.elements = format.elements / (kAlong.out * kAlong.out) * kAlong.out * kAlong.out;
  }
  format.narrow_base = 0;
  format.low = 0;
  format.high = 6;
  return format;
}

// Of the n-th element: what the rule can pack, and so mixed that no processor foresees it.
uint64_t element(const PackFormat& format, int64_t n) {
  const uint64_t random = static_cast<uint64_t>(n) * 6364136223846793005u >> 40;
  const auto bits_of = [](auto value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(value));
    return bits;
  };
  switch (format.rule) {
    case PackRule::two_values:
    case PackRule::bools: return random % 2;
    case PackRule::narrow: return random % 128;  // in a byte, whatever its sign
    case PackRule::pool_offsets: {
      const PoolDimension& along = format.pool.dimensions[2];
      const int64_t output = n % (along.out * along.out);
      const int64_t row = output / along.out * along.stride + static_cast<int64_t>(random % 2);
      const int64_t column = output % along.out * along.stride + static_cast<int64_t>(random / 2 % 2);
      return static_cast<uint64_t>(row * along.in + column);
    }
    case PackRule::above:
    case PackRule::between:
    case PackRule::from_bfloat16:
    case PackRule::from_half: break;
  }
  const auto number = static_cast<float>(static_cast<int64_t>(random % 64) - 32) / 4;  // half can hold it
  switch (format.dtype) {
    case ScalarType::Double: return bits_of(static_cast<double>(number));
    case ScalarType::Half: return bits_of(c10::Half(number));
    case ScalarType::BFloat16: return bits_of(c10::BFloat16(number));
    default: return bits_of(number);
  }
}

Rates measure_rates(PackFormat format) {
  format = of_bytes(format, kBytes);
  const auto item = c10::elementSize(format.dtype);
  std::vector<char> plain(static_cast<size_t>(format.elements) * item);
  for (int64_t i = 0; i < kMixed; ++i) {
    const uint64_t bits = element(format, i);
    std::memcpy(plain.data() + static_cast<size_t>(i) * item, &bits, std::min(item, sizeof(bits)));
  }
  for (size_t done = kMixed * item; done < plain.size();) {
    const size_t more = std::min(done, plain.size() - done);
    std::memcpy(plain.data() + done, plain.data(), more);
    done += more;
  }
  std::vector<char> packed(static_cast<size_t>(packed_bytes(format)));
  Rates best{.pack_ns = std::numeric_limits<double>::max(), .unpack_ns = std::numeric_limits<double>::max()};
  const auto elements = static_cast<double>(format.elements);
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start_ns = cpu_device().now_ns();
    const bool as_expected = pack(format, plain.data(), packed.data());
    const int64_t packed_ns = cpu_device().now_ns();
    if (!as_expected) {
      throw std::logic_error(concat("remat: internal error: rates are measured on values that cannot be packed (rule ",
                                    static_cast<int>(format.rule), ")"));
    }
    if (can_unpack(format.rule)) unpack(format, packed.data(), plain.data());
    const int64_t end_ns = cpu_device().now_ns();
    best.pack_ns = std::min(best.pack_ns, static_cast<double>(packed_ns - start_ns) / elements);
    best.unpack_ns = std::min(best.unpack_ns, static_cast<double>(end_ns - packed_ns) / elements);
  }
  return best;
}

const Rates& rates_of(const PackFormat& format) {
  using Key = std::tuple<PackRule, ScalarType, int64_t, int>;
  thread_local std::map<Key, Rates> known;
  const Key key{format.rule, format.dtype, format.narrow_bytes, at::get_num_threads()};
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, measure_rates(format)).first->second;
}

}  // namespace

int64_t expected_pack_ns(const PackFormat& format) {
  return static_cast<int64_t>(kCallNs + rates_of(format).pack_ns * static_cast<double>(format.elements));
}

int64_t expected_unpack_ns(const PackFormat& format) {
  return static_cast<int64_t>(kCallNs + rates_of(format).unpack_ns * static_cast<double>(format.elements));
}

}  // namespace remat::detail
