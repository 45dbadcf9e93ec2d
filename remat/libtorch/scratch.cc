// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/scratch.h"

#include <algorithm>
#include <unordered_map>

#include "remat/core/place.h"

namespace remat::detail {
namespace {

struct Scratch {
  void* address;
  int64_t begin, end;
};

// The first gap among what is live that is large enough.
int64_t first_fit(std::vector<Scratch>& live, int64_t bytes) {
  int64_t offset = 0;
  std::ranges::sort(live, {}, &Scratch::begin);
  for (const Scratch& each : live) {
    if (each.begin - offset >= bytes) {
      break;
    }
    offset = std::max(offset, each.end);
  }
  return offset;
}

}  // namespace

RequestLayout lay_out(const std::vector<MemoryRequest>& requests,
                      const std::vector<const void*>& results) {
  RequestLayout layout;
  std::vector<Scratch> live;
  std::unordered_map<const void*, int32_t> result_at;  // the last request at an address is its own
  for (size_t i = 0; i < results.size(); ++i) {
    if (results[i] != nullptr) {
      result_at.emplace(results[i], static_cast<int32_t>(i));
    }
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const MemoryRequest& request = requests[i];
    if (request.frees) {
      std::erase_if(live, [&](const Scratch& each) { return each.address == request.address; });
      continue;
    }
    const bool freed = std::any_of(requests.begin() + static_cast<ptrdiff_t>(i), requests.end(),
                                   [&](const MemoryRequest& later) {
                                     return later.frees && later.address == request.address;
                                   });
    Allocation allocation{.bytes = request.bytes};
    const auto result = result_at.find(request.address);
    if (!freed && result != result_at.end()) {
      allocation.result = result->second;
    } else if (freed) {
      const int64_t bytes = (request.bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
      const int64_t offset = first_fit(live, bytes);
      live.push_back({request.address, offset, offset + bytes});
      allocation.workspace_offset = offset;
      layout.workspace_bytes = std::max(layout.workspace_bytes, offset + bytes);
    }  // else it is kept by something like a cache, and not ours to place
    layout.allocations.push_back(allocation);
  }
  return layout;
}

}  // namespace remat::detail
