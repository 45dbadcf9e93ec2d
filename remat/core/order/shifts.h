// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "remat/core/graph.h"
#include "remat/core/order/cost.h"
#include "remat/core/order/passing.h"

namespace remat {

// One order whose runs are shifted earlier and later, many times: a shift costs what lies between the two
// places, not the whole order. What `OrderCost` says of the order is held up to date.
//
//     order     f1   f2   f3   b3            A run may pass runs that neither make what it needs nor
//               │     └────▶┘  │             need what it makes. Shifted within these limits, every
//     a1 live   ├──────────────┤             copy has the same users as before: only the first of
//                                            them and the last can change.
class OrderShifts {
 public:
  OrderShifts(const Graph& graph, const OrderCost& cost, const Passing& passing,
             std::span<const OpId> order, int64_t budget_bytes);

  size_t size() const { return order_.size(); }
  std::vector<OpId> order() const;
  double overflow() const { return overflow_; }  // bytes above the budget, summed over positions
  std::span<const int64_t> resident_bytes() const { return resident_; }  // by position

  // How far the run at `from` can go, in places.
  size_t reach(size_t from, bool later) const;

  // Shifts the run at `from` to `to`, within its reach, unless the overflow grew by more than
  // `tolerance` or a position it passes came to more than `most_bytes`. Says whether it did.
  bool try_shift(size_t from, size_t to, double tolerance,
                int64_t most_bytes = std::numeric_limits<int64_t>::max());

 private:
  using Run = int32_t;   // by its position in the order at the beginning
  using Copy = int32_t;  // of a storage, from the run that makes it to the last that touches it

  // Lists of different lengths, in one block.
  struct Lists {
    std::vector<int32_t> start{0};
    std::vector<int32_t> items;
    void add(std::span<const int32_t> list) {
      items.insert(items.end(), list.begin(), list.end());
      start.push_back(static_cast<int32_t>(items.size()));
    }
    std::span<const int32_t> operator[](Run i) const {
      const auto at = static_cast<size_t>(i);
      return std::span(items).subspan(static_cast<size_t>(start[at]),
                                      static_cast<size_t>(start[at + 1] - start[at]));
    }
  };
  struct Change {
    Copy copy;
    Run old_last;
  };
  struct Sharing {  // a pair of reuse
    OrderCost::ValueIndex result;
    Copy source;
    int64_t bytes;
  };

  void find_copies(const OrderCost& cost);
  void find_limits(const Passing& passing);
  void find_bytes(const Graph& graph);
  int64_t shared_bytes(Run run);
  void set_last(Copy copy, Run run);
  void find_changes(Run run, size_t from, size_t to);
  size_t position(Run run) const {
    return static_cast<size_t>(position_[static_cast<size_t>(run)]);
  }

  int64_t budget_bytes_;
  int64_t external_bytes_ = 0;
  std::vector<OpId> op_;           // by run
  std::vector<int32_t> position_;  // by run
  std::vector<Run> order_;         // by position
  Lists before_, after_;           // by run: what it must not pass
  Lists touched_;                  // by run: copies it did not make
  Lists touchers_;                 // by copy: the run that makes it first
  std::vector<int64_t> bytes_;     // by copy
  std::vector<uint8_t> output_;    // by copy: is there to the end
  std::vector<Run> last_;          // by copy: of its touchers, in time
  std::vector<int32_t> sharing_start_;
  std::vector<Sharing> sharing_;   // by run
  std::vector<int64_t> grows_;     // by run: bytes of what it makes, ...
  std::vector<int64_t> frees_;     // ... of what it is the last to touch, ...
  std::vector<int64_t> besides_;   // ... and of its workspace, less what results share with sources
  std::vector<int64_t> resident_;  // by position
  std::vector<int64_t> left_;      // by position: bytes that stay when the run is over
  double overflow_ = 0;
  // Of the shift at work.
  std::vector<Change> changes_;
  std::vector<std::pair<int64_t, int64_t>> trial_;  // resident, left
  std::vector<Sharing> taken_;
};

}  // namespace remat
