// SPDX-License-Identifier: Apache-2.0
#include "remat/models/lstm_lm.h"

#include "remat/core/error.h"

namespace remat::models {

LstmLmImpl::LstmLmImpl(const LstmLmOptions& options)
    : dropout_(options.dropout),
      embedding_(
          register_module("embedding", torch::nn::Embedding(options.vocabulary, options.width))),
      decoder_(register_module("decoder", torch::nn::Linear(options.width, options.vocabulary))) {
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(register_module(
        detail::concat("layer", i),
        torch::nn::LSTM(torch::nn::LSTMOptions(options.width, options.width).batch_first(true))));
  }
}

at::Tensor LstmLmImpl::forward(const at::Tensor& tokens, const BlockRunner& run) {
  at::Tensor x = run_layer("embedding", embedding_, tokens);
  for (size_t i = 0; i < layers_.size(); ++i) {
    x = run(
        [layer = layers_[i], name = detail::concat("layer", i), dropout = dropout_,
         training = is_training()](const std::vector<at::Tensor>& in) mutable {
          Scope scope(name);
          return std::get<0>(layer->forward(at::dropout(in[0], dropout, training)));
        },
        {x});
  }
  Scope scope("decoder");
  return decoder_->forward(at::dropout(x, dropout_, is_training()));
}

}  // namespace remat::models
