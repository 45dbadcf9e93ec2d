// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "tests/libtorch/programs.h"

// Everything of torch::nn that trains on the CPU, each module as a program of its own.
namespace remat::testing {

using Sizes = std::vector<int64_t>;

// What a module makes of its input; `batch` has whatever else it needs.
using Forward = std::function<at::Tensor(const at::Tensor& input, const Batch& batch)>;

// Trains the module for three steps, with SGD and the sum of squares of its output. Its input is
// the batch's first tensor times a parameter, so that modules without parameters have something to
// learn through them.
Program train_module(std::shared_ptr<torch::nn::Module> module, Forward forward,
                     std::function<Batch()> make_batch);

inline at::Tensor first_of(const at::Tensor& output) { return output; }
template <typename... Others>
at::Tensor first_of(const std::tuple<at::Tensor, Others...>& output) {
  return std::get<0>(output);
}

// A module of one input of these sizes.
template <typename Make>
ProgramCase layer(const std::string& name, const Sizes& sizes, Make make) {
  return {.name = name,
          .make =
              [=] {
                auto holder = make();
                return train_module(
                    holder.ptr(),
                    [impl = holder.ptr()](const at::Tensor& input, const Batch&) {
                      return first_of(impl->forward(input));
                    },
                    [=] { return Batch{torch::randn(sizes)}; });
              },
          .most_plain_steps = 1,
          .plan_seconds = 0.02};
}

// A module that is called as `call(implementation, input, batch)`, with batches made by
// `make_batch`.
template <typename Make, typename Call>
ProgramCase module_case(const std::string& name, Make make, std::function<Batch()> make_batch,
                        Call call) {
  return {.name = name,
          .make =
              [=] {
                auto holder = make();
                return train_module(
                    holder.ptr(),
                    [impl = holder.ptr(), call](const at::Tensor& input, const Batch& batch) {
                      return first_of(call(*impl, input, batch));
                    },
                    make_batch);
              },
          .most_plain_steps = 1,
          .plan_seconds = 0.02};
}

std::vector<ProgramCase> activation_modules();
std::vector<ProgramCase> layer_modules();  // convolutions, linear layers, norms, pools, pads, ...
std::vector<ProgramCase> sequence_modules();  // embeddings, RNNs, attention, transformers
std::vector<ProgramCase> loss_modules();

}  // namespace remat::testing
