// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/cost.h"

#include <algorithm>

namespace remat::bench {
namespace {

constexpr int64_t kDispatchNs = 2000;
constexpr int64_t kFlopsPerNs = 100;
constexpr int64_t kBytesPerNs = 20;
constexpr int64_t kRandomNumberNs = 2;
constexpr int64_t kLargestPanelBytes = int64_t{4} << 20;
constexpr int64_t kThreads = 2;

}  // namespace

int64_t time_ns(const Work& work) {
  const int64_t kernel_ns = std::max(work.flops / kFlopsPerNs, work.moved_bytes / kBytesPerNs);
  return kDispatchNs + kernel_ns + work.random_numbers * kRandomNumberNs;
}

int64_t matmul_workspace_bytes(int64_t operand_bytes) {
  return std::min(operand_bytes, kLargestPanelBytes);
}

int64_t convolution_workspace_bytes(int64_t weight_bytes, int64_t image_bytes) {
  return weight_bytes + kThreads * image_bytes;
}

}  // namespace remat::bench
