// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "remat/core/verify.h"

namespace remat::detail {

// The part of verify that knows when an op may run: every op once, again only after that and only where a
// second run changes nothing in the world, and random, `once` and effect ops in the graph's order.
class RunRules {
 public:
  struct Objection {
    ViolationKind kind{};
    std::string reason;
  };

  explicit RunRules(const Graph& graph);

  // Notes the run. None: it may happen now.
  std::optional<Objection> run(OpId id);
  std::optional<Objection> recompute(OpId id) const;
  // An op that has not run.
  std::optional<OpId> missing() const;

 private:
  // Ops whose first runs keep their mutual order.
  struct Class {
    const char* name = "";
    std::vector<OpId> ops;  // in the order of the graph
    size_t runs = 0;        // how many of them have run
  };

  const Graph& graph_;
  std::vector<bool> has_run_;  // by op
  std::array<Class, 3> classes_;
};

}  // namespace remat::detail
