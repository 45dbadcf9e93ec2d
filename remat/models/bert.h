// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/transformer_layer.h"

namespace remat::models {

// A bidirectional transformer encoder: Devlin et al. 2018, https://arxiv.org/abs/1810.04805. The
// defaults are BERT-base, uncased: 109,482,240 parameters with the pooler.
struct BertOptions {
  int64_t vocabulary = 30522;
  int64_t context = 512;  // longest sequence
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t width = 768;
  double dropout = 0.1;
  double attention_dropout = 0.1;  // see AttentionOptions::fused
  bool fused_attention = false;
};

class BertImpl : public torch::nn::Module {
 public:
  explicit BertImpl(const BertOptions& options);
  // tokens, segments (0 or 1): int64 [batch, sequence], without padding -> [batch, sequence,
  // width]. Each transformer layer is one block.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& segments,
                     const BlockRunner& run = run_plain);
  // The pooler: the first token's vector of what forward returned -> [batch, width].
  at::Tensor pool(const at::Tensor& encoded);

  torch::nn::Embedding token{nullptr};

 private:
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& segments);

  double dropout_;
  torch::nn::Embedding position_{nullptr}, segment_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  std::vector<TransformerLayer> layers_;
  torch::nn::Linear pooler_{nullptr};
};
TORCH_MODULE(Bert);

// What a batch of BERT's pre-training holds.
struct BertBatch {
  at::Tensor tokens, segments;  // as in Bert
  at::Tensor
      masked;        // int64 [predictions]: which tokens to predict, as sentence * sequence + place
  at::Tensor words;  // int64 [predictions]: what they were
  at::Tensor follows;  // int64 [batch]: 0 when the second segment follows the first, 1 when not
};

// BERT with the paper's two pre-training tasks: the masked words, by a transform and the shared
// token embedding with a bias, and whether the second segment follows the first, from the pooler.
// These heads have width^2 + 5 width + 2 + vocabulary parameters beyond Bert's: 624,188 in
// BERT-base.
class BertPretrainingImpl : public torch::nn::Module {
 public:
  explicit BertPretrainingImpl(const BertOptions& options);
  // The sum of both mean losses.
  at::Tensor loss(const BertBatch& batch, const BlockRunner& run = run_plain);

 private:
  at::Tensor word_logits(const at::Tensor& encoded, const at::Tensor& masked);

  Bert bert_{nullptr};
  torch::nn::Linear transform_{nullptr}, follows_{nullptr};
  torch::nn::LayerNorm norm_{nullptr};
  at::Tensor word_bias_;
};
TORCH_MODULE(BertPretraining);

}  // namespace remat::models
