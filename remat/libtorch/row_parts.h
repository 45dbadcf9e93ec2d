// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "remat/libtorch/op_parts.h"

namespace remat::detail {

// Takes the update of large parameters apart by rows. The gradient of an embedding that is tied to the
// output layer is made three times as large as it must be (once by each use, once as the optimizer's
// temporary), where every row of it could be made, applied and forgotten by itself:
//
//   D = mm(dy, h)   E = embedding_dense_backward(…)   D += E   m += D   v += D * D      whole
//   D[0:k] = mm(dy[0:k], h)   E[0:k] = …   D[0:k] += E[0:k]   m[0:k] += …   v[0:k] += …   first tile
//   D[k:2k] = …                                                                          second tile
//
// A chain is the ops that make, change or read large storages that nobody else sees, each of which
// op_traits.cc calls the same row by row, and one of which belongs to the update. Its tiles stand where
// its last op stood, if nothing between here and there would see the difference.
void take_rows_apart(PartedTrace& parted);

// Rows `first` to `first + rows` of aten::embedding_dense_backward (without scale_grad_by_freq), in the
// same bits: "remat::embedding_rows_backward". Its one request for memory is for the result.
const c10::OperatorHandle& embedding_rows_op();

}  // namespace remat::detail
