// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "remat/core/strategies/chain/blocks.h"

namespace remat::detail {

// Ways to save less than the whole tape of a block that stands for a finer chain: some of the finer
// blocks are saved (by any of their own savings), stretches of others passed, and each such stretch
// is run again in one go when its turn to be undone comes.
//
//     finer block   0      1      2      3      4
//     saving        save   pass   pass   save   save      undo 4  undo 3  run 1' 2'  undo 2 1  undo 0
//                          └ the bundle at the entry of 1 is kept
//
// Of all these, those are returned that nothing beats in both bytes and time, from most bytes to
// fewest, at most `most` of them, evenly spread. The whole tape is not among them. They assume that
// undoing the block has the memory that undoing it from a whole tape has.
std::vector<ChainBlock::Saving> partial_savings(const Chain& finer, size_t most);

}  // namespace remat::detail
