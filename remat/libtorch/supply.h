// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "remat/libtorch/allocator.h"
#include "remat/libtorch/execute.h"

namespace remat::detail {

// A request that an op will make, and where its answer lies.
struct ExpectedRequest {
  int64_t bytes = 0;
  char* address = nullptr;     // null: LibTorch's own allocator answers
  int64_t resident_bytes = 0;  // what a result adds
  bool scratch = false;        // in the op's workspace, which is counted whole
};

// Gives every request of the op that runs its place in the arena, and counts.
class Supply final : public AllocationListener {
 public:
  void start_step(int64_t external_bytes) {
    counts = {};
    outside_.clear();
    resident_bytes_ = external_bytes;
    add(0);
  }

  // Between the two an op runs that makes these requests, in this order.
  void begin(std::span<const ExpectedRequest> requests, int64_t workspace_bytes) {
    running_ = true;
    requests_ = requests;
    workspace_bytes_ = workspace_bytes;
    resident_workspace_bytes_ = 0;
  }
  void end() {
    running_ = false;
    requests_ = {};
    resident_bytes_ -= resident_workspace_bytes_;
    resident_workspace_bytes_ = 0;
  }

  // Until the next call of it, leaves there the most that is resident at once. Null: nowhere.
  void watch(int64_t* most_bytes) {
    most_bytes_ = most_bytes;
    add(0);
  }

  void add(int64_t bytes) {
    resident_bytes_ += bytes;
    counts.peak_bytes = std::max(counts.peak_bytes, resident_bytes_);
    if (most_bytes_ != nullptr) *most_bytes_ = std::max(*most_bytes_, resident_bytes_);
  }

  void* answer(size_t bytes) override {
    if (requests_.empty() || requests_.front().bytes != static_cast<int64_t>(bytes)) {
      return nullptr;
    }
    const ExpectedRequest& request = requests_.front();
    requests_ = requests_.subspan(1);
    if (request.scratch && resident_workspace_bytes_ == 0) {
      resident_workspace_bytes_ = workspace_bytes_;
      add(workspace_bytes_);
    }
    add(request.resident_bytes);
    return request.address;
  }
  // What LibTorch's own allocator had to answer while an op ran counts for as long as it lives.
  void allocated(void* address, size_t bytes) override {
    if (running_) {
      ++counts.outside_allocations;
      counts.outside_bytes += static_cast<int64_t>(bytes);
      outside_.emplace(address, static_cast<int64_t>(bytes));
      add(static_cast<int64_t>(bytes));
    }
  }
  void freed(void* address) override {
    if (outside_.empty()) {
      return;
    }
    if (const auto found = outside_.find(address); found != outside_.end()) {
      add(-found->second);
      outside_.erase(found);
    }
  }

  StepCounts counts;

 private:
  bool running_ = false;
  std::span<const ExpectedRequest> requests_;  // still to come
  int64_t workspace_bytes_ = 0;                // of the op that runs ...
  int64_t resident_workspace_bytes_ = 0;       // ... once it asked for some
  int64_t resident_bytes_ = 0;
  int64_t* most_bytes_ = nullptr;
  std::unordered_map<void*, int64_t> outside_;  // of this step, still alive
};

}  // namespace remat::detail
