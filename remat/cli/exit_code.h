// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat {

enum ExitCode : int {
  kDone = 0,
  kError = 1,
  kUsage = 2,
  kInfeasible = 3,
  kInterrupted = 130,
};

}  // namespace remat
