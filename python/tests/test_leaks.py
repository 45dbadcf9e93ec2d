# SPDX-License-Identifier: Apache-2.0
"""Thousands of steps leave nothing behind, and a step that is dropped takes everything with it."""

import gc
import os
import resource
import sys
import weakref

import remat
import torch
from torch.nn import functional as F
from training import assert_kept_its_word, made, network, rows, simple

STEPS = int(os.environ.get("REMAT_LEAK_STEPS", "10000"))
QUICK = {"budget": "90%", "plan_seconds": 0.2, "measure_seconds": 0.1}


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def tensors_alive():
    return sum(1 for each in gc.get_objects() if type(each) is torch.Tensor)


def test_many_steps_leave_memory_and_references_as_they_were():
    def build(step):
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh(), torch.nn.Linear(8, 4))
        return simple(step, model)

    training = made(build, lambda function: remat.step(function, **QUICK))
    step, (model,) = training.step, training.modules
    batch = {"x": rows(0)[0], "y": rows(0)[1]}
    function = step.__wrapped__

    def train(count):
        for _ in range(count):
            step(batch["x"], batch["y"])
        gc.collect()
        return {
            "objects": len(gc.get_objects()),
            "tensors": tensors_alive(),
            "batch": [sys.getrefcount(batch), sys.getrefcount(batch["x"]), sys.getrefcount(batch["y"])],
            "model": [sys.getrefcount(model)] + [sys.getrefcount(p) for p in model.parameters()],
            "function": sys.getrefcount(function),
            "step": sys.getrefcount(step),
        }

    warm = train(STEPS // 4)
    resident = resident_bytes()
    after = train(STEPS)
    grown = resident_bytes() - resident
    assert abs(after.pop("objects") - warm.pop("objects")) < 50
    assert after == warm
    assert grown < 2**20, f"{grown} bytes in {STEPS} steps"
    assert_kept_its_word(step, planned=STEPS)


def test_new_batches_and_kept_losses_do_not_accumulate():
    training = made(simple, lambda function: remat.step(function, **QUICK))

    def train(first, count):
        losses = [training.step(*rows(i)).item() for i in range(first, first + count)]
        gc.collect()
        return len(losses), tensors_alive()

    train(0, 20)
    before = train(20, 50)
    resident = resident_bytes()
    assert train(70, 50) == before
    train(120, STEPS // 20)
    assert resident_bytes() - resident < 2**20


def test_exceptions_do_not_hold_the_batch():
    model = network()

    @remat.step(**QUICK)
    def train(x, y, fail):
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        model.zero_grad()
        if fail:
            raise ValueError("mine")
        return loss

    for i in range(4):
        train(*rows(i), False)
    batch = rows(9)
    references = [weakref.ref(each) for each in batch]
    try:
        train(*batch, True)
    except ValueError:
        pass
    del batch
    gc.collect()
    assert [each() for each in references] == [None, None]


def test_a_dropped_step_frees_its_function_and_its_model():
    training = made(simple, lambda function: remat.step(function, **QUICK))
    for i in range(4):
        training.step(*rows(i))
    step, model = weakref.ref(training.step), weakref.ref(training.modules[0])
    function = weakref.ref(training.step.__wrapped__)
    parameter = weakref.ref(training.modules[0][0].weight)
    del training
    gc.collect()
    assert (step(), function(), model(), parameter()) == (None, None, None, None)


class Trainer:
    """Refers to the step, whose function refers to it."""

    def __init__(self):
        self.model = network()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.step = remat.step(self.train, **QUICK)

    def train(self, x, y):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.optimizer.step()
        return loss


def test_a_step_in_a_cycle_with_its_object_is_freed():
    trainer = Trainer()
    for i in range(4):
        trainer.step(*rows(i))
    assert_kept_its_word(trainer.step)
    references = [weakref.ref(each) for each in (trainer, trainer.step, trainer.model, trainer.model[0].weight)]
    del trainer
    gc.collect()
    assert [each() for each in references] == [None] * 4


def test_steps_made_and_dropped_give_their_memory_back():
    def once():
        training = made(simple, lambda function: remat.step(function, **QUICK))
        for i in range(3):
            training.step(*rows(i))
        assert training.step.report().planned_steps >= 1

    def several(count):
        for _ in range(count):
            once()
        gc.collect()
        return len(gc.get_objects())

    several(5)
    objects, resident = several(3), resident_bytes()
    assert abs(several(15) - objects) < 50
    assert resident_bytes() - resident < 4 * 2**20


def test_results_outlive_the_step():
    training = made(simple, lambda function: remat.step(function, **QUICK))
    for i in range(4):
        loss = training.step(*rows(i))
    value, gradients = loss.item(), [p.grad.clone() for p in training.modules[0].parameters()]
    parameters = list(training.modules[0].parameters())
    del training
    gc.collect()
    junk = [torch.randn(100_000) for _ in range(5)]
    assert loss.item() == value and len(junk) == 5
    assert all(torch.equal(p.grad, g) for p, g in zip(parameters, gradients))


def test_the_collector_is_as_it_was():
    training = made(simple, lambda function: remat.step(function, **QUICK))
    assert gc.isenabled()
    for i in range(3):
        training.step(*rows(i))
        assert gc.isenabled()
    gc.disable()
    try:
        training.step(*rows(3))
        assert not gc.isenabled()
    finally:
        gc.enable()
