// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/op_traits.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>

#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>

namespace remat::detail {
namespace {

// What schemas and tags do not say, by op without its overload. The first column that matches an op
// sets its traits; every row has a test (reuse_test, capture_test, programs_test).
struct Known {
  std::string_view op;
  void (*add)(const c10::FunctionSchema&, OpTraits&);
};

void writes(const c10::FunctionSchema& schema, OpTraits& traits, std::string_view argument) {
  const auto index = schema.argumentIndexWithName(std::string(argument));
  if (index) {
    traits.written.push_back(*index);
  }
}

void batch_norm(const c10::FunctionSchema& schema, OpTraits& traits) {
  writes(schema, traits, "running_mean");
  writes(schema, traits, "running_var");
  traits.training_argument = schema.argumentIndexWithName("training").value_or(-1);
}

void hidden_view(const c10::FunctionSchema&, OpTraits& traits) {
  traits.hides_view = traits.returns_view = true;
}

void metadata(const c10::FunctionSchema&, OpTraits& traits) { traits.metadata_only = true; }
void fails_on_values(const c10::FunctionSchema&, OpTraits& traits) {
  traits.may_fail_on_values = true;
}
void reads_host(const c10::FunctionSchema&, OpTraits& traits) { traits.reads_on_host = true; }
void other_storage(const c10::FunctionSchema&, OpTraits& traits) { traits.reshapes_storage = true; }

template <int Sources, int Dim>
void row_wise(const c10::FunctionSchema&, OpTraits& traits) {
  traits.row_wise_sources = Sources;
  traits.row_dim_argument = Dim;
}

void each_element(const c10::FunctionSchema&, OpTraits& traits) { traits.by_element = true; }
// As above; on one element they are also pointwise.
void each_element_and_row(const c10::FunctionSchema&, OpTraits& traits) {
  traits.by_element = true;
  traits.rows = OpTraits::Rows::of_all;
}
template <OpTraits::Rows Which>
void each_row(const c10::FunctionSchema&, OpTraits& traits) {
  traits.rows = Which;
}
constexpr auto each_row_of_all = each_row<OpTraits::Rows::of_all>;

template <OpTraits::Loss Which>
void half_of_loss(const c10::FunctionSchema&, OpTraits& traits) {
  traits.loss = Which;
}

// Lengths given as tensors are read through const pointers, which nobody else would notice.
void ctc_loss(const c10::FunctionSchema& schema, OpTraits& traits) {
  for (const char* name : {"input_lengths", "target_lengths"}) {
    const auto index = schema.argumentIndexWithName(name);
    if (index && schema.arguments()[static_cast<size_t>(*index)].type()->kind() ==
                     c10::TypeKind::TensorType) {
      traits.host_arguments.push_back(*index);
    }
  }
}

// Where no gradient is needed it computes by itself, with threads, and not by an op of its own.
void max_pool1d(const c10::FunctionSchema&, OpTraits& traits) {
  traits.host_arguments = {0};
  traits.host_arguments_without_gradient = true;
}

constexpr Known kKnown[] = {
    {"aten::ctc_loss", ctc_loss},
    {"aten::max_pool1d", max_pool1d},
    {"aten::native_batch_norm", batch_norm},
    {"aten::cudnn_batch_norm", batch_norm},
    {"aten::miopen_batch_norm", batch_norm},
    {"aten::_batch_norm_impl_index", batch_norm},
    {"aten::batch_norm", batch_norm},
    {"aten::mkldnn_rnn_layer_backward",
     [](const c10::FunctionSchema& schema, OpTraits& traits) { writes(schema, traits, "workspace"); }},
    // Results of these share storage with their argument although the schema denies it.
    {"aten::_unsafe_view", hidden_view},
    {"aten::unsafe_split", hidden_view},
    {"aten::unsafe_split_with_sizes", hidden_view},
    {"aten::unsafe_chunk", hidden_view},
    {"aten::is_same_size", metadata},
    {"aten::_assert_tensor_metadata", metadata},
    {"aten::sym_size", metadata},
    {"aten::sym_stride", metadata},
    {"aten::sym_numel", metadata},
    {"aten::sym_storage_offset", metadata},
    {"aten::is_leaf", metadata},
    {"aten::_version", metadata},
    {"aten::result_type", metadata},
    {"aten::set_", other_storage},
    {"aten::resize_", other_storage},
    {"aten::resize_as_", other_storage},
    {"aten::_resize_output_", other_storage},
    // Its tag says that the shape depends on values: the lengths are lists of numbers or tensors that
    // it reads on the host, but what it returns has the shape of its arguments.
    {"aten::_ctc_loss", reads_host},
    {"aten::_pack_padded_sequence", reads_host},
    {"aten::embedding", fails_on_values},
    {"aten::_embedding_bag", fails_on_values},
    {"aten::index", fails_on_values},
    {"aten::index_select", fails_on_values},
    {"aten::index_put_", fails_on_values},
    {"aten::_index_put_impl_", fails_on_values},
    {"aten::gather", fails_on_values},
    {"aten::scatter", fails_on_values},
    {"aten::scatter_", fails_on_values},
    {"aten::scatter_add", fails_on_values},
    {"aten::scatter_add_", fails_on_values},
    {"aten::nll_loss_forward", fails_on_values},
    {"aten::nll_loss2d_forward", fails_on_values},
    {"aten::multi_margin_loss", fails_on_values},
    {"aten::multilabel_margin_loss_forward", fails_on_values},
    {"aten::binary_cross_entropy", fails_on_values},
    {"aten::multinomial", fails_on_values},
    {"aten::linalg_inv_ex", fails_on_values},
    {"aten::_linalg_check_errors", fails_on_values},
    // Foreach ops loop over their elements on the CPU, and so do the fused optimizers.
    {"aten::_foreach_norm", each_element},
    {"aten::_foreach_pow", each_element},
    {"aten::_foreach_pow_", each_element},
    {"aten::_foreach_reciprocal", each_element},
    {"aten::_foreach_reciprocal_", each_element},
    {"aten::_foreach_sign", each_element},
    {"aten::_foreach_sign_", each_element},
    {"aten::_foreach_exp", each_element},
    {"aten::_foreach_exp_", each_element},
    {"aten::_foreach_add", each_element_and_row},
    {"aten::_foreach_add_", each_element_and_row},
    {"aten::_foreach_sub", each_element_and_row},
    {"aten::_foreach_sub_", each_element_and_row},
    {"aten::_foreach_mul", each_element_and_row},
    {"aten::_foreach_mul_", each_element_and_row},
    {"aten::_foreach_div", each_element_and_row},
    {"aten::_foreach_div_", each_element_and_row},
    {"aten::_foreach_addcmul", each_element_and_row},
    {"aten::_foreach_addcmul_", each_element_and_row},
    {"aten::_foreach_addcdiv", each_element_and_row},
    {"aten::_foreach_addcdiv_", each_element_and_row},
    {"aten::_foreach_lerp", each_element_and_row},
    {"aten::_foreach_lerp_", each_element_and_row},
    {"aten::_foreach_sqrt", each_element_and_row},
    {"aten::_foreach_sqrt_", each_element_and_row},
    {"aten::_foreach_neg", each_element_and_row},
    {"aten::_foreach_neg_", each_element_and_row},
    {"aten::_foreach_maximum", each_element_and_row},
    {"aten::_foreach_maximum_", each_element_and_row},
    {"aten::_foreach_minimum", each_element_and_row},
    {"aten::_foreach_minimum_", each_element_and_row},
    {"aten::_foreach_clamp_min", each_element_and_row},
    {"aten::_foreach_clamp_min_", each_element_and_row},
    {"aten::_foreach_clamp_max", each_element_and_row},
    {"aten::_foreach_clamp_max_", each_element_and_row},
    {"aten::_foreach_abs", each_element_and_row},
    {"aten::_foreach_abs_", each_element_and_row},
    {"aten::_foreach_copy_", each_element_and_row},
    {"aten::_foreach_zero_", each_element_and_row},
    {"aten::_fused_adam_", each_element_and_row},
    {"aten::_fused_adamw_", each_element_and_row},
    {"aten::_fused_sgd_", each_element_and_row},
    {"aten::_fused_adagrad_", each_element_and_row},
    // What optimizers and clipping consist of.
    {"aten::add", each_row_of_all},
    {"aten::add_", each_row_of_all},
    {"aten::sub", each_row_of_all},
    {"aten::sub_", each_row_of_all},
    {"aten::mul", each_row_of_all},
    {"aten::mul_", each_row_of_all},
    {"aten::div", each_row_of_all},
    {"aten::div_", each_row_of_all},
    {"aten::addcmul", each_row_of_all},
    {"aten::addcmul_", each_row_of_all},
    {"aten::addcdiv", each_row_of_all},
    {"aten::addcdiv_", each_row_of_all},
    {"aten::lerp", each_row_of_all},
    {"aten::lerp_", each_row_of_all},
    {"aten::sqrt", each_row_of_all},
    {"aten::sqrt_", each_row_of_all},
    {"aten::neg", each_row_of_all},
    {"aten::maximum", each_row_of_all},
    {"aten::clamp", each_row_of_all},
    {"aten::clamp_", each_row_of_all},
    {"aten::copy_", each_row_of_all},
    {"aten::zero_", each_row_of_all},
    {"aten::mm", each_row<OpTraits::Rows::of_first>},
    {"aten::embedding_dense_backward", each_row<OpTraits::Rows::of_embedding>},
    {"aten::_softmax", row_wise<1, 1>},
    {"aten::_log_softmax", row_wise<1, 1>},
    {"aten::_softmax_backward_data", row_wise<2, 2>},
    {"aten::_log_softmax_backward_data", row_wise<2, 2>},
    {"aten::_log_softmax_backward_data", half_of_loss<OpTraits::Loss::softmax_backward>},
    {"aten::nll_loss_backward", half_of_loss<OpTraits::Loss::nll_backward>},
    {"aten::native_layer_norm", row_wise<1, -1>},
};

bool is_optional_of(const c10::Argument& argument, c10::TypeKind kind) {
  const auto& type = argument.type();
  return type->kind() == kind ||
         (type->kind() == c10::TypeKind::OptionalType &&
          type->expectRef<c10::OptionalType>().getElementType()->kind() == kind);
}

// A Scalar or a float, or a list of Scalars (one for each tensor of a foreach op).
bool is_number(const c10::Argument& argument) {
  const auto& type = argument.real_type();
  const bool list = type->kind() == c10::TypeKind::ListType &&
                    type->expectRef<c10::ListType>().getElementType()->kind() ==
                        c10::TypeKind::NumberType;
  const auto is = [&](c10::TypeKind kind) {
    return type->kind() == kind || (type->kind() == c10::TypeKind::OptionalType &&
                                    type->expectRef<c10::OptionalType>().getElementType()->kind() == kind);
  };
  return list || is(c10::TypeKind::NumberType) || is(c10::TypeKind::FloatType);
}

// Numbers that decide how many elements come out: arange(0, n, step).
bool numbers_make_shapes(std::string_view op) {
  return op.starts_with("aten::arange") || op.starts_with("aten::range") ||
         op.starts_with("aten::linspace") || op.starts_with("aten::logspace");
}

// Numbers that say how large an image gets.
bool numbers_scale_shapes(std::string_view op) {
  return op.starts_with("aten::upsample") || op.starts_with("aten::_upsample");
}

std::mutex& pure_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::set<std::string>& pure_ops() {
  static std::set<std::string> names;
  return names;
}

OpTraits read_traits(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string_view name = schema.name();
  OpTraits traits;
  traits.random = op.hasTag(at::Tag::nondeterministic_seeded);
  traits.pointwise = op.hasTag(at::Tag::pointwise);
  traits.changes_view = op.hasTag(at::Tag::inplace_view);
  traits.reads_on_host = op.hasTag(at::Tag::data_dependent_output);
  traits.shape_from_values = op.hasTag(at::Tag::dynamic_output_shape);
  traits.shape_only = name.starts_with("aten::empty") || name.starts_with("aten::new_") ||
                      name.ends_with("_like");
  traits.uninitialised = name.starts_with("aten::empty") || name.starts_with("aten::new_empty");
  traits.collective = name.starts_with("c10d::") || name.starts_with("_c10d_functional") ||
                      name.starts_with("c10d_functional::");
  traits.marker = name.starts_with("profiler::");
  if (!traits.marker && !name.starts_with("aten::") && !name.starts_with("prims::") && !name.starts_with("remat::")) {
    const std::lock_guard lock(pure_mutex());
    traits.foreign = !pure_ops().contains(std::string(name));
  }
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    if (argument.alias_info() != nullptr && argument.alias_info()->isWrite()) {
      traits.written.push_back(static_cast<int>(i));
    }
    if (is_optional_of(argument, c10::TypeKind::GeneratorType)) {
      traits.generator_argument = static_cast<int>(i);
    }
    traits.free_number.push_back(is_number(argument) && !numbers_scale_shapes(name));
  }
  traits.shape_from_numbers = numbers_make_shapes(name);
  traits.is_cast = name == "aten::_to_copy";
  for (const Known& known : kKnown) {
    if (known.op == name) {
      known.add(schema, traits);
    }
  }
  bool returns_tensors = false;
  traits.fresh_results = !schema.returns().empty() && !traits.returns_view;
  for (const c10::Argument& result : schema.returns()) {
    returns_tensors = returns_tensors || result.type()->kind() == c10::TypeKind::TensorType ||
                      result.type()->kind() == c10::TypeKind::ListType;
    if (result.alias_info() != nullptr) {
      traits.fresh_results = false;
      traits.returns_view = traits.returns_view || !result.alias_info()->isWrite();
    }
  }
  // Gives the host something that is no tensor, or nothing: it looks at bytes unless it is known not
  // to.
  if (!returns_tensors && traits.written.empty() && !traits.metadata_only) {
    traits.reads_on_host = true;
  }
  return traits;
}

}  // namespace

void declare_pure(const std::string& name) {
  const std::lock_guard lock(pure_mutex());
  pure_ops().insert(name);
}

bool shape_depends_on_values(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> arguments) {
  if (!traits_of(op).shape_from_values) {
    return false;
  }
  if (op.schema().name() != "aten::index") {
    return true;
  }
  for (const c10::IValue& index : arguments[1].toListRef()) {
    if (index.isTensor() && index.toTensor().defined() &&
        (index.toTensor().scalar_type() == at::kBool || index.toTensor().scalar_type() == at::kByte)) {
      return true;
    }
  }
  return false;
}

const OpTraits& traits_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, OpTraits> known;
  const c10::FunctionSchema* key = &op.schema();
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, read_traits(op)).first->second;
}

void for_each_tensor(const c10::IValue& value,
                     const std::function<void(const at::Tensor&)>& visit) {
  if (value.isTensor()) {
    if (value.toTensor().defined()) {
      visit(value.toTensor());
    }
  } else if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      for_each_tensor(element, visit);
    }
  }
}

void map_tensors(c10::IValue& value, const std::function<at::Tensor(const at::Tensor&)>& map) {
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) {
      at::Tensor mapped = map(tensor);
      if (!mapped.is_same(tensor)) {
        value = std::move(mapped);
      }
    }
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    c10::List<c10::IValue> elements = value.toList();
    c10::List<c10::IValue> mapped = elements.copy();
    bool changed = false;
    for (size_t i = 0; i < elements.size(); ++i) {
      c10::IValue element = elements.get(i);
      const c10::IValue before = element;
      map_tensors(element, map);
      if (element.isTensor() && !element.toTensor().is_same(before.toTensor())) {
        mapped.set(i, element);
        changed = true;
      }
    }
    if (changed) {
      value = c10::IValue(mapped);
    }
  }
}

c10::Device device_of(c10::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> found;
  for (const c10::IValue& argument : arguments) {
    if (argument.isDevice() && !found) {
      found = argument.toDevice();
    }
    for_each_tensor(argument, [&](const at::Tensor& tensor) {
      if (!found) {
        found = tensor.device();
      }
    });
  }
  return found.value_or(c10::Device(c10::kCPU));
}

}  // namespace remat::detail
