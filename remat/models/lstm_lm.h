// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <torch/nn.h>

#include <cstdint>
#include <vector>

#include "remat/models/block_runner.h"

namespace remat::models {

// A word-level LSTM language model: Zaremba et al. 2014, https://arxiv.org/abs/1409.2329. The
// defaults are the paper's medium model. The paper gives sizes, not a count; from them, with
// vocabulary V, width H and L layers:
//
//   embedding V H + layers L (4 (H + H) H + 4 H) + decoder (H + 1) V = 19,775,200
//
// and torch::nn::LSTM keeps a second, redundant bias in every layer, 4 H L more: 19,780,400.
struct LstmLmOptions {
  int64_t vocabulary = 10000;
  int64_t layers = 2;
  int64_t width = 650;
  double dropout = 0.5;
};

class LstmLmImpl : public torch::nn::Module {
 public:
  explicit LstmLmImpl(const LstmLmOptions& options);
  // tokens: int64 [batch, sequence] -> logits [batch, sequence, vocabulary], from a zero state.
  // Each LSTM layer with the dropout before it is one block.
  at::Tensor forward(const at::Tensor& tokens, const BlockRunner& run = run_plain);

 private:
  double dropout_;
  torch::nn::Embedding embedding_;
  std::vector<torch::nn::LSTM> layers_;
  torch::nn::Linear decoder_;
};
TORCH_MODULE(LstmLm);

}  // namespace remat::models
