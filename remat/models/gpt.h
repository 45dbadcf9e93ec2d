// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

#include "remat/models/block_runner.h"
#include "remat/models/transformer_layer.h"

namespace remat::models {

// A decoder-only transformer as GPT-2: Radford et al. 2019,
// https://cdn.openai.com/better-language-models/language_models_are_unsupervised_multitask_learners.pdf
// The defaults are GPT-2 small. The output layer shares the token embedding.
struct GptOptions {
  int64_t vocabulary = 50257;
  int64_t context = 1024;  // longest sequence
  int64_t layers = 12;
  int64_t heads = 12;
  int64_t width = 768;
  double dropout = 0.1;            // of embeddings and residual branches
  double attention_dropout = 0.1;  // see AttentionOptions::fused
  bool fused_attention = true;
};

class GptImpl : public torch::nn::Module {
 public:
  explicit GptImpl(const GptOptions& options);
  // tokens: int64 [batch, sequence] -> logits [batch, sequence, vocabulary]. Each transformer layer
  // is one block.
  at::Tensor forward(const at::Tensor& tokens, const BlockRunner& run = run_plain);

 private:
  at::Tensor embed(const at::Tensor& tokens);

  double dropout_;
  torch::nn::Embedding token_, position_;
  std::vector<TransformerLayer> layers_;
  torch::nn::LayerNorm norm_;
};
TORCH_MODULE(Gpt);

}  // namespace remat::models
