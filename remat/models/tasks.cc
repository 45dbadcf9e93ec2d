// SPDX-License-Identifier: Apache-2.0
#include "remat/models/tasks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/torch.h>

#include <algorithm>

#include "remat/core/error.h"
#include "remat/models/bert.h"
#include "remat/models/convnext.h"
#include "remat/models/gpt.h"
#include "remat/models/lstm_lm.h"
#include "remat/models/mlp_mixer.h"
#include "remat/models/resnet.h"
#include "remat/models/unet.h"
#include "remat/models/vit.h"

namespace remat::models {
namespace {

using at::Tensor;
using remat::detail::concat;
using Batch = std::vector<Tensor>;

[[noreturn]] void refuse(std::string_view model, const char* size, int64_t found,
                         std::string_view expected) {
  throw Error(concat("[models] ", model, ": ", size, " ", found, "; expected ", expected));
}

int64_t heads_of(std::string_view model, int64_t width) {
  constexpr int64_t kHeadWidth = 64;
  if (width > kHeadWidth && width % kHeadWidth != 0) {
    refuse(model, "width", width, "a multiple of 64, the width of a head, or less than 64");
  }
  return std::max<int64_t>(width / kHeadWidth, 1);
}

void require_multiple(std::string_view model, const char* size, int64_t value, int64_t of) {
  if (value % of != 0) refuse(model, size, value, concat("a multiple of ", of));
}

void require_at_least(std::string_view model, const char* size, int64_t value, int64_t least) {
  if (value < least) refuse(model, size, value, concat("at least ", least));
}

void require_at_most(std::string_view model, const char* size, int64_t value, int64_t most) {
  if (value > most) refuse(model, size, value, concat("at most ", most));
}

// BatchNorm has no variance of one value: the smallest image of a network is `halvings` times
// smaller than its input, rounded up.
void require_variance(std::string_view model, const ModelSize& size, int64_t halvings) {
  if (size.batch == 1 && size.image <= int64_t{1} << halvings) {
    refuse(model, "batch", size.batch,
           concat("at least 2 at image ", size.image,
                  ", as BatchNorm needs two values per channel; or a larger image"));
  }
}

class RandomBatch {
 public:
  explicit RandomBatch(int64_t seed)
      : generator_(at::detail::createCPUGenerator(static_cast<uint64_t>(seed))) {}

  Tensor normal(at::IntArrayRef shape) { return at::randn(shape, generator_, at::kFloat); }
  // Uniform in [0, end).
  Tensor integers(int64_t end, at::IntArrayRef shape) {
    return at::randint(end, shape, generator_, at::kLong);
  }
  Tensor permutation(int64_t count) { return at::randperm(count, generator_, at::kLong); }

 private:
  at::Generator generator_;
};

TrainingTask task(std::shared_ptr<torch::nn::Module> module,
                  std::function<Tensor(const Batch&, const BlockRunner&)> loss_by_block,
                  std::function<Batch(int64_t)> make_batch) {
  return {.module = std::move(module),
          .loss = [loss_by_block](const Batch& batch) { return loss_by_block(batch, run_plain); },
          .make_batch = std::move(make_batch),
          .loss_by_block = loss_by_block};
}

// Images, each with a class, or with a class per pixel.
template <typename Model>
TrainingTask classification(Model model, std::function<Batch(int64_t)> make_batch) {
  return task(
      model.ptr(),
      [model](const Batch& batch, const BlockRunner& run) mutable {
        const Tensor logits = model->forward(batch[0], run);
        Scope scope("loss");
        return at::cross_entropy_loss(logits, batch[1]);
      },
      std::move(make_batch));
}

// Batches can be learnt from, so that a loss falls within a few steps: of ImageNet's 1000 classes there are
// a few, told apart by how bright the image is.
template <typename Model>
TrainingTask classification(Model model, const ModelSize& size) {
  return classification(std::move(model), [size](int64_t seed) {
    constexpr int64_t kClasses = 4;
    RandomBatch random(seed);
    const Tensor classes = random.integers(kClasses, {size.batch});
    const Tensor noise = random.normal({size.batch, 3, size.image, size.image});
    return Batch{noise + classes.view({-1, 1, 1, 1}), classes};
  });
}

// Texts that count, from anywhere, and begin again after the last of a few words: what comes next can be
// learnt.
constexpr int64_t kWords = 16;
Tensor counting_texts(RandomBatch& random, int64_t count, int64_t length) {
  return (random.integers(kWords, {count, 1}) + at::arange(length, at::kLong)).remainder(kWords);
}

// Cross entropy of the next token at every place.
template <typename Model>
TrainingTask language_modelling(Model model, const ModelSize& size) {
  return task(
      model.ptr(),
      [model](const Batch& batch, const BlockRunner& run) mutable {
        const Tensor logits = model->forward(batch[0], run);
        Scope scope("loss");
        return at::cross_entropy_loss(logits.flatten(0, 1), batch[1].flatten());
      },
      [size](int64_t seed) {
        RandomBatch random(seed);
        const Tensor text = counting_texts(random, size.batch, size.sequence + 1);
        return Batch{text.narrow(1, 0, size.sequence).contiguous(),
                     text.narrow(1, 1, size.sequence).contiguous()};
      });
}

// As the paper prepares its data: 15 % of the tokens are to be predicted (in every batch the same
// number, so that shapes do not change), and four of five of those are replaced by [MASK].
Batch bert_batch(const ModelSize& size, int64_t seed) {
  constexpr int64_t kMask = 103;
  const int64_t tokens = size.batch * size.sequence;
  const int64_t predictions = std::max<int64_t>(tokens * 15 / 100, 1);
  RandomBatch random(seed);
  const Tensor texts = counting_texts(random, size.batch, size.sequence);
  const Tensor words = texts.flatten();
  const Tensor masked = random.permutation(tokens).narrow(0, 0, predictions).contiguous();
  const Tensor hidden = masked.narrow(0, 0, (predictions * 4 + 4) / 5);
  const Tensor shown = words.index_fill(0, hidden, kMask).view({size.batch, size.sequence});
  const Tensor segments = at::arange(size.sequence, at::kLong)
                              .ge(size.sequence / 2)
                              .to(at::kLong)
                              .expand({size.batch, size.sequence})
                              .contiguous();
  return {shown, segments, masked, words.index_select(0, masked),
          texts.select(1, 0).remainder(2)};  // the second sentence follows the first, or not
}

}  // namespace

TrainingTask make_resnet(std::string_view name, const ModelSize& size, int64_t depth) {
  require_at_least(name, "image", size.image, 32);
  require_variance(name, size, 5);
  ResNetOptions options = ResNetOptions::of_depth(depth);
  options.width = size.width;
  return classification(ResNet(options), size);
}

TrainingTask make_vit(std::string_view name, const ModelSize& size) {
  VitOptions options{.image = size.image, .layers = size.layers, .width = size.width};
  require_multiple(name, "image", size.image, options.patch);
  options.heads = heads_of(name, size.width);
  return classification(Vit(options), size);
}

TrainingTask make_mlp_mixer(std::string_view name, const ModelSize& size) {
  const MlpMixerOptions options{.image = size.image, .layers = size.layers, .width = size.width};
  require_multiple(name, "image", size.image, options.patch);
  require_multiple(name, "width", size.width, 2);
  return classification(MlpMixer(options), size);
}

TrainingTask make_convnext(std::string_view name, const ModelSize& size) {
  require_at_least(name, "image", size.image, 32);
  return classification(ConvNext(ConvNextOptions{.width = size.width}), size);
}

TrainingTask make_gpt(std::string_view name, const ModelSize& size, bool fused) {
  GptOptions options{.layers = size.layers, .width = size.width, .fused_attention = fused};
  options.heads = heads_of(name, size.width);
  if (fused) options.attention_dropout = 0;  // or LibTorch's CPU kernel would not be used
  require_at_most(name, "sequence", size.sequence, options.context);
  return language_modelling(Gpt(options), size);
}

TrainingTask make_lstm_lm(std::string_view, const ModelSize& size) {
  const LstmLmOptions options{.layers = size.layers, .width = size.width};
  return language_modelling(LstmLm(options), size);
}

TrainingTask make_unet(std::string_view name, const ModelSize& size) {
  require_at_most(name, "layers", size.layers, 10);
  require_multiple(name, "image", size.image, int64_t{1} << size.layers);
  require_variance(name, size, size.layers);
  const UNetOptions options{.levels = size.layers, .width = size.width};
  return classification(UNet(options), [size, options](int64_t seed) {
    // Whether a pixel is bright.
    const Tensor images =
        RandomBatch(seed).normal({size.batch, options.input_channels, size.image, size.image});
    return Batch{images, images.select(1, 0).gt(0).to(at::kLong)};
  });
}

TrainingTask make_bert(std::string_view name, const ModelSize& size) {
  BertOptions options{.layers = size.layers, .width = size.width};
  options.heads = heads_of(name, size.width);
  require_at_least(name, "sequence", size.sequence, 2);  // two segments
  require_at_most(name, "sequence", size.sequence, options.context);
  BertPretraining model(options);
  return task(
      model.ptr(),
      [model](const Batch& batch, const BlockRunner& run) mutable {
        return model->loss({batch[0], batch[1], batch[2], batch[3], batch[4]}, run);
      },
      [size](int64_t seed) { return bert_batch(size, seed); });
}

}  // namespace remat::models
