// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "remat/core/graph.h"

// Symbolic values for verify: how a value was made stands for its bits. Internal to core.
namespace remat::detail {

using Term = int64_t;

// Gives equal terms equal numbers: a term is the list of its parts, and parts are numbers already.
class Terms {
 public:
  Term external(size_t storage) { return number({kExternal, as_part(storage)}); }
  Term generator() { return number({kGenerator}); }
  // An op applied to its inputs, for a random op the generator's state last. The three below are
  // what it leaves in its n-th result, in its n-th update and, from `old`, in its n-th effect.
  Term applied(size_t op, std::span<const Term> inputs);
  Term created(Term applied, size_t n) { return number({kCreated, applied, as_part(n)}); }
  Term updated(Term applied, size_t n) { return number({kUpdated, applied, as_part(n)}); }
  Term affected(Term applied, size_t n, Term old) {
    return number({kAffected, applied, as_part(n), old});
  }
  // What is left of a value in another form of its storage, packed or offloaded.
  Term in_form(size_t form, Term value) { return number({kInForm, as_part(form), value}); }
  // The generator after a random op found it in `state`.
  Term advanced(size_t op, Term state) { return number({kAdvanced, as_part(op), state}); }

 private:
  enum Tag : int64_t { kExternal, kGenerator, kApplied, kCreated, kUpdated, kAffected, kAdvanced, kInForm };
  static int64_t as_part(size_t number) { return static_cast<int64_t>(number); }
  struct Hash {
    size_t operator()(const std::vector<int64_t>& parts) const;
  };

  Term number(std::vector<int64_t> parts);

  std::unordered_map<std::vector<int64_t>, Term, Hash> known_;
};

// What the given order computes: the truth that a schedule is compared with.
struct Truth {
  std::vector<std::vector<Term>> inputs;   // by op: reads, then updates before the op
  std::vector<std::vector<Term>> effects;  // by op: contents before the op
  std::vector<Term> last;                  // by storage: contents after the step
  Term generator = 0;                      // after the step
};

// Symbolically, on a graph that GraphBuilder made. Created results do not depend on what effects
// fall on: BatchNorm in training mode writes the running statistics and does not read them.
Truth run_given_order(const Graph& graph, Terms& terms);

}  // namespace remat::detail
