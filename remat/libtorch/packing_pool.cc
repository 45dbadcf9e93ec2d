// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <vector>

#include "remat/libtorch/packing_bits.h"
#include "remat/libtorch/packing_rules.h"

// A max pooling gives for each output the index of an input in its plane, depth x height x width.
// The input lies in the output's window, so that its place there, counted through, is enough:
//
//   a plane 4 wide, windows 2 x 2, stride 2: the second output's window begins at index 2
//
//      0  1 [2  3]     places 0 1 2 3 of any window lie 0 1 4 5 after its begin
//      4  5 [6  7]     index 7 = 2 + 5 is packed as 3
namespace remat::detail {
namespace {

constexpr int64_t kMostPlaces = 256;  // what a byte can count

int64_t positions(const PoolWindows& pool) {
  return pool.dimensions[0].out * pool.dimensions[1].out * pool.dimensions[2].out;
}

int64_t window_begin(const PoolWindows& pool, const PoolDimension& along, int64_t output) {
  return pool.adaptive ? output * along.in / along.out : output * along.stride - along.padding;
}

// Where each output's window begins in its plane; before it where there is padding.
std::vector<int32_t> window_begins(const PoolWindows& pool) {
  const auto& [depth, height, width] = pool.dimensions;
  std::vector<int32_t> begins;
  for (int64_t d = 0; d < depth.out; ++d) {
    for (int64_t h = 0; h < height.out; ++h) {
      for (int64_t w = 0; w < width.out; ++w) {
        const int64_t rows =
            window_begin(pool, depth, d) * height.in + window_begin(pool, height, h);
        begins.push_back(static_cast<int32_t>(rows * width.in + window_begin(pool, width, w)));
      }
    }
  }
  // At least a block, and another one behind the last, so that a block can begin anywhere.
  const size_t plane = begins.size();
  const size_t whole_planes = (kBlock + plane - 1) / plane * plane;
  for (size_t i = 0; begins.size() < std::max(plane, whole_planes) + kBlock; ++i) {
    begins.push_back(begins[i]);
  }
  return begins;
}

// Goes over the outputs in the order in which they lie in memory, from `first` on, and tells where
// their windows begin.
class Cursor {
 public:
  Cursor(const PoolWindows& pool, const std::vector<int32_t>& begins, int64_t first)
      : begins_(begins.data()),
        positions_(static_cast<int64_t>(begins.size()) - kBlock),
        channels_(pool.channels_last),
        position_(first / channels_ % positions_),
        channel_(first % channels_) {}

  // Of the next block of outputs.
  REMAT_INLINE const int32_t* next_block() {
    if (channels_ == 1) {
      const int32_t* const block = begins_ + position_;
      position_ += kBlock;
      position_ -= position_ >= positions_ ? positions_ : 0;
      return block;
    }
    for (int64_t i = 0, count = 0; i < kBlock; i += count) {
      count = std::min(kBlock - i, channels_ - channel_);
      if (count == kBlock) {
        block_.fill(begins_[position_]);
      } else {
        std::fill_n(block_.data() + i, count, begins_[position_]);
      }
      channel_ += count;
      if (channel_ == channels_) {
        channel_ = 0;
        position_ = position_ + 1 == positions_ ? 0 : position_ + 1;
      }
    }
    return block_.data();
  }

 private:
  const int32_t* begins_;
  int64_t positions_;
  int64_t channels_;
  int64_t position_;
  int64_t channel_;
  std::array<int32_t, kBlock> block_;
};

// From the distance after a window's begin to the place that lies there, step by step: if at least
// `taken` is left, it is taken off and `given` is added. What is left in the end, at most `rest`,
// is a number of places itself. The way back is the same with both exchanged.
struct Steps {
  struct Step {
    int32_t taken;
    int32_t given;
    int32_t less_than_taken = taken - 1;
  };

  Steps(const PoolWindows& pool, bool to_places) {
    const auto& [depth, height, width] = pool.dimensions;
    const auto add = [&](const PoolDimension& along, int64_t inputs, int64_t places) {
      const auto distance = static_cast<int32_t>(along.dilation * inputs);
      const auto count = static_cast<int32_t>(places);
      steps.insert(steps.end(), along.kernel - 1,
                   to_places ? Step{distance, count} : Step{count, distance});
    };
    add(depth, height.in * width.in, height.kernel * width.kernel);
    add(height, width.in, width.kernel);
    if (width.dilation == 1) {
      rest = static_cast<int32_t>(width.kernel - 1);
    } else {
      add(width, 1, 1);
    }
  }

  // Of a block of numbers. Adds to `outside` a sign for each of which more than `rest`, or less
  // than 0, is left.
  template <int bytes>
  REMAT_INLINE void walk(std::array<int32_t, kBlock>& numbers,
                         Lanes<int32_t, bytes>& outside) const {
    using Vector = Lanes<int32_t, bytes>;
    constexpr int kTogether = 4;  // vectors that fit into the registers
    for (size_t at = 0; at < sizeof(numbers); at += kTogether * bytes) {
      Vector left[kTogether], sum[kTogether];
      for (int i = 0; i < kTogether; ++i) {
        load_lanes<int32_t, bytes>(byte_at(numbers.data(), at + i * bytes), left[i]);
        sum[i] = Vector{};
      }
      for (const Step& step : steps) {
        for (int i = 0; i < kTogether; ++i) {
          const Vector reached = left[i] > step.less_than_taken;
          left[i] -= reached & step.taken;
          sum[i] += reached & step.given;
        }
      }
      for (int i = 0; i < kTogether; ++i) {
        outside |= left[i] | (left[i] > rest);
        store_lanes<int32_t, bytes>(byte_at(numbers.data(), at + i * bytes), sum[i] + left[i]);
      }
    }
  }

  std::vector<Step> steps;
  int32_t rest = 0;
};

// Calls block(first, count) for whole blocks of elements and for what is behind them.
template <class Block>
REMAT_INLINE void over_whole_blocks(int64_t begin, int64_t end, const Block& block) {
  for (; begin + kBlock <= end; begin += kBlock) {
    block(begin, kBlock);
  }
  if (begin < end) {
    block(begin, end - begin);
  }
}

}  // namespace

bool can_pack_pool_offsets(const PackFormat& format) {
  constexpr int64_t kMost = 1 << 20;
  const PoolWindows& pool = format.pool;
  int64_t places = 1;
  double reach = 1;    // no distance is above three times that
  double outputs = 1;  // of a plane
  for (const PoolDimension& each : pool.dimensions) {
    for (const int64_t number : {each.in, each.out, each.kernel, each.stride, each.dilation}) {
      if (number < 1 || number > kMost) {
        return false;
      }
    }
    const int64_t padded = each.in + 2 * each.padding;
    if (each.padding < 0 || each.padding > each.kernel ||
        (each.kernel - 1) * each.dilation > padded ||
        (!pool.adaptive && (each.out - 1) * each.stride > padded)) {
      return false;
    }
    places *= std::min(each.kernel, kMostPlaces + 1);
    reach *= static_cast<double>(padded);
    outputs *= static_cast<double>(each.out);
  }
  constexpr int64_t kMostInPlane = 1 << 28;
  return format.dtype == c10::ScalarType::Long && places <= kMostPlaces && reach <= kMostInPlane &&
         outputs <= kMostInPlane && pool.channels_last >= 1 && pool.channels_last <= kMostInPlane &&
         format.elements % (positions(pool) * pool.channels_last) == 0;
}

bool pack_pool_offsets(const PackFormat& format, const void* from, void* to) {
  if (format.elements == 0) {
    return true;
  }
  const std::vector<int32_t> begins = window_begins(format.pool);
  const Steps steps(format.pool, /*to_places=*/true);
  std::atomic<bool> all_inside = true;
  const auto kernel = [ =, &format, &begins, &steps, &all_inside ](
      auto width, int64_t begin, int64_t end) __attribute__((always_inline)) {
    Cursor cursor(format.pool, begins, begin);
    Lanes<int32_t, width> outside{};
    uint64_t high = 0;  // bits of indices that no plane has
    over_whole_blocks(
        begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
          const int32_t* const window = cursor.next_block();
          std::array<int32_t, kBlock> numbers;
          for (int64_t k = 0; k < count; ++k) {
            const auto index = load<uint64_t>(from, first + k);
            high |= index >> 31;
            numbers[k] = static_cast<int32_t>(static_cast<uint32_t>(index) -
                                              static_cast<uint32_t>(window[k]));
          }
          std::fill(numbers.begin() + count, numbers.end(), 0);
          steps.walk<width>(numbers, outside);
          for (int64_t k = 0; k < count; ++k) {
            store(to, first + k, static_cast<uint8_t>(numbers[k]));
          }
        });
    const Lanes<int32_t, width> is_outside = outside < 0;
    if (high != 0 || any_bit<int32_t, width>(is_outside)) {
      all_inside = false;
    }
  };
  over_blocks(format.elements, sizeof(int64_t), from, kernel);
  return all_inside;
}

void unpack_pool_offsets(const PackFormat& format, const void* from, void* to) {
  if (format.elements == 0) {
    return;
  }
  const std::vector<int32_t> begins = window_begins(format.pool);
  const Steps steps(format.pool, /*to_places=*/false);
  const auto kernel = [ =, &format, &begins, &steps ](auto width, int64_t begin, int64_t end)
      __attribute__((always_inline)) {
    Cursor cursor(format.pool, begins, begin);
    Lanes<int32_t, width> outside{};  // cannot be: pack() has looked
    over_whole_blocks(
        begin, end, [&](int64_t first, int64_t count) __attribute__((always_inline)) {
          const int32_t* const window = cursor.next_block();
          std::array<int32_t, kBlock> numbers;
          for (int64_t k = 0; k < count; ++k) {
            numbers[k] = load<uint8_t>(from, first + k);
          }
          std::fill(numbers.begin() + count, numbers.end(), 0);
          steps.walk<width>(numbers, outside);
          for (int64_t k = 0; k < count; ++k) {
            store(to, first + k, int64_t{window[k] + numbers[k]});
          }
        });
  };
  over_blocks(format.elements, sizeof(int64_t), to, kernel);
}

}  // namespace remat::detail
