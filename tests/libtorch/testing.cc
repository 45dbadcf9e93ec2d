// SPDX-License-Identifier: Apache-2.0
#include "tests/libtorch/testing.h"

#include <cstring>

namespace remat::testing {
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  if (!a.defined() || !b.defined()) {
    return a.defined() == b.defined();
  }
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type()) {
    return false;
  }
  const at::Tensor x = a.detach().contiguous();
  const at::Tensor y = b.detach().contiguous();
  return x.nbytes() == 0 || std::memcmp(x.const_data_ptr(), y.const_data_ptr(), x.nbytes()) == 0;
}

bool same_bits(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  if (a.size() != b.size()) {
    return false;
  }
  for (size_t i = 0; i < a.size(); ++i) {
    if (!same_bits(a[i], b[i])) {
      return false;
    }
  }
  return true;
}

at::Tensor generator_state() { return at::detail::getDefaultCPUGenerator().get_state(); }

std::vector<at::Tensor> take_gradients(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor tensor : tensors) {
    gradients.push_back(tensor.grad().defined() ? tensor.grad().clone() : at::Tensor());
    tensor.mutable_grad() = at::Tensor();
  }
  return gradients;
}

std::vector<at::Tensor> clones(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> copies;
  for (const at::Tensor& tensor : tensors) {
    copies.push_back(tensor.detach().clone());
  }
  return copies;
}

std::vector<std::string> zoo_names() {
  std::vector<std::string> names;
  for (const models::ZooEntry& entry : models::zoo()) names.push_back(entry.name);
  return names;
}

models::ModelSize tiny_size(const models::ZooEntry& entry) {
  const auto if_it_has_one = [](int64_t standard, int64_t tiny) {
    return standard == 0 ? 0 : tiny;
  };
  const models::ModelSize& standard = entry.defaults;
  return {.batch = if_it_has_one(standard.batch, 2),
          .image = if_it_has_one(standard.image, 32),
          .sequence = if_it_has_one(standard.sequence, 12),
          .layers = if_it_has_one(standard.layers, 2),
          .width = if_it_has_one(standard.width, 16)};
}

}  // namespace remat::testing
