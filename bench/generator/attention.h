// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "bench/generator/tape.h"

namespace remat::bench {

struct Attention {
  int64_t heads = 1;
  std::optional<Tensor> causal_mask = {};  // (tokens, tokens), zero where nothing may be seen
  std::optional<Tensor> additive_mask =
      {};              // added to the scores, broadcast over heads and queries
  bool drops = false;  // dropout on the weights
};

// Attention spelled out: softmax(q k^T / sqrt(d)) v on (batch, tokens, width) tensors. Heads are
// split by views, so the products read the storages of q, k and v as they are; the heads' results
// are copied back together, the one copy that no view can replace.
Tensor attend(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v,
              const Attention& attention);

}  // namespace remat::bench
