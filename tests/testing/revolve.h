// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace remat::testing {

inline int64_t binomial(int64_t n, int64_t k) {
  int64_t result = 1;
  for (int64_t i = 1; i <= k; ++i) result = result * (n - k + i) / i;
  return n < k ? 0 : result;
}

// Griewank and Walther, Algorithm 799: revolve, 2000. The least number of forward steps for a chain
// of n with s checkpoints: r·n - β(s+1, r-1), where β(s, r) = (s+r)! / (s! r!) and r is the least
// with n <= β(s, r).
inline int64_t revolve(int64_t n, int64_t s) {
  int64_t r = 0;
  while (binomial(s + r, s) < n) ++r;
  return r * n - (r == 0 ? 0 : binomial(s + r, s + 1));
}

}  // namespace remat::testing
