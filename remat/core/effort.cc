// SPDX-License-Identifier: Apache-2.0
#include "remat/core/effort.h"

#include <time.h>

#include <utility>

namespace remat {
namespace {

constexpr int64_t kWorkBetweenLooks = 100'000;
constexpr double kMostSeconds = 1e9;

}  // namespace

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

int64_t Effort::work_of_seconds(double seconds) {
  return static_cast<int64_t>(1e9 / kNsPerWork * std::min(seconds, kMostSeconds));
}

Effort::Effort(double most_cpu_seconds, std::function<bool()> stop)
    : cpu_end_(thread_cpu_seconds() + most_cpu_seconds), stop_(std::move(stop)) {}

int64_t Effort::left() const {
  int64_t left = kUnlimited;
  for (const Effort* payer = this; payer != nullptr; payer = payer->parent_) {
    left = std::min(left, payer->limit_ - payer->spent_);
  }
  return std::max<int64_t>(0, left);
}

bool Effort::exhausted() {
  Effort* payer = this;
  while (payer->spent_ < payer->limit_) {
    if (payer->parent_ != nullptr) {
      payer = payer->parent_;
      continue;
    }
    if (payer->spent_ < payer->next_look_) return payer->out_of_cpu_;
    payer->next_look_ = payer->spent_ + kWorkBetweenLooks;
    return payer->out_of_cpu();
  }
  return true;
}

bool Effort::out_of_cpu() {
  Effort* payer = this;
  while (payer->parent_ != nullptr) payer = payer->parent_;
  payer->out_of_cpu_ = payer->out_of_cpu_ || thread_cpu_seconds() >= payer->cpu_end_ ||
                       (payer->stop_ && payer->stop_());
  return payer->out_of_cpu_;
}

}  // namespace remat
