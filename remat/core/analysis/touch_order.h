// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace remat {

// Which ops that touch a thing must keep their order: a change stays behind the reads before it, a read behind
// the change before it, and changes stay one behind the other. A *thing* exists once: a copy of a storage, an
// external, the generator.
//
//     touches of a thing    1 changes   2 reads   3 reads   4 changes   5 reads
//     stays behind          -           1         1         1, 2, 3     4
//
// `Toucher` is an op, or a run of one. The touches of each thing are told in their order.
template <typename Toucher>
class TouchOrder {
 public:
  explicit TouchOrder(size_t things) : of_(things) {}

  // Calls behind(earlier) for every toucher that this one must stay behind. Some may come twice.
  template <typename Behind>
  void touch(size_t thing, Toucher toucher, bool changes, const Behind& behind) {
    Touchers& touchers = of_[thing];
    if (touchers.changed && touchers.last_change != toucher) behind(touchers.last_change);
    if (!changes) {
      touchers.readers.push_back(toucher);
      return;
    }
    for (const Toucher reader : touchers.readers) {
      if (reader != toucher) behind(reader);
    }
    touchers.readers.clear();
    touchers.last_change = toucher;
    touchers.changed = true;
  }

 private:
  struct Touchers {
    std::vector<Toucher> readers;  // since the last change
    Toucher last_change{};
    bool changed = false;
  };
  std::vector<Touchers> of_;  // by thing
};

}  // namespace remat
