// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "tests/libtorch/testing.h"

// What a step left, by name, to be compared with what another one left.
namespace remat::testing {

using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

// Adds "name 0", "name 1", ...
void add_numbered(NamedTensors& state, const std::string& name,
                  const std::vector<at::Tensor>& tensors);

// Without history; names say which of them required a gradient.
NamedTensors cloned(NamedTensors state);

// The first difference in names, shapes, types, strides or bytes, in words; empty if there is none.
std::string difference(const NamedTensors& expected, const NamedTensors& found);

// LibTorch's exceptions go on with a list of stack frames.
std::string first_line(const std::exception& error);

}  // namespace remat::testing
