// SPDX-License-Identifier: Apache-2.0
#include <ATen/autocast_mode.h>

#include <cstring>

#include "tests/libtorch/random_statements.h"

// Statements of forward. In bounds whatever comes in: registers grow by little, sums are small.
namespace remat::testing {
namespace {

namespace F = torch::nn::functional;
using at::Tensor;

// Results that no op has kept yet, that the op itself has kept, that are another register's bytes.
Register fresh(Tensor tensor) { return {.tensor = std::move(tensor)}; }
Register kept(Tensor tensor) {
  return {.tensor = std::move(tensor), .saved = std::make_shared<bool>(true)};
}
Register alias(Tensor tensor, const Register& of) {
  return {.tensor = std::move(tensor), .saved = of.saved};
}

Tensor activation(const Tensor& x, int which) {
  switch (which) {
    case 0: return torch::tanh(x);
    case 1: return torch::relu(x);
    case 2: return torch::gelu(x);
    case 3: return torch::silu(x);
    default: return torch::softmax(x, 1);
  }
}

Tensor as_image(const Tensor& x) { return x.reshape({x.size(0), 2, 2, 2}); }

// Another tensor with b's values where the two share bytes: ops in place refuse partial overlaps.
Tensor apart_from(const Tensor& written, const Register& b) {
  return b.tensor.is_alias_of(written) ? b.tensor.clone() : b.tensor;
}

struct ScaledTanh : torch::autograd::Function<ScaledTanh> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x, double scale) {
    Tensor y = torch::tanh(x * scale);
    context->save_for_backward({y});
    context->saved_data["scale"] = scale;
    return y;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    const Tensor y = context->get_saved_variables()[0];
    return {gradients[0] * (1 - y * y) * context->saved_data["scale"].toDouble(), Tensor()};
  }
};

// Writes through one view of a register, chosen among some.
void write_through_view(const Call& call) {
  const Tensor x = call.writable(call.a);
  const int64_t column = choice(call, kWidth);
  switch (choice(call, 6)) {
    case 0: x.narrow(1, column / 2, 4).mul_(call.number); break;
    case 1: x.select(1, column).fill_(call.number); break;
    case 2: x.slice(1, 0, kWidth, 2).add_(apart_from(x, call.b).slice(1, 1, kWidth, 2), 0.5); break;
    case 3: x.t().select(0, column).copy_(apart_from(x, call.b).select(1, 0)); break;
    case 4: x.diagonal().zero_(); break;
    default: x.narrow(0, 0, 2).narrow(1, column / 2, 3).t().add_(call.number); break;
  }
}

// In place on the whole register.
void write_in_place(const Call& call) {
  const Tensor x = call.writable(call.a);
  const auto output_is_kept = [&] { *call.a.saved = true; };
  switch (choice(call, 7)) {
    case 0: x.add_(apart_from(x, call.b), call.number); break;
    case 1: x.mul_(call.number); break;
    case 2: x.relu_(), output_is_kept(); break;
    case 3: x.tanh_(), output_is_kept(); break;
    case 4: x.clamp_(-1.5, 1.5), output_is_kept(); break;
    case 5: x.lerp_(apart_from(x, call.b).detach().clone(), 0.25); break;
    default: x.masked_fill_(call.b.tensor.detach() > 0.5, call.number); break;
  }
}

Register with_autocast(const Call& call) {
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const Tensor y = call.world.net->linear[0]->forward(call.saving(call.a));
  at::autocast::set_autocast_enabled(at::kCPU, false);
  at::autocast::clear_cache();
  return fresh(y.to(at::kFloat));
}

Register without_history(const Call& call, bool inference) {
  Tensor y;
  if (inference) {
    const c10::InferenceMode inference_mode;
    y = call.world.net->linear[1]->forward(call.a.tensor.detach());
  } else {
    const torch::NoGradGuard no_grad;
    y = call.world.net->linear[1]->forward(call.a.tensor);
  }
  return fresh(call.a.tensor + y.clone());
}

// Rows that a condition selects, in a shape that only the values know.
Register selected_rows(const Call& call) {
  const Tensor x = call.saving(call.a);
  const Tensor mask = x.detach().select(1, choice(call, kWidth)) > 0;
  const Tensor rows = x.index({mask});
  call.world.log(static_cast<double>(rows.size(0)));
  return fresh(x + torch::tanh(call.world.net->linear[0]->forward(rows)).sum(0) * 0.25);
}

Register scaled_by_count(const Call& call) {
  const Tensor found = (call.a.tensor.detach() > call.number).nonzero();
  call.world.log(static_cast<double>(found.size(0)));
  return fresh(call.a.tensor * (2.0 / static_cast<double>(1 + found.size(0))));
}

Register through_accessor(const Call& call) {
  const int64_t rows = call.a.tensor.size(0);
  const int64_t column = choice(call, kWidth);
  switch (choice(call, 4)) {
    case 0: {  // a mask made on the host
      const Tensor mask = torch::ones({rows, kWidth});
      auto values = mask.accessor<float, 2>();
      for (int64_t row = 0; row < rows; ++row) {
        values[row][(row + call.world.step) % kWidth] = static_cast<float>(call.number);
      }
      return fresh(call.saving(call.a) * mask);
    }
    case 1: {  // a copy of values, changed on the host
      const Tensor copy = call.a.tensor.detach().clone();
      copy.accessor<float, 2>()[rows - 1][column] += static_cast<float>(call.number);
      return fresh(call.a.tensor + copy);
    }
    case 2: {  // the very bytes
      const Tensor x = call.writable(call.a);
      x.accessor<float, 2>()[0][column] = static_cast<float>(call.number);
      return alias(x.view_as(x), call.a);
    }
    default: {  // an array of the host's own
      for (float& value : call.world.host_array) {
        value = static_cast<float>(call.world.host_uniform());
      }
      return fresh(call.a.tensor + torch::from_blob(call.world.host_array.data(), {kWidth}));
    }
  }
}

void read_bytes(const Call& call) {
  const Tensor x = call.a.tensor.detach();
  if (choice(call, 2) == 0) {
    const Tensor dense = x.contiguous();
    float first = 0;
    std::memcpy(&first, dense.const_data_ptr(), sizeof(first));
    call.world.log(first);
  } else {
    call.world.log(x.accessor<float, 2>()[1][choice(call, kWidth)]);
  }
}

void add_hook(const Call& call) {
  if (!call.a.tensor.requires_grad()) {
    return;
  }
  World* const world = &call.world;
  const double number = call.number;
  switch (choice(call, 3)) {
    case 0: call.a.tensor.register_hook([=](const Tensor&) { world->log(number); }); break;
    case 1: call.a.tensor.register_hook([=](const Tensor& grad) { return grad * number; }); break;
    default:
      call.a.tensor.register_hook([=](const Tensor& grad) {
        world->log(grad.abs().max().item<double>());
        return grad.clamp(-0.01, 0.01);
      });
  }
}

void hold(const Call& call) {
  Register& held = call.world.held[choice(call, 2)];
  switch (choice(call, 3)) {
    case 0: held = alias(call.a.tensor.detach(), call.a); break;
    case 1: held = fresh(call.a.tensor.detach().clone()); break;
    default: held = alias(call.a.tensor, call.a); break;  // with its history
  }
}

Register use_held(const Call& call) {
  const Tensor& held = call.world.held[choice(call, 2)].tensor;
  return fresh(held.defined() ? call.a.tensor + held.detach().mean(0) * 0.5 : call.a.tensor * 0.5);
}

void add_to_held(const Call& call) {
  Register& held = call.world.held[choice(call, 2)];
  if (held.tensor.defined() && !*held.saved && !held.tensor.requires_grad()) {
    held.tensor.mul_(0.5).narrow(0, 0, 2).add_(call.a.tensor.detach().narrow(0, 0, 2).clone());
  }
}

Register with_noise(const Call& call) {
  const Tensor& x = call.a.tensor;
  switch (choice(call, 3)) {
    case 0: return fresh(x + torch::randn_like(x.detach()) * 0.1);
    case 1: return fresh(x.index_select(0, torch::randperm(x.size(0))));
    default: return fresh(x + torch::empty({x.size(0), 1}).uniform_(-call.number, call.number));
  }
}

constexpr Role kForward = Role::forward;

const StatementKind kForwardKinds[] = {
    {kForward, 6, "{y} = linear{c%2}({a})",
     [](const Call& call) {
       return fresh(call.world.net->linear[choice(call, 2)]->forward(call.saving(call.a)));
     }},
    {kForward, 3, "{y} = conv({a} as an image)",
     [](const Call& call) {
       return fresh(call.world.net->conv->forward(as_image(call.saving(call.a))).flatten(1));
     }},
    {kForward, 3, "{y} = batch_norm({a})",
     [](const Call& call) {
       return fresh(call.world.net->batch_norm->forward(call.saving(call.a)));
     }},
    {kForward, 2, "{y} = batch_norm_2d({a} as an image)",
     [](const Call& call) {
       const Tensor image = as_image(call.saving(call.a));
       return fresh(call.world.net->batch_norm_2d->forward(image).flatten(1));
     }},
    {kForward, 3, "{y} = layer_norm({a})",
     [](const Call& call) {
       return fresh(call.world.net->layer_norm->forward(call.saving(call.a)));
     }},
    {kForward, 3, "{y} = dropout({a})",
     [](const Call& call) { return kept(call.world.net->dropout->forward(call.saving(call.a))); }},
    {kForward, 2, "{y} = dropout({a}, p={n}/2)",
     [](const Call& call) {
       const auto options = F::DropoutFuncOptions().p(call.number / 2);
       return kept(F::dropout(call.saving(call.a), options));
     }},
    {kForward, 2, "{y} = {a} + embedding(labels)",
     [](const Call& call) {
       return fresh(call.a.tensor + call.world.net->embedding->forward(call.world.batch[2]));
     }},
    {kForward, 5, "{y} = {c|tanh|relu|gelu|silu|softmax}({a})",
     [](const Call& call) { return kept(activation(call.saving(call.a), choice(call, 5))); }},
    {kForward, 3, "{y} = {a} + {n} * {b}",
     [](const Call& call) { return fresh(torch::add(call.a.tensor, call.b.tensor, call.number)); }},
    {kForward, 2, "{y} = {a} * sigmoid({b})",
     [](const Call& call) {
       return fresh(call.saving(call.a) * torch::sigmoid(call.saving(call.b)));
     }},
    {kForward, 3, "{y} = {a} * {n}",
     [](const Call& call) { return fresh(call.a.tensor * call.number); }},
    {kForward, 2, "{y} = {a}.matmul(table.t())",
     [](const Call& call) {
       return fresh(call.saving(call.a).matmul(call.world.net->table.t()) * 0.5);
     }},
    {kForward, 2, "{y} = cat({a}[:, :4], {b}[:, 4:])",
     [](const Call& call) {
       return fresh(torch::cat({call.a.tensor.chunk(2, 1)[0], call.b.tensor.narrow(1, 4, 4)}, 1));
     }},
    {kForward, 2, "{y} = a view of {a}",
     [](const Call& call) { return alias(call.a.tensor.t().t(), call.a); }},
    {kForward, 1, "{y} = {a} in the order of columns",
     [](const Call& call) {
       return fresh(call.a.tensor.t().clone(at::MemoryFormat::Contiguous).t());
     }},
    {kForward, 2, "{y} = ScaledTanh({a}, {n})",
     [](const Call& call) { return kept(ScaledTanh::apply(call.saving(call.a), call.number)); }},
    {kForward, 5,
     "{c|{a}.add_({b}, {n})|{a}.mul_({n})|{a}.relu_()|{a}.tanh_()|{a}.clamp_(-1.5, 1.5)|"
     "{a}.lerp_({b}, 0.25)|{a}.masked_fill_({b} > 0.5, {n})}",
     [](const Call& call) { return write_in_place(call), nothing(); }},
    {kForward, 4,
     "{c|{a}[:, {c%8}/2 : +4].mul_({n})|{a}[:, {c%8}].fill_({n})|{a}[:, ::2].add_({b}[:, 1::2])|"
     "{a}.t()[{c%8}].copy_({b}[:, 0])|{a}.diagonal().zero_()|{a}[:2, {c%8}/2 : +3].t().add_({n})}",
     [](const Call& call) { return write_through_view(call), nothing(); }},
    {kForward, 1, "{a}[{a}[:, {c%8}] > 0] = {n}",
     [](const Call& call) {
       const Tensor x = call.writable(call.a);
       x.index_put_({x.detach().select(1, choice(call, kWidth)) > 0},
                    torch::scalar_tensor(call.number));
       return nothing();
     }},
    {kForward, 3, "{y} = {a}.sum().item() > 0 ? {a} * 0.5 : tanh({a})",
     [](const Call& call) {
       const double sum = call.a.tensor.sum().item<double>();
       call.world.log(sum);
       return sum > 0 ? fresh(call.a.tensor * 0.5) : kept(torch::tanh(call.a.tensor));
     }},
    {kForward, 2, "{y} = {a} * 2 / (1 + ({a} > {n}).nonzero().size(0))", scaled_by_count},
    {kForward, 2, "{y} = {a} + tanh(linear0({a}[{a}[:, {c%8}] > 0])).sum(0) / 4", selected_rows},
    {kForward, 1, "{y} = {a} + {a}.masked_select({b} > 0).sum() / 8",
     [](const Call& call) {
       const Tensor chosen = call.saving(call.a).masked_select(call.b.tensor.detach() > 0);
       return fresh(call.a.tensor + chosen.sum() * 0.125);
     }},
    {kForward, 1, "log(equal({a}, {b}))",
     [](const Call& call) {
       call.world.log(at::equal(call.a.tensor, call.b.tensor) ? 1 : 0);
       return nothing();
     }},
    {kForward, 3,
     "{y} = {a} {c|* a mask filled through an accessor with {n}|+ its copy, {n} added through an "
     "accessor in column {c%8}|itself, {n} written through an accessor in column {c%8}|"
     "+ from_blob(host numbers)}",
     through_accessor},
    {kForward, 2, "log({a}{c|.const_data_ptr()[0]|.accessor()[1][{c%8}]})",
     [](const Call& call) { return read_bytes(call), nothing(); }},
    {kForward, 2,
     "{a}.register_hook({c|log({n})|return grad * {n}|log(grad.abs().max().item()), return clamped})",
     [](const Call& call) { return add_hook(call), nothing(); }},
    {kForward, 2, "held{c%2} = {a}{c|.detach()|.detach().clone()|}",
     [](const Call& call) { return hold(call), nothing(); }},
    {kForward, 3, "{y} = {a} + held{c%2}.mean(0) / 2", use_held},
    {kForward, 1, "held{c%2} = held{c%2} / 2 + {a}, in place",
     [](const Call& call) { return add_to_held(call), nothing(); }},
    {kForward, 3, "{y} = {a}{c| + randn / 10|[randperm]| + uniform(-{n}, {n}) by rows}", with_noise},
    {kForward, 1, "{y} = {a} + torch::tensor({step, {n}, 1, 1, 1, 1, 1, 1}) / 8",
     [](const Call& call) {
       const std::vector<float> row = {static_cast<float>(call.world.step),
                                       static_cast<float>(call.number), 1, 1, 1, 1, 1, 1};
       return fresh(call.a.tensor + torch::tensor(row) * 0.125);
     }},
    {kForward, 1, "{y} = {a} + no_grad linear1({a})",
     [](const Call& call) { return without_history(call, false); }},
    {kForward, 1, "{y} = {a} + inference linear1({a})",
     [](const Call& call) { return without_history(call, true); }},
    {kForward, 1, "{y} = autocast linear0({a})", with_autocast},
    {kForward, 2, "{y} = {a} + memory, memory = 0.9 memory + 0.1 {a}",
     [](const Call& call) {
       const Tensor memory = call.world.net->memory.narrow(0, 0, call.a.tensor.size(0));
       Tensor sum = call.a.tensor + memory;
       const torch::NoGradGuard no_grad;
       memory.mul_(0.9).add_(call.a.tensor, 0.1);
       return fresh(sum);
     }},
};

}  // namespace

Tensor Call::saving(Register& operand) const {
  *operand.saved = true;
  return operand.tensor;
}

Tensor Call::writable(Register& operand) const {
  if (*operand.saved) {
    operand = fresh(operand.tensor.clone());
  }
  return operand.tensor;
}

std::span<const StatementKind> forward_kinds() { return kForwardKinds; }

}  // namespace remat::testing
