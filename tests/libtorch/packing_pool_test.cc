// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <utility>

#include "remat/libtorch/packing_kernels.h"
#include "tests/libtorch/packing_fixture.h"

namespace remat::testing {
namespace {

using detail::can_pack;
using detail::PackFormat;
using detail::PackRule;

// A pooling as ATen does it, and the format of its indices as they lie in memory.
struct Pooling {
  std::vector<int64_t> kernel = {};
  std::vector<int64_t> stride = {};
  std::vector<int64_t> padding = {};
  std::vector<int64_t> dilation = {};
  bool ceil_mode = false;
  bool adaptive = false;  // to outputs of size `kernel`
};

std::pair<PackFormat, at::Tensor> pool(const Pooling& pooling, const at::Tensor& x) {
  const bool deep = x.dim() == 5;
  at::Tensor indices;
  if (pooling.adaptive) {
    indices = deep ? std::get<1>(at::adaptive_max_pool3d(x, pooling.kernel))
                   : std::get<1>(at::adaptive_max_pool2d(x, pooling.kernel));
  } else {
    const auto& [kernel, stride, padding, dilation, ceil_mode, adaptive] = pooling;
    indices = deep ? std::get<1>(at::max_pool3d_with_indices(x, kernel, stride, padding, dilation,
                                                             ceil_mode))
                   : std::get<1>(at::max_pool2d_with_indices(x, kernel, stride, padding, dilation,
                                                             ceil_mode));
  }
  PackFormat format{
      .rule = PackRule::pool_offsets, .dtype = indices.scalar_type(), .elements = indices.numel()};
  const auto first = static_cast<int64_t>(3 - pooling.kernel.size());
  for (int64_t i = first; i < 3; ++i) {
    detail::PoolDimension& along = format.pool.dimensions[i];
    const size_t at = i - first;
    along.in = x.size(2 + at);
    along.out = indices.size(2 + at);
    if (pooling.adaptive) {
      along.kernel = (along.in + along.out - 1) / along.out + 1;
    } else {
      along.kernel = pooling.kernel[at];
      along.stride = pooling.stride[at];
      along.padding = pooling.padding[at];
      along.dilation = pooling.dilation[at];
    }
  }
  format.pool.adaptive = pooling.adaptive;
  if (!indices.is_contiguous()) {
    EXPECT_TRUE(indices.is_contiguous(deep ? at::MemoryFormat::ChannelsLast3d
                                           : at::MemoryFormat::ChannelsLast));
    format.pool.channels_last = indices.size(1);
    indices = deep ? indices.permute({0, 2, 3, 4, 1}) : indices.permute({0, 2, 3, 1});
  }
  return {format, indices.contiguous().flatten()};
}

const std::vector<Pooling> kPoolings = {
    {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}, .dilation = {1, 1}},
    {.kernel = {2, 2}, .stride = {2, 2}, .padding = {0, 0}, .dilation = {1, 1}},
    {.kernel = {2, 5}, .stride = {1, 3}, .padding = {1, 2}, .dilation = {1, 1}, .ceil_mode = true},
    {.kernel = {3, 3}, .stride = {1, 2}, .padding = {0, 1}, .dilation = {2, 3}, .ceil_mode = true},
    {.kernel = {13, 13}, .stride = {1, 1}, .padding = {6, 6}, .dilation = {1, 1}},
    {.kernel = {16, 16}, .stride = {1, 1}, .padding = {0, 0}, .dilation = {1, 1}},
    {.kernel = {17, 19},
     .stride = {1, 1},
     .padding = {0, 0},
     .dilation = {1, 1}},  // the whole plane: too many places
    {.kernel = {5, 4}, .adaptive = true},
    {.kernel = {3, 2, 2}, .stride = {2, 2, 1}, .padding = {1, 0, 1}, .dilation = {1, 1, 1}},
    {.kernel = {3, 2, 3}, .stride = {1, 1, 1}, .padding = {0, 1, 1}, .dilation = {1, 2, 2}},
    {.kernel = {4, 3, 7}, .adaptive = true},
};

at::Tensor pool_input(const Pooling& pooling, bool channels_last, int64_t channels) {
  const bool deep = pooling.kernel.size() == 3;
  at::Tensor x = at::randn(deep ? std::vector<int64_t>{2, channels, 6, 9, 8}
                                : std::vector<int64_t>{2, channels, 17, 19});
  x.flatten()
      .slice(0, 0, 1000, 7)
      .fill_(std::nanf(""));      // where all are NaN or -inf, an index is given as well
  if (!deep || !channels_last) {  // there, ATen gives index 0 for a window that has nothing else
    x.flatten().slice(0, 2000, 2600).fill_(-std::numeric_limits<float>::infinity());
  }
  if (channels_last) {
    x = x.contiguous(deep ? at::MemoryFormat::ChannelsLast3d : at::MemoryFormat::ChannelsLast);
  }
  return x;
}

TEST(PackingPool, PoolIndices) {
  torch::manual_seed(7);
  in_every_setting([] {
    for (const Pooling& pooling : kPoolings) {
      for (const bool channels_last : {false, true}) {
        for (const int64_t channels : {3, 64, 70}) {
          const auto [format, indices] =
              pool(pooling, pool_input(pooling, channels_last, channels));
          SCOPED_TRACE(::testing::Message() << "kernel " << pooling.kernel << ", channels_last "
                                            << channels_last << ", " << channels);
          if (pooling.kernel == std::vector<int64_t>{17, 19}) {
            EXPECT_FALSE(can_pack(format));
            continue;
          }
          ASSERT_TRUE(can_pack(format));
          expect_round_trip(format, indices);
        }
      }
    }
  });
}

TEST(PackingPool, IndicesOutsideOfTheirWindowAreRefused) {
  torch::manual_seed(8);
  in_every_setting([] {
    for (const bool channels_last : {false, true}) {
      const Pooling& pooling = kPoolings.front();
      const auto [format, indices] = pool(pooling, pool_input(pooling, channels_last, 200));
      // Column 5 of row 8 lies in the windows of outputs 2 and 3, 4 only; none of the tried
      // elements has one of these.
      for (const int64_t wrong : {int64_t{8 * 19 + 5}, int64_t{-1}, int64_t{1} << 32,
                                  (int64_t{1} << 32) + 1, std::numeric_limits<int64_t>::min()}) {
        expect_found_anywhere(format, indices, wrong);
      }
    }
  });
}

// Windows next to an index that is right: one before, one behind, one row above and below.
TEST(PackingPool, AnIndexJustOutsideIsRefused) {
  const at::Tensor x = at::zeros({1, 1, 9, 9});
  const auto [format, indices] =
      pool({.kernel = {2, 2}, .stride = {3, 3}, .padding = {0, 0}, .dilation = {1, 1}}, x);
  in_every_setting([&, &format = format, &indices = indices] {
    const int64_t begin = 3 * 9 + 3;  // of the window of output 4
    for (int64_t index = 0; index < 81; ++index) {
      const at::Tensor changed = indices.clone();
      changed[4] = index;
      const bool inside =
          index == begin || index == begin + 1 || index == begin + 9 || index == begin + 10;
      EXPECT_EQ(packs(format, changed), inside) << index;
    }
  });
}

}  // namespace
}  // namespace remat::testing
