// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "bench/generator/tape.h"

// The networks, one family per source. Each returns a whole training step on single-precision data,
// with the layer and parameter names of the implementation it follows.
namespace remat::bench {

// A plain chain of linear layers and ReLUs, `depth` of them hidden.
Graph mlp(int64_t batch, int64_t width, int64_t depth, const StepEnd& end = {});

// VGG-16 (Simonyan and Zisserman 2014) as in torchvision, 224x224 images: a plain convolution
// chain.
Graph vgg16(int64_t batch, const StepEnd& end = {});

// ResNet (He et al. 2015) as in torchvision, 224x224 images: blocks in each of the four stages, of
// two 3x3 convolutions or, with bottlenecks, of three.
struct ResNet {
  std::array<int64_t, 4> blocks = {2, 2, 2, 2};
  bool bottleneck = false;
  int64_t batch = 32;
};
Graph resnet(const ResNet& net, const StepEnd& end = {});

// U-Net (Ronneberger et al. 2015) with padded convolutions and batch norm: skips over the whole
// net.
Graph unet(int64_t batch, int64_t image, const StepEnd& end = {});

// ConvNeXt-T (Liu et al. 2022) as in torchvision: depthwise convolutions, stochastic depth.
Graph convnext_tiny(int64_t batch, const StepEnd& end = {});

// BERT-base (Devlin et al. 2018): embeddings, encoder and pooler, with a two-class head.
Graph bert_base(int64_t batch, int64_t tokens, const StepEnd& end = {});

// A decoder as in GPT-2 (Radford et al. 2019): learned positions, pre-norm, dropout, a causal mask,
// the output layer tied to the embedding.
struct Gpt {
  int64_t vocabulary = 50257;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t layers = 12;
  int64_t batch = 4;
  int64_t tokens = 1024;
};
Graph gpt(const Gpt& net, const StepEnd& end = {});

// ViT-S/16 (Dosovitskiy et al. 2020, Touvron et al. 2020), 224x224 images, no dropout.
Graph vit_small(int64_t batch, const StepEnd& end = {});

// A word-level LSTM language model (Zaremba et al. 2014, large), unrolled cell by cell.
Graph lstm_language_model(int64_t batch, int64_t tokens, const StepEnd& end = {});

}  // namespace remat::bench
