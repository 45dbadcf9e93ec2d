// SPDX-License-Identifier: Apache-2.0
#include "bench/generator/attention.h"

#include "bench/generator/layers.h"

namespace remat::bench {

Tensor attend(Tape& tape, const Tensor& q, const Tensor& k, const Tensor& v,
              const Attention& attention) {
  const int64_t batch = q.shape[0];
  const int64_t tokens = q.shape[1];
  const int64_t width = q.shape[2];
  const int64_t head_width = width / attention.heads;
  const Shape by_head = {batch, attention.heads, tokens, head_width};
  const Tensor keys = k.viewed({batch, attention.heads, head_width, tokens});
  Tensor scores = bmm(tape, "scores", q.viewed(by_head), keys);
  scores = scale(tape, "scale", "div", scores);
  if (attention.causal_mask) scores = mask_out(tape, "mask", scores, *attention.causal_mask);
  if (attention.additive_mask) scores = add(tape, "mask", scores, *attention.additive_mask);
  Tensor weights = softmax(tape, "softmax", scores);
  if (attention.drops) weights = dropout(tape, "dropout", weights);
  const Tensor context = bmm(tape, "context", weights, v.viewed(by_head));
  return contiguous(tape, "merge", context).viewed({batch, tokens, width});
}

}  // namespace remat::bench
