// SPDX-License-Identifier: Apache-2.0
#include "remat/libtorch/op_parts.h"

#include <ATen/Parallel.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <set>

#include "remat/libtorch/op_traits.h"
#include "remat/libtorch/op_values.h"
#include "remat/libtorch/row_parts.h"
#include "tests/libtorch/testing.h"

// Every op that op_traits.cc calls the same by element of its lists, or by row of its tensors, is called
// whole and in parts, in all of its overloads.

namespace remat {
namespace {

using at::Tensor;
using detail::OpTraits;
using detail::traits_of;
using testing::same_bits;
using torch::jit::Stack;

const std::vector<std::vector<int64_t>> kShapes = {{1, 1}, {3, 7}, {70, 257}, {1021, 13}, {1, 70001}};

std::vector<c10::OperatorHandle> ops_where(const std::function<bool(const c10::OperatorHandle&)>& wanted) {
  std::vector<c10::OperatorHandle> found;
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    const bool writes_to_out =
        op && std::ranges::any_of(op->schema().arguments(), [](const c10::Argument& argument) {
          return argument.is_out();
        });
    if (op && name.name.starts_with("aten::") && !writes_to_out && wanted(*op)) {
      found.push_back(*op);
    }
  }
  return found;
}

// Makes arguments of any schema of the tables. Values are positive: roots and quotients are defined.
class Arguments {
 public:
  Arguments(const c10::FunctionSchema& schema, std::vector<std::vector<int64_t>> shapes,
            at::ScalarType type)
      : shapes_(std::move(shapes)),
        type_(type),
        over_lists_(schema.arguments().front().type()->kind() == c10::TypeKind::ListType) {
    for (const c10::Argument& argument : schema.arguments()) {
      add(argument.name(), *argument.real_type());
    }
  }
  Stack stack;
  bool complete = true;  // every argument could be made

 private:
  void add(const std::string& name, const c10::Type& type) {
    switch (type.kind()) {
      case c10::TypeKind::TensorType:
        complete = complete && name != "scalars";  // a list in the form of a tensor
        stack.emplace_back(name == "lr" ? torch::full({}, 0.3, at::kDouble)
                           : over_lists_ ? torch::full({}, 0.3, type_)
                                         : torch::rand(shapes_[0], type_) + 0.1);
        return;
      case c10::TypeKind::ListType:
        add_list(name, type.expectRef<c10::ListType>().getElementType()->kind());
        return;
      case c10::TypeKind::NumberType:
      case c10::TypeKind::FloatType:
        stack.emplace_back(0.3);
        return;
      case c10::TypeKind::BoolType:
        stack.emplace_back(false);
        return;
      case c10::TypeKind::OptionalType: {
        const auto& element = *type.expectRef<c10::OptionalType>().getElementType();
        if (element.kind() == c10::TypeKind::TensorType && (name == "min" || name == "max")) {
          stack.emplace_back(torch::full(shapes_[0], name == "min" ? 0.2 : 0.7, type_));
        } else if (element.kind() == c10::TypeKind::NumberType) {
          stack.emplace_back(name == "min" ? 0.2 : 0.7);
        } else {
          stack.emplace_back();
        }
        return;
      }
      default:
        complete = false;
    }
  }

  void add_list(const std::string& name, c10::TypeKind element) {
    if (element == c10::TypeKind::TensorType) {
      c10::List<Tensor> list;
      for (size_t i = 0; i < (name == "max_exp_avg_sqs" ? 0 : shapes_.size()); ++i) {  // no amsgrad
        list.push_back(name == "state_steps" ? torch::full({}, 3.0F)
                                             : torch::rand(shapes_[i], type_) + 0.1);
      }
      stack.emplace_back(list);
    } else if (element == c10::TypeKind::NumberType) {
      c10::impl::GenericList list(c10::NumberType::get());
      for (size_t i = 0; i < shapes_.size(); ++i) {
        list.push_back(0.1 + 0.2 * static_cast<double>(i));
      }
      stack.emplace_back(list);
    } else {
      complete = false;
    }
  }

  std::vector<std::vector<int64_t>> shapes_;
  at::ScalarType type_;
  bool over_lists_;  // then other tensors are numbers
};

std::vector<Tensor> tensors_in(const Stack& values) {
  std::vector<Tensor> found;
  detail::visit_tensors(values, [&](const Tensor& tensor, TensorPlace) { found.push_back(tensor); });
  return found;
}

Stack copy_of(const Stack& values) {
  Stack copy;
  for (const c10::IValue& value : values) {
    copy.push_back(detail::own_copy(value));
    detail::map_tensors(copy.back(), [](const Tensor& tensor) { return tensor.clone(); });
  }
  return copy;
}

class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

TEST(OpParts, CallsOfOneElementGiveTheSameBits) {
  const at::NoGradGuard no_gradients;
  std::set<std::string> tested;
  for (const c10::OperatorHandle& op :
       ops_where([](const auto& each) { return traits_of(each).by_element; })) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const int threads : {1, 2}) {
        const Threads set(threads);
        torch::manual_seed(1);
        Arguments arguments(op.schema(), kShapes, type);
        // LibTorch's fused optimizers give other bits at every call for small types.
        const bool fused = op.schema().name().starts_with("aten::_fused");
        if (!arguments.complete || (fused && type == at::kBFloat16)) {
          continue;
        }
        SCOPED_TRACE(::testing::Message() << op.operator_name() << " " << type << " " << threads);
        Stack whole = copy_of(arguments.stack);
        const Stack whole_arguments = whole;
        Stack parts_arguments = copy_of(arguments.stack);
        op.callBoxed(&whole);
        std::vector<Tensor> expected = tensors_in(whole);
        std::vector<Tensor> found;
        for (size_t i = 0; i < kShapes.size(); ++i) {
          Stack part;
          for (const c10::IValue& argument : parts_arguments) {
            part.push_back(detail::part_of_argument(argument, static_cast<int32_t>(i)));
          }
          op.callBoxed(&part);
          for (const Tensor& tensor : tensors_in(part)) {
            found.push_back(tensor);
          }
        }
        EXPECT_TRUE(same_bits(found, expected));
        EXPECT_TRUE(same_bits(tensors_in(parts_arguments), tensors_in(whole_arguments)));
        tested.insert(op.schema().name());
      }
    }
  }
  EXPECT_GE(tested.size(), 40u);
  EXPECT_TRUE(tested.contains("aten::_fused_adamw_"));
  EXPECT_TRUE(tested.contains("aten::_foreach_addcdiv_"));
}

// A list with one element, or a tensor, cut to some rows.
c10::IValue rows_of(const c10::IValue& whole, int64_t first, int64_t rows, int64_t all) {
  c10::IValue part = detail::own_copy(whole);
  detail::map_tensors(part, [&](const Tensor& tensor) {
    return tensor.dim() > 0 && tensor.size(0) == all ? tensor.narrow(0, first, rows) : tensor;
  });
  return part;
}

void expect_same_by_rows(const c10::OperatorHandle& op, const Stack& arguments, int64_t all,
                         int64_t rows) {
  Stack whole = copy_of(arguments);
  const Stack whole_arguments = whole;
  const Stack parts_arguments = copy_of(arguments);
  op.callBoxed(&whole);
  const bool creates = op.schema().returns().size() == 1 && op.schema().returns()[0].alias_info() == nullptr;
  std::vector<Tensor> found;
  for (int64_t first = 0; first < all; first += rows) {
    Stack part;
    for (const c10::IValue& argument : parts_arguments) {
      part.push_back(rows_of(argument, first, std::min(rows, all - first), all));
    }
    op.callBoxed(&part);
    if (creates) {
      found.push_back(tensors_in(part).front());
    }
  }
  if (creates) {
    EXPECT_TRUE(same_bits(at::cat(found), tensors_in(whole).front()));
  }
  EXPECT_TRUE(same_bits(tensors_in(parts_arguments), tensors_in(whole_arguments)));
}

// Rows of a multiple of 64 elements for each thread, as row_parts.cc wants them. (With others add(x, y,
// alpha) differs: what a vectorised loop leaves over is rounded once instead of twice.)
TEST(OpParts, CallsOfSomeRowsGiveTheSameBits) {
  const at::NoGradGuard no_gradients;
  std::set<std::string> tested;
  for (const c10::OperatorHandle& op : ops_where(
           [](const auto& each) { return traits_of(each).rows == OpTraits::Rows::of_all; })) {
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      for (const std::vector<int64_t>& shape : {std::vector<int64_t>{60, 128}, {1021, 384}, {700, 4, 32}}) {
        for (const int threads : {1, 2}) {
          const Threads set(threads);
          torch::manual_seed(1);
          const Arguments arguments(op.schema(), {shape}, type);
          const bool fused = op.schema().name().starts_with("aten::_fused");  // as above
          if (arguments.complete && !(fused && type == at::kBFloat16)) {
            SCOPED_TRACE(::testing::Message() << op.operator_name() << " " << type << " " << shape[0]);
            expect_same_by_rows(op, arguments.stack, shape[0], shape[0] / 3 + 1);
            tested.insert(op.schema().name());
          }
        }
      }
    }
  }
  EXPECT_GE(tested.size(), 50u);
  EXPECT_TRUE(tested.contains("aten::addcdiv_"));
}

// On this machine. On one whose library rounds otherwise the step notices and leaves products whole.
TEST(OpParts, ProductsOfSomeRowsGiveTheSameBits) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::mm", "");
  for (const int threads : {1, 2}) {
    const Threads set(threads);
    torch::manual_seed(1);
    const Tensor dy = torch::randn({96, 5003});
    const Tensor x = torch::randn({96, 200});
    expect_same_by_rows(op, {dy.t(), x}, 5003, 1001);
    expect_same_by_rows(op, {dy.t().contiguous(), x}, 5003, 1251);
  }
}

TEST(OpParts, RowsOfAnEmbeddingsGradientAreThoseOfTheWhole) {
  const at::NoGradGuard no_gradients;
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    for (const int64_t padding : {-1, 3}) {
      for (const int threads : {1, 2}) {
        const Threads set(threads);
        torch::manual_seed(1);
        const Tensor gradient = torch::randn({40, 50, 17}, type);
        const Tensor indices = torch::randint(3001, {40, 50}, at::kLong);
        const Tensor whole = at::embedding_dense_backward(gradient, indices, 3001, padding, false);
        std::vector<Tensor> tiles;
        for (int64_t first = 0; first < 3001; first += 1400) {
          Stack part = {gradient, indices, 3001, padding, first, std::min<int64_t>(1400, 3001 - first)};
          detail::embedding_rows_op().callBoxed(&part);
          tiles.push_back(part.front().toTensor());
        }
        EXPECT_TRUE(same_bits(at::cat(tiles), whole));
      }
    }
  }
}

}  // namespace
}  // namespace remat
