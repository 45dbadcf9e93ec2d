// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/libtorch/op_parts.h"

namespace remat::detail {

// Takes the backward of a large cross entropy apart by rows, and in place. A language model's logits are its
// largest tensor, and here it would be there twice:
//
//   G = nll_loss_backward(…, out)   D = _log_softmax_backward_data(G, out)                 out and G; D over G
//   G[0:k] = …   out[0:k] = _log_softmax_backward_data(G[0:k], out[0:k])   G[k:2k] = …      out, and a tile
//
// Ops that read D read `out` instead. Every row is computed by the same kernel from the same bytes. Only where no
// later op needs `out`, and only in steps with an update (where memory is for parameters and their state).
void take_loss_apart(PartedTrace& parted);

}  // namespace remat::detail
