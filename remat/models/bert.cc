// SPDX-License-Identifier: Apache-2.0
#include "remat/models/bert.h"

#include "remat/core/error.h"
#include "remat/models/initialise.h"

namespace remat::models {
namespace {

constexpr double kBertNormEpsilon = 1e-12;

TransformerLayerOptions layer_options(const BertOptions& options) {
  return {.attention = {.width = options.width,
                        .heads = options.heads,
                        .fused = options.fused_attention,
                        .dropout = options.attention_dropout},
          .norm_first = false,
          .dropout = options.dropout,
          .norm_epsilon = kBertNormEpsilon};
}

}  // namespace

BertImpl::BertImpl(const BertOptions& options) : dropout_(options.dropout) {
  const int64_t width = options.width;
  token = register_module("token", torch::nn::Embedding(options.vocabulary, width));
  position_ = register_module("position", torch::nn::Embedding(options.context, width));
  segment_ = register_module("segment", torch::nn::Embedding(2, width));
  norm_ = register_module("norm", layer_norm(width, kBertNormEpsilon));
  for (int64_t i = 0; i < options.layers; ++i) {
    layers_.push_back(
        register_module(detail::concat("layer", i), TransformerLayer(layer_options(options))));
  }
  pooler_ = register_module("pooler", torch::nn::Linear(width, width));
  initialise_normal(*this);
}

at::Tensor BertImpl::embed(const at::Tensor& tokens, const at::Tensor& segments) {
  Scope scope("embedding");
  const at::Tensor positions = at::arange(tokens.size(1), tokens.options());
  const at::Tensor sum = run_layer("token", token, tokens) +
                         run_layer("position", position_, positions) +
                         run_layer("segment", segment_, segments);
  return at::dropout(run_layer("norm", norm_, sum), dropout_, is_training());
}

at::Tensor BertImpl::forward(const at::Tensor& tokens, const at::Tensor& segments,
                             const BlockRunner& run) {
  return run_blocks(run, "layer", layers_, embed(tokens, segments));
}

at::Tensor BertImpl::pool(const at::Tensor& encoded) {
  Scope scope("pooler");
  return at::tanh(pooler_->forward(encoded.select(1, 0)));
}

BertPretrainingImpl::BertPretrainingImpl(const BertOptions& options) {
  bert_ = register_module("bert", Bert(options));
  transform_ = register_module("transform", torch::nn::Linear(options.width, options.width));
  norm_ = register_module("norm", layer_norm(options.width, kBertNormEpsilon));
  follows_ = register_module("follows", torch::nn::Linear(options.width, 2));
  word_bias_ = register_parameter("word_bias", torch::zeros({options.vocabulary}));
  initialise_normal(*transform_);
  initialise_normal(*follows_);
}

at::Tensor BertPretrainingImpl::word_logits(const at::Tensor& encoded, const at::Tensor& masked) {
  Scope scope("words");
  const at::Tensor chosen = encoded.flatten(0, 1).index_select(0, masked);
  const at::Tensor x = at::gelu(run_layer("transform", transform_, chosen));
  return at::linear(run_layer("norm", norm_, x), bert_->token->weight, word_bias_);
}

at::Tensor BertPretrainingImpl::loss(const BertBatch& batch, const BlockRunner& run) {
  const at::Tensor encoded = bert_->forward(batch.tokens, batch.segments, run);
  const at::Tensor follows = run_layer("follows", follows_, bert_->pool(encoded));
  const at::Tensor words = word_logits(encoded, batch.masked);
  Scope scope("loss");
  return at::cross_entropy_loss(words, batch.words) +
         at::cross_entropy_loss(follows, batch.follows);
}

}  // namespace remat::models
