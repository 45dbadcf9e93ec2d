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

at::Tensor leaf(at::IntArrayRef sizes, uint64_t seed) {
  torch::manual_seed(seed);
  return torch::randn(sizes).requires_grad_();
}

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

}  // namespace remat::testing
