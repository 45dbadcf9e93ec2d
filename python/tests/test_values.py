# SPDX-License-Identifier: Apache-2.0
"""Batches, arguments and results are any nesting of Python values, and keep their types."""

import collections
import dataclasses

import pytest
import remat
import torch
from torch import nn
from torch.nn import functional as F
from training import Training, check, network, rows
from transformers import BatchEncoding
from transformers.modeling_outputs import SequenceClassifierOutput

Pair = collections.namedtuple("Pair", ["x", "y"])


@dataclasses.dataclass
class Rows:
    x: torch.Tensor
    y: torch.Tensor
    name: str = "rows"


@dataclasses.dataclass(frozen=True)
class Frozen:
    parts: tuple
    note: dict


BATCHES = {
    "dict": (lambda x, y: {"x": x, "y": y, "id": 7}, lambda b: (b["x"], b["y"])),
    "ordered dict": (lambda x, y: collections.OrderedDict(x=x, y=y), lambda b: (b["x"], b["y"])),
    "tuple": (lambda x, y: (x, y), lambda b: b),
    "list": (lambda x, y: [x, y], lambda b: b),
    "nested": (
        lambda x, y: {"in": [(x,), None, "text"], "out": ({"y": y},)},
        lambda b: (b["in"][0][0], b["out"][0]["y"]),
    ),
    "namedtuple": (Pair, lambda b: (b.x, b.y)),
    "dataclass": (Rows, lambda b: (b.x, b.y)),
    "frozen dataclass": (lambda x, y: Frozen((x, [y]), {"a": 1}), lambda b: (b.parts[0], b.parts[1][0])),
    "BatchEncoding": (lambda x, y: BatchEncoding({"x": x, "y": y}), lambda b: (b["x"], b["y"])),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_batch_is_a(kind):
    pack, unpack = BATCHES[kind]

    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(batch):
            assert type(batch) is type(pack(None, None))
            x, y = unpack(batch)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer], batch=lambda i: (pack(*rows(i)),))

    check(build)


RESULTS = {
    "a tensor": lambda loss, logits: loss,
    "nothing": lambda loss, logits: None,
    "a number": lambda loss, logits: loss.item(),
    "a text": lambda loss, logits: "done",
    "a dict": lambda loss, logits: {"loss": loss, "logits": logits.detach(), "n": 1, "none": None},
    "a tuple": lambda loss, logits: (loss, [logits.detach()], ()),
    "a namedtuple": lambda loss, logits: Pair(loss, logits.detach()),
    "a dataclass": lambda loss, logits: Rows(loss, logits.detach(), "result"),
    "a frozen dataclass": lambda loss, logits: Frozen((loss,), {"logits": logits.detach()}),
    "a ModelOutput": lambda loss, logits: SequenceClassifierOutput(loss=loss, logits=logits),
    "the same tensor twice": lambda loss, logits: [loss, loss],
    "views of one tensor": lambda loss, logits: [logits.detach()[0], logits.detach()[:, 1]],
}


@pytest.mark.parametrize("kind", RESULTS)
def test_result_is(kind):
    result = RESULTS[kind]

    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
            return result(loss, logits)

        return Training(train, [model], [optimizer])

    check(build)


def test_the_very_object_comes_back():
    model = network()
    mine = object()

    @remat.step(budget="100%")
    def train(x, y):
        F.cross_entropy(model(x), y).backward()
        model.zero_grad()
        return mine

    for i in range(4):
        assert train(*rows(i)) is mine


def test_plain_values_that_change_at_every_step():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        log = []

        @step
        def train(x, y, temperature, *, name, smoothing=0.0, mask=None):
            log.append(name)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x) / temperature, y, label_smoothing=smoothing)
            loss.backward()
            optimizer.step()
            return loss, temperature, name, list(log), mask

        def call(i, x, y):
            return train(x, y, 1.0 + i / 10, name=f"step {i}", smoothing=0.01 * i)

        return Training(call, [model], [optimizer], batch=lambda i: (i, *rows(i)))

    check(build, steps=6, planned=3)


def test_keyword_tensors_as_models_of_transformers_take_them():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = network()

        def forward(self, inputs, labels):
            logits = self.net(inputs)
            return SequenceClassifierOutput(loss=F.cross_entropy(logits, labels), logits=logits)

    def build(step):
        model = Model()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        @step
        def train(**batch):
            optimizer.zero_grad()
            output = model(**batch)
            output.loss.backward()
            optimizer.step()
            return output

        def call(x, y):
            output = train(inputs=x, labels=y)
            assert type(output) is SequenceClassifierOutput and output.loss is output["loss"]
            return output

        return Training(call, [model], [optimizer])

    check(build)


def test_another_batch_size_is_another_course():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer], batch=lambda i: rows(i, 64 if i % 3 else 40))

    step = check(build, steps=9, planned=5)
    assert step.report().variants == 2


def test_results_of_earlier_steps_keep_their_values():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    @remat.step(budget="80%", plan_seconds=0.2)
    def train(x, y):
        optimizer.zero_grad()
        logits = model(x)
        F.cross_entropy(logits, y).backward()
        optimizer.step()
        return logits

    kept, copies = [], []
    for i in range(6):
        kept.append(train(*rows(i)))
        copies.append(kept[-1].detach().clone())
    assert train.report().planned_steps >= 4
    for one, copy in zip(kept, copies):
        assert torch.equal(one.detach(), copy)


def test_without_following_the_result_has_its_type_and_new_values():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            loss.backward()
            optimizer.step()
            return Rows(loss.detach(), logits.detach(), "result")

        return Training(train, [model], [optimizer])

    check(build, steps=6, follow=1)


class Named(list):
    """A list with an attribute, as some libraries return."""

    name = ""


def test_without_following_containers_of_every_kind_get_new_values():
    @remat.step(budget="1GiB", plan_seconds=0.1, measure_seconds=0.05, follow=1)
    def train(x):
        many = Named([x * 2])
        many.name = "many"
        counted = collections.defaultdict(int, total=x.sum())
        return many, counted, (x + 1, [x - 1])

    for i in range(5):
        many, counted, (more, (less,)) = train(torch.full((3,), float(i)))
        assert type(many) is Named and many.name == "many" and type(counted) is collections.defaultdict
        found = [many[0], counted["total"], more, less]
        expected = [torch.full((3,), 2.0 * i), torch.tensor(3.0 * i), torch.full((3,), i + 1.0), torch.full((3,), i - 1.0)]
        assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True)), i
