// SPDX-License-Identifier: Apache-2.0
#include "remat/models/attention.h"

#include <cmath>
#include <limits>

#include "remat/core/error.h"
#include "remat/models/block_runner.h"

namespace remat::models {

AttentionImpl::AttentionImpl(const AttentionOptions& options) : options_(options) {
  if (options.heads < 1 || options.width % options.heads != 0) {
    throw Error(detail::concat("[models] attention width ", options.width, " is not a multiple of ",
                               options.heads, " heads; choose one that is"));
  }
  query_key_value_ =
      register_module("query_key_value", torch::nn::Linear(options.width, 3 * options.width));
  projection = register_module("projection", torch::nn::Linear(options.width, options.width));
}

at::Tensor AttentionImpl::spelled_out(const at::Tensor& query, const at::Tensor& key,
                                      const at::Tensor& value) {
  const int64_t sequence = query.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(query.size(3)));
  at::Tensor scores = at::matmul(query, key.transpose(2, 3)) * scale;
  if (options_.causal) {
    const at::Tensor later =
        at::ones({sequence, sequence}, query.options().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(later, -std::numeric_limits<double>::infinity());
  }
  const at::Tensor weights = at::dropout(at::softmax(scores, -1), options_.dropout, is_training());
  return at::matmul(weights, value);
}

at::Tensor AttentionImpl::forward(const at::Tensor& x) {
  const int64_t batch = x.size(0);
  const int64_t sequence = x.size(1);
  // [batch, sequence, 3 * width] -> 3 of [batch, heads, sequence, width / heads]
  const at::Tensor split =
      run_layer("query_key_value", query_key_value_, x)
          .view({batch, sequence, 3, options_.heads, options_.width / options_.heads})
          .permute({2, 0, 3, 1, 4});
  const at::Tensor query = split[0], key = split[1], value = split[2];
  const at::Tensor mixed =
      options_.fused
          ? at::scaled_dot_product_attention(
                query, key, value, {}, is_training() ? options_.dropout : 0.0, options_.causal)
          : spelled_out(query, key, value);
  return run_layer("projection", projection,
                   mixed.transpose(1, 2).reshape({batch, sequence, options_.width}));
}

}  // namespace remat::models
