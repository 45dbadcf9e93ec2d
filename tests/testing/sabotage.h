// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <ostream>
#include <random>
#include <span>
#include <string_view>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/schedule.h"
#include "remat/core/verify.h"

namespace remat {

// What a test that fails says of a violation.
inline void PrintTo(const Violation& violation, std::ostream* out) {
  *out << name(violation.kind) << " at step " << violation.step << " (" << violation.op
       << "): " << violation.reason;
}

}  // namespace remat

namespace remat::testing {

// One way to make a right schedule wrong, to see that a checker notices.
struct Sabotage {
  std::string_view name;
  // What verify may call it. One kind where only one is right, several where it depends on the
  // graph.
  std::vector<ViolationKind> kinds;
  // The schedule made wrong at a random place; none where it offers no place for this. Wrong means
  // wrong: swapping independent steps would be legal and is never done.
  std::optional<Schedule> (*apply)(const Graph&, const Schedule&, std::mt19937_64&);
};

// Those of ops and frees, and those of moves, which need a schedule that packs or offloads.
std::span<const Sabotage> sabotages();
std::span<const Sabotage> move_sabotages();

}  // namespace remat::testing
