// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/policy.h"

#include <unordered_set>
#include <utility>

namespace remat {

Policy keep_if(std::function<bool(const OpCall&)> predicate) {
  return [predicate = std::move(predicate)](const OpCall& call) {
    return predicate(call) ? OpChoice::keep : OpChoice::recompute;
  };
}

Policy keep_ops(std::vector<std::string> names) {
  std::unordered_set<std::string> wanted(names.begin(), names.end());
  return keep_if([wanted = std::move(wanted)](const OpCall& call) {
    return wanted.count(std::string(call.name)) != 0;
  });
}

Policy keep_either(Policy first, Policy second) {
  return keep_if([first = std::move(first), second = std::move(second)](const OpCall& call) {
    return first(call) == OpChoice::keep || second(call) == OpChoice::keep;
  });
}

Policy keep_matmuls_and_convolutions() {
  return keep_ops(
      {"aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::addmv",
       "aten::mv", "aten::dot", "aten::linear", "aten::_addmm_activation", "aten::mkldnn_linear",
       "aten::convolution", "aten::_convolution", "aten::convolution_overrideable",
       "aten::mkldnn_convolution", "aten::cudnn_convolution", "aten::miopen_convolution"});
}

Policy keep_attention() {
  return keep_ops({"aten::_scaled_dot_product_flash_attention_for_cpu",
                   "aten::_scaled_dot_product_flash_attention",
                   "aten::_scaled_dot_product_efficient_attention",
                   "aten::_scaled_dot_product_cudnn_attention",
                   "aten::_scaled_dot_product_fused_attention_overrideable",
                   "aten::_flash_attention_forward", "aten::_efficient_attention_forward"});
}

}  // namespace remat
