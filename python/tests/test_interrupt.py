# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C, wherever the step is: KeyboardInterrupt comes out, everything is as before the step, and training goes on."""

import gc
import os
import signal
import threading
import time

import pytest
import remat
import torch
from torch import nn
from torch.nn import functional as F
from training import (
    CLASSES,
    FEATURES,
    Training,
    assert_kept_its_word,
    assert_same,
    made,
    network,
    rows,
    simple,
    state_of,
)

QUICK = {"budget": "80%", "plan_seconds": 0.2, "measure_seconds": 0.1}


def press_ctrl_c():
    os.kill(os.getpid(), signal.SIGINT)


def interrupted(training, batch):
    """The call is interrupted, and only the gradients, which zero_grad() frees anyway, may be others afterwards."""
    before = lasting_state_of(training)
    with pytest.raises(KeyboardInterrupt):
        training.step(*batch)
    assert_same(lasting_state_of(training), before, "after the interrupt")


def lasting_state_of(training):
    return {name: value for name, value in state_of(training).items() if not name.startswith("gradient")}


def assert_goes_on(training, plain, steps):
    for i in steps:
        result, expected = training.step(*training.batch(i)), plain.step(*plain.batch(i))
        assert torch.equal(result, expected)
        assert_same(state_of(training), state_of(plain), f"after step {i}")
    assert_kept_its_word(training.step)


PLACES = ["begin", "forward", "loss", "backward hook", "backward", "end"]


@pytest.mark.parametrize("when", [0, 1, 4])
@pytest.mark.parametrize("place", PLACES)
def test_inside_of_the_function(place, when):
    """Step 0 makes the optimizer's state, step 1 is recorded, step 4 is planned."""
    pressed = []

    def build(step):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        def reach(here):
            if here == place and pressed:
                pressed.clear()
                press_ctrl_c()

        model[3].register_forward_hook(lambda *_: reach("forward"))
        model[4].weight.register_hook(lambda gradient: reach("backward hook"))

        @step
        def train(x, y):
            reach("begin")
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            reach("loss")
            loss.backward()
            reach("backward")
            optimizer.step()
            reach("end")
            return loss

        return Training(train, [model], [optimizer])

    training = made(build, lambda function: remat.step(function, **QUICK))
    for i in range(when):
        training.step(*rows(i))
    pressed.append(1)
    interrupted(training, rows(when))
    after = torch.get_rng_state()
    plain = made(build, lambda function: function)
    for i in range(when):
        plain.step(*rows(i))
    assert torch.equal(after, torch.get_rng_state())
    for i in range(when, when + 5):  # one after the other: there is one default generator
        state = torch.get_rng_state()
        expected = plain.step(*rows(i))
        torch.set_rng_state(state)
        assert torch.equal(training.step(*rows(i)), expected)
        assert_same(state_of(training), state_of(plain), f"after step {i}")
    assert_kept_its_word(training.step)


def deep(step, width, depth, finished):
    """Without randomness, so that two trainings can take turns."""
    layers = [nn.Linear(FEATURES, width)]
    for _ in range(depth):
        layers += [nn.Linear(width, width), nn.Tanh()]
    model = nn.Sequential(*layers, nn.Linear(width, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    @step
    def train(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        finished.set()
        return loss

    return Training(train, [model], [optimizer], batch=lambda i: rows(i, 512))


def press_ctrl_c_after(finished, seconds):
    """On another thread, that long after the function has returned."""

    def wait_and_press():
        finished.clear()
        waiting.set()
        if finished.wait(60):
            time.sleep(seconds)
            press_ctrl_c()

    waiting = threading.Event()
    thread = threading.Thread(target=wait_and_press)
    thread.start()
    waiting.wait()
    return thread


# (width, depth, budget, plan_seconds, calls before, seconds to wait). What follows the function lasts many times
# the wait: kernels of 512 x 512 x 512 take milliseconds each, planning 50 layers below the floor takes all its time.
PHASES = {
    "measuring": (512, 8, "100%", 0.2, 1, 0.05),
    "planning": (16, 50, "22%", 30.0, 1, 0.6),
    "a planned step": (512, 8, "100%", 0.2, 4, 0.01),
}


@pytest.mark.parametrize("phase", PHASES)
def test_while_the_library_is(phase):
    width, depth, budget, plan_seconds, calls, wait = PHASES[phase]
    finished = threading.Event()
    training = made(
        lambda step: deep(step, width, depth, finished),
        lambda function: remat.step(function, budget=budget, plan_seconds=plan_seconds, measure_seconds=2.0),
    )
    plain = made(lambda step: deep(step, width, depth, finished), lambda function: function)
    for i in range(calls):
        training.step(*training.batch(i))
        plain.step(*plain.batch(i))
    thread = press_ctrl_c_after(finished, wait)
    interrupted(training, training.batch(calls))
    thread.join()
    if phase == "a planned step":
        assert training.step.report().planned_steps == calls - 2
    else:
        with pytest.raises(remat.Error, match="no call has been planned yet"):
            training.step.report()
    if phase == "planning":
        return  # it would take its time again
    assert_goes_on(training, plain, range(calls, calls + 4))


def test_while_the_verb_plans():
    lines = ["remat-graph 1", "external x 100 input"]
    for i in range(150):
        read = f"a{i - 1}" if i else "x"
        lines.append(f"op a{i} forward kind=f time_ns={10 + i % 7} reads={read} creates=a{i}:{100 + i % 13}")
    for i in reversed(range(150)):
        read = f"a{i}" + (f",b{i + 1}" if i < 149 else "")
        lines.append(f"op b{i} backward kind=f time_ns=10 reads={read} creates=b{i}:{100 + i % 11}")
    lines.append("output b0")
    graph = remat.parse_graph("\n".join(lines) + "\n")
    timer = threading.Timer(0.5, press_ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        remat.plan(graph, budget="8%", time_limit_seconds=60)
    timer.join()


def test_twice_in_a_row():
    training = made(simple, lambda function: remat.step(function, **QUICK))
    for i in range(3):
        training.step(*rows(i))
    state = torch.get_rng_state()
    handle = training.modules[0][2].register_forward_pre_hook(lambda *_: press_ctrl_c())
    for _ in range(2):
        interrupted(training, rows(3))
    handle.remove()
    assert torch.equal(torch.get_rng_state(), state)
    training.step(*rows(3))
    assert training.step.report().planned_steps >= 2


def test_while_a_value_is_waited_for():
    """The interrupt passes through item(), where torch makes a RuntimeError of it, and a function that catches that."""
    finished = threading.Event()
    model = nn.Sequential(*(layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.Tanh())))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)

    @remat.step(budget="100%", plan_seconds=0.2, measure_seconds=0.1)
    def train(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        finished.set()
        try:
            return loss.item()
        except RuntimeError:
            return None

    x = torch.randn(512, 512)
    for _ in range(3):
        train(x)
    assert train.report().planned_steps >= 1
    before = [parameter.detach().clone() for parameter in model.parameters()]
    interrupts = 0
    for wait in (0.002, 0.004, 0.008):
        thread = press_ctrl_c_after(finished, wait)
        try:
            train(x)
            thread.join()
        except KeyboardInterrupt:
            interrupts += train._step.undone()
            if train._step.undone():
                assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
        thread.join()
        before = [parameter.detach().clone() for parameter in model.parameters()]
    assert interrupts >= 1


def test_in_pythons_collector(monkeypatch):
    training = made(simple, lambda function: remat.step(function, **QUICK))
    for i in range(2):
        training.step(*rows(i))

    def pressed(*_):
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(gc, "collect", pressed)
    # Another batch size is recorded anew, and what is still held is then looked for.
    interrupted(training, rows(2, count=32))
