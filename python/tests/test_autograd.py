# SPDX-License-Identifier: Apache-2.0
"""Functions and hooks of the user's own, checkpoints, double backward. Each is trained plainly and in a budget; every bit must agree."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from training import CLASSES, FEATURES, Training, check, network, simple


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale  # not a tensor
        return scale * x**3

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * ctx.scale * x**2 * gradient, None


class CubeOnce(Cube):
    backward = staticmethod(torch.autograd.function.once_differentiable(Cube.backward))


@pytest.mark.parametrize("function", [Cube, CubeOnce])
def test_autograd_function_of_the_user(function):
    def build(step):
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Linear(16, CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            hidden = function.apply(model[0](x), 0.5)
            loss = F.cross_entropy(model[1](hidden.tanh()), y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer])

    check(build)


def test_forward_and_backward_hooks():
    seen = []

    def build(step):
        seen.clear()
        model = network()
        model[0].register_forward_pre_hook(lambda module, args: (args[0] * 1.5,))
        model[2].register_forward_hook(lambda module, args, out: out + 0.25)
        model[4].register_full_backward_hook(lambda module, gin, gout: tuple(g * 2 for g in gin))
        model[6].register_full_backward_pre_hook(lambda module, gout: tuple(g / 2 for g in gout))
        model[5].register_full_backward_hook(lambda module, gin, gout: seen.append(gin[0].shape) or None)
        return simple(step, model)

    check(build)
    assert len(seen) == 5  # each step calls each hook once


def test_tensor_hooks_and_post_accumulate_hooks():
    def halve_gradient(parameter):
        parameter.grad.mul_(0.5)

    def build(step):
        model = network()
        model[0].weight.register_hook(lambda gradient: gradient.clamp(-0.01, 0.01))
        model[4].weight.register_post_accumulate_grad_hook(halve_gradient)
        return simple(step, model)

    check(build)


def test_an_optimizer_that_runs_in_post_accumulate_hooks():
    def build(step):
        model = network()
        optimizers = {p: torch.optim.SGD([p], 0.1, momentum=0.9) for p in model.parameters()}

        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)

        @step
        def train(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        return Training(train, [model], list(optimizers.values()))

    check(build)


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_inside_is_recorded_as_if_it_were_not_there(use_reentrant):
    def build_with(checkpoint):
        def build(step):
            model = network()
            optimizer = torch.optim.SGD(model.parameters(), 0.1)

            @step
            def train(x, y):
                optimizer.zero_grad()
                hidden = model[:2](x)
                if checkpoint:
                    block = model[2:6]
                    hidden = torch.utils.checkpoint.checkpoint(block, hidden, use_reentrant=use_reentrant)
                else:
                    hidden = model[2:6](hidden)
                loss = F.cross_entropy(model[6](hidden), y)
                loss.backward()
                optimizer.step()
                return loss

            return Training(train, [model], [optimizer])

        return build

    with_it = check(build_with(checkpoint=True))
    without = check(build_with(checkpoint=False))
    assert [op["kind"] for op in with_it.graph().ops] == [op["kind"] for op in without.graph().ops]


def test_checkpoint_outside_of_a_step_still_computes_again():
    count = []

    def block(x):
        count.append(1)
        return x.sin()

    for use_reentrant in (False, True):
        count.clear()
        x = torch.ones(3, requires_grad=True)
        torch.utils.checkpoint.checkpoint(block, x, use_reentrant=use_reentrant).sum().backward()
        assert len(count) == 2


def test_gradient_penalty_by_double_backward():
    def build(step):
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            x = x.clone().requires_grad_()
            loss = F.cross_entropy(model(x), y)
            (slope,) = torch.autograd.grad(loss, x, create_graph=True)
            (loss + slope.square().sum()).backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer])

    check(build)
