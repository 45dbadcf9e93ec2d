// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace remat {

// The stages of a packing after the greedy orders, each only where the ones before it left waste. Each
// can be switched off, to see what it is worth: bench/README.md has the table.
struct PackingStages {
  bool both_ends = true;  // items that stay to the last tick from the top down (greedy.h)
  bool glue = true;       // exact search with likely neighbours glued together (glue.h)
  bool raise = true;      // what is nearly complete gets more height and is completed (evictions.h)
  bool search = true;     // exact search, which alone may prove that waste is needed (search.h)
  bool lower = true;      // the best packing loses some height and is completed again
};

}  // namespace remat
