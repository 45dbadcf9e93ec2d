// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/packing_loops.h"

#include <ATen/Parallel.h>
#include <ATen/TensorIterator.h>
#include <ATen/ops/from_blob.h>

#include <atomic>

namespace remat::detail {
namespace {

std::atomic<Vectors>& chosen() {
  static std::atomic<Vectors> vectors = widest_vectors();
  return vectors;
}

// ATen's threads meet inside of OpenMP, where ThreadSanitizer does not see it. This is what it sees
// instead: what was written before the work begins is there for every thread, and what threads
// wrote is there after it.
std::atomic<int64_t> meeting_point = 0;

}  // namespace

Vectors widest_vectors() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c")) {
    return Vectors::avx2;
  }
#endif
  return Vectors::plain;
}

Vectors vectors() { return chosen().load(std::memory_order_relaxed); }
void use_vectors(Vectors use) { chosen() = std::min(use, widest_vectors()); }

void in_threads(int64_t count, int64_t grain, const void* memory,
                c10::function_ref<void(int64_t, int64_t)> work) {
  if (count == 0) {
    return;
  }
  if (count <= grain || at::get_num_threads() == 1 || at::in_parallel_region()) {
    return work(0, count);
  }
  // The addresses of single bytes are the numbers that the loop is called with.
  const at::Tensor bytes = at::from_blob(const_cast<void*>(memory), {count}, at::kByte);
  at::TensorIterator loop = at::TensorIteratorConfig()
                                .check_all_same_dtype(false)
                                .set_check_mem_overlap(false)
                                .resize_outputs(false)
                                .add_output(bytes)
                                .build();
  const auto part = [&](char** data, const int64_t* /*strides*/, int64_t size, int64_t /*rows*/) {
    meeting_point.load(std::memory_order_acquire);
    const int64_t begin = data[0] - static_cast<const char*>(memory);
    work(begin, begin + size);
    meeting_point.fetch_add(1, std::memory_order_release);
  };
  meeting_point.fetch_add(1, std::memory_order_release);
  loop.for_each(part, grain);
  meeting_point.load(std::memory_order_acquire);
}

}  // namespace remat::detail
