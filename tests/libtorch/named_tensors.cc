// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/named_tensors.h"

#include <algorithm>
#include <sstream>

namespace remat::testing {
namespace {

std::string difference_of_two(const at::Tensor& expected, const at::Tensor& found) {
  std::ostringstream out;
  if (expected.defined() != found.defined()) {
    out << (found.defined() ? "is defined, expected undefined" : "is undefined, expected defined");
  } else if (!expected.defined()) {
    return "";
  } else if (expected.sizes() != found.sizes() || expected.strides() != found.strides() ||
             expected.scalar_type() != found.scalar_type()) {
    out << "is " << found.scalar_type() << found.sizes() << " with strides " << found.strides()
        << ", expected " << expected.scalar_type() << expected.sizes() << " with strides "
        << expected.strides();
  } else if (!same_bits(expected, found)) {
    const at::Tensor wrong = (expected != found).flatten().nonzero();
    out << wrong.size(0) << " of " << found.numel() << " numbers differ";
    if (wrong.size(0) > 0) {
      const int64_t first = wrong[0].item<int64_t>();
      out << ", the first at " << first << ": " << found.flatten()[first].item<double>()
          << ", expected " << expected.flatten()[first].item<double>();
    }
  }
  return out.str();
}

}  // namespace

void add_numbered(NamedTensors& state, const std::string& name,
                  const std::vector<at::Tensor>& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    state.emplace_back(name + " " + std::to_string(i), tensors[i]);
  }
}

NamedTensors cloned(NamedTensors state) {
  for (auto& [name, tensor] : state) {
    if (tensor.defined()) {
      name += tensor.requires_grad() ? " (requires a gradient)" : "";
      tensor = tensor.detach().clone();
    }
  }
  return state;
}

std::string difference(const NamedTensors& expected, const NamedTensors& found) {
  for (size_t i = 0; i < std::min(expected.size(), found.size()); ++i) {
    if (expected[i].first != found[i].first) {
      return "found " + found[i].first + ", expected " + expected[i].first;
    }
    const std::string what = difference_of_two(expected[i].second, found[i].second);
    if (!what.empty()) {
      return expected[i].first + ": " + what;
    }
  }
  return expected.size() == found.size() ? "" : "more or fewer tensors than expected";
}

std::string first_line(const std::exception& error) {
  const std::string text = error.what();
  return text.substr(0, text.find('\n'));
}

}  // namespace remat::testing
