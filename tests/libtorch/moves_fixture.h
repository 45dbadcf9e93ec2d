// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "remat/core/error.h"
#include "remat/libtorch/channel.h"
#include "remat/libtorch/training_step.h"
#include "tests/libtorch/training.h"

namespace remat::testing {

// In memory, and as lazy, full or faulty as a test wants it. It moves nothing before somebody waits, and what is
// to be read is full of 0xff until then: who does not wait reads NaN.
class FakeChannel final : public detail::Channel {
 public:
  void reserve(int64_t bytes) override {
    if (bytes > room_bytes || reserves_left-- <= 0) throw Error("[offload] there is no room");
    grow(bytes);
  }
  Ticket write(int64_t offset, const void* from, int64_t bytes) override {
    ++writes;
    return push({offset, const_cast<void*>(from), bytes, true});
  }
  Ticket read(int64_t offset, void* to, int64_t bytes) override {
    std::memset(to, 0xff, static_cast<size_t>(bytes));
    return push({offset, to, bytes, false});
  }
  bool done(Ticket ticket) override { return ticket < moved(); }
  void wait(Ticket ticket) override {
    while (moved() <= ticket) move_next();
    if (ticket == failing) throw Error("[offload] 1 MiB at 0 cannot be written: No space left on device");
  }
  void drain() noexcept override {
    while (!waiting_.empty()) move_next();
  }
  int64_t alignment_bytes() const override { return 64; }
  std::string description() const override { return "memory"; }

  Ticket failing = -1;
  int64_t room_bytes = std::numeric_limits<int64_t>::max();
  int64_t reserves_left = std::numeric_limits<int64_t>::max();
  int64_t writes = 0;
  Ticket requests() const { return next_; }

 private:
  struct Request {
    int64_t offset;
    void* memory;
    int64_t bytes;
    bool write;
  };
  Ticket moved() const { return next_ - static_cast<Ticket>(waiting_.size()); }
  Ticket push(const Request& request) {
    waiting_.push_back(request);
    return next_++;
  }
  void grow(int64_t bytes) {
    bytes_.resize(static_cast<size_t>(std::max<int64_t>(bytes, static_cast<int64_t>(bytes_.size()))));
  }
  void move_next() {
    const Request next = waiting_.front();
    waiting_.pop_front();
    grow(next.offset + next.bytes);
    char* const there = bytes_.data() + next.offset;
    std::memcpy(next.write ? there : next.memory, next.write ? next.memory : there, static_cast<size_t>(next.bytes));
  }

  std::vector<char> bytes_;
  std::deque<Request> waiting_;
  Ticket next_ = 0;
};

// Enough bytes to be worth a transfer and a pack.
inline Problem wide_net(double dropout = 0.2) {
  torch::manual_seed(7);
  torch::nn::Sequential net(torch::nn::Linear(64, 256), torch::nn::ReLU(), torch::nn::Dropout(dropout),
                            torch::nn::Linear(256, 256), torch::nn::Hardtanh(),
                            torch::nn::Linear(256, 256), torch::nn::Tanh(), torch::nn::Linear(256, 8));
  std::vector<Batch> batches;
  for (int i = 0; i < 5; ++i) {
    batches.push_back({torch::randn({512, 64}), torch::randint(8, {512}, at::kLong)});
  }
  return module_problem(
      *net,
      [net](const Batch& batch) mutable {
        return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
      },
      std::move(batches));
}

struct Trained {
  std::vector<at::Tensor> left;
  std::vector<std::string> notices;
  StepReport report;
  int64_t offloads = 0;
  int64_t packs = 0;
};

inline Trained train_with(const Problem& problem, TrainingStepOptions options) {
  Trained made;
  options.plan_seconds = 0.15;
  options.measure_seconds = 0;
  options.execute.poison = true;
  options.notice = [&made, told = options.notice](const std::string& text) {
    made.notices.push_back(text);
    if (told) told(text);
  };
  TrainingStep step(problem.loss, problem.parameters, problem.buffers, options);
  made.left = train(problem, std::ref(step));
  made.report = step.report();
  for (const ScheduleStep& each : step.schedule().steps) {
    made.offloads += each.kind == StepKind::offload;
    made.packs += each.kind == StepKind::pack;
  }
  return made;
}

inline int64_t tight_budget(const Problem& problem, TrainingStepOptions options) {
  options.strategy = "keep_all";
  const StepReport whole = train_with(problem, options).report;
  return whole.floor_bytes + (whole.keep_all_peak_bytes - whole.floor_bytes) / 4;
}

}  // namespace remat::testing
