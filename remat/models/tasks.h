// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "remat/models/zoo.h"

namespace remat::models {

// What the zoo's entries are made of: a model at a size that has no zeros left, its loss and its
// batches. They check what the size means to the model and throw remat::Error that begins with the
// entry's name.
TrainingTask make_bert(std::string_view name, const ModelSize& size);
TrainingTask make_convnext(std::string_view name, const ModelSize& size);
TrainingTask make_gpt(std::string_view name, const ModelSize& size, bool fused);
TrainingTask make_lstm_lm(std::string_view name, const ModelSize& size);
TrainingTask make_mlp_mixer(std::string_view name, const ModelSize& size);
TrainingTask make_resnet(std::string_view name, const ModelSize& size, int64_t depth);
TrainingTask make_unet(std::string_view name, const ModelSize& size);
TrainingTask make_vit(std::string_view name, const ModelSize& size);

}  // namespace remat::models
