// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/nn_modules.h"

namespace remat::testing {
namespace {

namespace nn = torch::nn;
using at::Tensor;

constexpr int64_t kLength = 10, kSequences = 4, kWidth = 16;

std::function<Batch()> sequences() {
  return [] { return Batch{torch::randn({kLength, kSequences, kWidth})}; };
}

std::function<Batch()> two_sequences() {
  return [] {
    return Batch{torch::randn({kLength, kSequences, kWidth}), torch::randn({8, kSequences, kWidth})};
  };
}

Batch indices_and_offsets() {
  return {torch::randint(10, {64}, at::kLong), torch::arange(0, 64, 4)};
}

template <typename Mode>
ProgramCase embedding_bag(const std::string& name, Mode mode) {
  return module_case(
      name, [=] { return nn::EmbeddingBag(nn::EmbeddingBagOptions(10, 16).mode(mode)); },
      indices_and_offsets,
      [](auto& impl, const Tensor& input, const Batch& batch) {
        return impl.forward(input, batch[1]);
      });
}

// Sequences of different lengths, in the order in which they come.
template <typename Make>
ProgramCase packed(const std::string& name, Make make) {
  ProgramCase made = module_case(
      name, make,
      [] { return Batch{torch::randn({kLength, kSequences, kWidth}), torch::tensor({2, 10, 7, 4})}; },
      [](auto& impl, const Tensor& input, const Batch& batch) {
        namespace rnn = torch::nn::utils::rnn;
        const rnn::PackedSequence all = rnn::pack_padded_sequence(
            input, batch[1], /*batch_first=*/false, /*enforce_sorted=*/false);
        return rnn::pad_packed_sequence(std::get<0>(impl.forward_with_packed_input(all)));
      });
  made.most_plain_steps = 2;  // LibTorch reads the batch sizes through a pointer
  return made;
}

Tensor causal_mask(int64_t length) {
  return torch::full({length, length}, -std::numeric_limits<float>::infinity()).triu(1);
}

}  // namespace

std::vector<ProgramCase> sequence_modules() {
  const Sizes sequence = {kLength, kSequences, kWidth}, rows = {32, kWidth};
  return {
      module_case(
          "Embedding", [] { return nn::Embedding(nn::EmbeddingOptions(10, 16).padding_idx(2)); },
          [] { return Batch{torch::randint(10, {8, 16}, at::kLong)}; },
          [](auto& impl, const Tensor& input, const Batch&) { return impl.forward(input); }),
      module_case(
          "EmbeddingWithLargestNorm",
          [] { return nn::Embedding(nn::EmbeddingOptions(10, 16).max_norm(1.0)); },
          [] { return Batch{torch::randint(10, {8, 16}, at::kLong)}; },
          [](auto& impl, const Tensor& input, const Batch&) { return impl.forward(input); }),
      module_case(
          "EmbeddingScaledByFrequency",
          [] { return nn::Embedding(nn::EmbeddingOptions(10, 16).scale_grad_by_freq(true)); },
          [] { return Batch{torch::randint(10, {8, 16}, at::kLong)}; },
          [](auto& impl, const Tensor& input, const Batch&) { return impl.forward(input); }),
      embedding_bag("EmbeddingBagOfSums", torch::kSum),
      embedding_bag("EmbeddingBagOfMeans", torch::kMean),
      embedding_bag("EmbeddingBagOfLargest", torch::kMax),
      layer("RNN", sequence, [] { return nn::RNN(nn::RNNOptions(kWidth, 6).num_layers(2)); }),
      layer("RNNWithReLU", sequence,
            [] { return nn::RNN(nn::RNNOptions(kWidth, 6).nonlinearity(torch::kReLU)); }),
      layer("LSTM", sequence,
            [] { return nn::LSTM(nn::LSTMOptions(kWidth, 6).bidirectional(true)); }),
      layer("LSTMWithDropout", sequence,
            [] { return nn::LSTM(nn::LSTMOptions(kWidth, 6).num_layers(2).dropout(0.3)); }),
      layer("LSTMWithProjection", sequence,
            [] { return nn::LSTM(nn::LSTMOptions(kWidth, 6).proj_size(3)); }),
      layer("GRU", sequence, [] { return nn::GRU(nn::GRUOptions(kWidth, 6).batch_first(true)); }),
      packed("PackedRNN", [] { return nn::RNN(nn::RNNOptions(kWidth, 6)); }),
      packed("PackedLSTM", [] { return nn::LSTM(nn::LSTMOptions(kWidth, 6).bidirectional(true)); }),
      packed("PackedGRU", [] { return nn::GRU(nn::GRUOptions(kWidth, 6).num_layers(2)); }),
      layer("RNNCell", rows, [] { return nn::RNNCell(kWidth, 6); }),
      layer("LSTMCell", rows, [] { return nn::LSTMCell(kWidth, 6); }),
      layer("GRUCell", rows, [] { return nn::GRUCell(kWidth, 6); }),
      module_case(
          "MultiheadAttention", [] { return nn::MultiheadAttention(kWidth, 2); }, sequences(),
          [](auto& impl, const Tensor& input, const Batch&) {
            return impl.forward(input, input, input);
          }),
      module_case(
          "MultiheadAttentionAcross",
          [] {
            return nn::MultiheadAttention(
                nn::MultiheadAttentionOptions(kWidth, 2).dropout(0.2).add_zero_attn(true));
          },
          two_sequences(),
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1], batch[1]);
          }),
      module_case(
          "MultiheadAttentionWithOtherWidths",
          [] {
            return nn::MultiheadAttention(
                nn::MultiheadAttentionOptions(kWidth, 2).kdim(6).vdim(6).add_bias_kv(true));
          },
          [] {
            return Batch{torch::randn({kLength, kSequences, kWidth}), torch::randn({8, kSequences, 6})};
          },
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1], batch[1], /*key_padding_mask=*/{},
                                /*need_weights=*/false);
          }),
      layer("TransformerEncoderLayer", sequence,
            [] {
              return nn::TransformerEncoderLayer(
                  nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(12));
            }),
      layer("TransformerEncoderLayerWithGELU", sequence,
            [] {
              return nn::TransformerEncoderLayer(
                  nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(12).activation(
                      torch::kGELU));
            }),
      module_case(
          "TransformerDecoderLayer",
          [] {
            return nn::TransformerDecoderLayer(
                nn::TransformerDecoderLayerOptions(kWidth, 2).dim_feedforward(12));
          },
          two_sequences(),
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1]);
          }),
      module_case(
          "TransformerEncoder",
          [] {
            return nn::TransformerEncoder(nn::TransformerEncoderOptions(
                nn::TransformerEncoderLayer(
                    nn::TransformerEncoderLayerOptions(kWidth, 2).dim_feedforward(12)),
                2));
          },
          sequences(),
          [](auto& impl, const Tensor& input, const Batch&) {
            return impl.forward(input, causal_mask(kLength));
          }),
      module_case(
          "TransformerDecoder",
          [] {
            return nn::TransformerDecoder(nn::TransformerDecoderOptions(
                nn::TransformerDecoderLayer(
                    nn::TransformerDecoderLayerOptions(kWidth, 2).dim_feedforward(12)),
                2));
          },
          two_sequences(),
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(input, batch[1], causal_mask(kLength));
          }),
      module_case(
          "Transformer",
          [] {
            return nn::Transformer(
                nn::TransformerOptions(kWidth, 2, 1, 1).dim_feedforward(12).dropout(0.1));
          },
          two_sequences(),
          [](auto& impl, const Tensor& input, const Batch& batch) {
            return impl.forward(batch[1], input, /*src_mask=*/{}, causal_mask(kLength));
          }),
  };
}

}  // namespace remat::testing
