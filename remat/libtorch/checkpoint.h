// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <ATen/core/Tensor.h>

#include <concepts>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "remat/libtorch/policy.h"

// Activation checkpointing for eager LibTorch: start here.
//
//   at::Tensor y = remat::checkpoint(block, x);      // instead of block->forward(x)
//
// runs `block` now without keeping what autograd saves inside it; backward runs it again, as far as
// needed, and continues as if everything had been kept. Gradients, buffers and generators end up
// with the same bits as without it. docs/eager.md has examples and limits.
namespace remat {

// What the re-run is checked against. A difference throws remat::Error out of backward.
enum class DeterminismCheck {
  none,
  shapes,  // number, shapes, types and devices of the saved tensors
  bytes,   // also their contents: finds every difference, costs one pass over each saved tensor
};

struct CheckpointOptions {
  // Which op results stay in memory; empty: none.
  Policy policy = {};
  DeterminismCheck determinism = DeterminismCheck::shapes;
  // Stop the re-run at the last tensor that backward still needs. fn is left by an exception that
  // is not a std::exception; switch it off for code that must reach its end.
  bool early_stop = true;
};

namespace detail {

// Runs a region once, now, with `result` passed through to it, and again in backward with a null
// result. This is all that is behind the templates below.
using RegionBody = std::function<void(const std::vector<at::Tensor>& inputs, void* result)>;
void run_region(RegionBody body, std::vector<at::Tensor> inputs, const CheckpointOptions& options,
                void* result);

template <typename Holder>
concept HoldsForward = requires(Holder& holder, const at::Tensor& x) {
  holder->forward(x);
};

// Asking whether a module holder can be called with other arguments than its module takes does not
// compile, so holders are never asked.
template <typename Holder>
concept HoldsModule = requires(Holder& holder) {
  holder->is_training();
};

template <typename Function, typename Argument>
concept Callable = !HoldsModule<Function> && std::invocable<Function&, Argument>;

template <typename Block>
concept TensorBlock = HoldsForward<Block> || requires(Block& block, const at::Tensor& x) {
  block.forward(x);
} || Callable<Block, const at::Tensor&>;

template <typename Function>
concept VectorFunction =
    !HoldsForward<Function> && Callable<Function, const std::vector<at::Tensor>&>;

// One way to call modules, module holders and functions.
template <typename Block, typename... Arguments>
decltype(auto) call_block(Block& block, Arguments&&... arguments) {
  if constexpr (requires { block->forward(std::forward<Arguments>(arguments)...); }) {
    return block->forward(std::forward<Arguments>(arguments)...);
  } else if constexpr (requires { block.forward(std::forward<Arguments>(arguments)...); }) {
    return block.forward(std::forward<Arguments>(arguments)...);
  } else {
    return block(std::forward<Arguments>(arguments)...);
  }
}

template <typename Result, typename Call>
Result run_typed(Call call, std::vector<at::Tensor> inputs, const CheckpointOptions& options) {
  if constexpr (std::is_void_v<Result>) {
    run_region([call = std::move(call)](const std::vector<at::Tensor>& tensors,
                                        void*) mutable { call(tensors); },
               std::move(inputs), options, nullptr);
  } else {
    std::optional<Result> result;
    run_region(
        [call = std::move(call)](const std::vector<at::Tensor>& tensors, void* slot) mutable {
          if (slot != nullptr) {
            static_cast<std::optional<Result>*>(slot)->emplace(call(tensors));
          } else {
            (void)call(tensors);
          }
        },
        std::move(inputs), options, &result);
    return std::move(*result);
  }
}

// A tuple of arguments, of which the region keeps only the tensors, and those as its inputs.
template <typename... Arguments>
std::vector<at::Tensor> take_tensors(std::tuple<Arguments...>& arguments) {
  std::vector<at::Tensor> tensors;
  auto take = [&tensors](auto& argument) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(argument)>, at::Tensor>) {
      tensors.push_back(std::exchange(argument, at::Tensor()));
    }
  };
  std::apply([&take](auto&... each) { (take(each), ...); }, arguments);
  return tensors;
}

template <typename... Arguments>
void put_tensors(std::tuple<Arguments...>& arguments, const std::vector<at::Tensor>& tensors) {
  size_t next = 0;
  auto put = [&](auto& argument) {
    if constexpr (std::same_as<std::remove_cvref_t<decltype(argument)>, at::Tensor>) {
      argument = tensors[next++];
    }
  };
  std::apply([&put](auto&... each) { (put(each), ...); }, arguments);
}

}  // namespace detail

// fn: const std::vector<at::Tensor>& -> anything. It is copied and must stay callable until the
// graph is gone: capture modules by value (holders share), nothing by dangling reference. Tensors
// that need not stay in memory belong in `inputs`, not in the capture. Throws remat::Error where
// the contract of docs/eager.md is broken; what fn throws comes out as it is.
template <detail::VectorFunction Function>
auto checkpoint(Function fn, std::vector<at::Tensor> inputs,
                const CheckpointOptions& options = {}) {
  using Result = std::invoke_result_t<Function&, const std::vector<at::Tensor>&>;
  return detail::run_typed<std::remove_cvref_t<Result>>(std::move(fn), std::move(inputs), options);
}

// block: a module, a module holder (nn::Sequential, ...) or a function of one tensor. A module is
// passed by its holder; the result has the type that the block returns.
template <detail::TensorBlock Block>
auto checkpoint(Block block, const at::Tensor& x, const CheckpointOptions& options = {}) {
  auto call = [block = std::move(block)](const std::vector<at::Tensor>& inputs) mutable {
    return detail::call_block(block, inputs.front());
  };
  using Result = decltype(call({}));
  return detail::run_typed<Result>(std::move(call), {x}, options);
}

// Several arguments of any types: block(std::get<0>(arguments), ...). Tensors among them are the
// region's inputs, the rest is copied.
template <typename Block, typename... Arguments>
auto checkpoint(Block block, std::tuple<Arguments...> arguments,
                const CheckpointOptions& options = {}) {
  std::vector<at::Tensor> inputs = detail::take_tensors(arguments);
  auto call = [block, arguments](const std::vector<at::Tensor>& tensors) mutable {
    auto filled = arguments;
    detail::put_tensors(filled, tensors);
    return std::apply([&block](auto&... each) { return detail::call_block(block, each...); },
                      filled);
  };
  using Result = decltype(call({}));
  return detail::run_typed<Result>(std::move(call), std::move(inputs), options);
}

}  // namespace remat
