// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "remat/models/block_runner.h"

namespace torch::nn {
class Module;
}

// The zoo: every model by name, at any size, with the loss it is trained on and random batches.
//
//   auto task = remat::models::find_model("resnet50").make({.batch = 4, .image = 64});
//   task.loss(task.make_batch(/*seed=*/1)).backward();
namespace remat::models {

// 0 stands for the model's default. Every size is 1 to 1,000,000, and:
//   image     pixels per side. ResNet and ConvNeXt: at least 32. ViT and MLP-Mixer: a multiple of
//             the patch of 16. U-Net: a multiple of 2^layers.
//   sequence  tokens per sample. GPT-2: at most 1024; BERT: 2 to 512.
//   layers    blocks of a transformer or mixer, LSTM layers, or how often a U-Net halves the image.
//   width     channels of the first stage, or of every layer. GPT-2, BERT and ViT: a multiple of
//   64,
//             with width / 64 heads, or less than 64 with one head. MLP-Mixer: even.
// Vocabularies and numbers of classes never change.
struct ModelSize {
  int64_t batch = 0;
  int64_t image = 0;
  int64_t sequence = 0;
  int64_t layers = 0;
  int64_t width = 0;

  bool operator==(const ModelSize&) const = default;
};

// A model in training mode, and how it is trained. Nothing in a loss reads a value on the host. The
// functions share the module and may outlive the TrainingTask.
struct TrainingTask {
  std::shared_ptr<torch::nn::Module> module;  // initialised from the default generator
  std::function<at::Tensor(const std::vector<at::Tensor>& batch)> loss;
  // A random batch from a generator of its own: the same seed gives the same batch, and the default
  // generator stays as it is.
  std::function<std::vector<at::Tensor>(int64_t seed)> make_batch;
  // The same loss with every block run by `run`: checkpointed, for one.
  std::function<at::Tensor(const std::vector<at::Tensor>& batch, const BlockRunner& run)>
      loss_by_block;
};

struct ZooEntry {
  std::string name;
  std::string paper;        // where it is
  std::string description;  // one line
  ModelSize defaults;       // 0 where a size does not apply
  ModelSize largest = {};   // that the model can take; 0: any
  // At the default size. The module has `head_parameters` more: layers that only its training loss
  // needs and that the published count leaves out.
  int64_t published_parameters = 0;
  int64_t head_parameters = 0;
  // Builds the model. Throws remat::Error for a size that the model does not have or cannot take.
  std::function<TrainingTask(const ModelSize&)> make = {};
};

const std::vector<ZooEntry>& zoo();

// Throws remat::Error, with the nearest name and all of them, when there is none of that name.
const ZooEntry& find_model(std::string_view name);

}  // namespace remat::models
