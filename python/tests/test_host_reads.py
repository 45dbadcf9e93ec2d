# SPDX-License-Identifier: Apache-2.0
"""Steps whose function looks at values: branches, numbers, printing, numpy. Each is trained plainly and in a budget; every bit must agree."""

import pytest
import torch
from torch.nn import functional as F
from training import Training, check, network


def test_a_branch_on_the_data():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        taken = []

        @step
        def train(x, y):
            optimizer.zero_grad()
            hidden = model[:4](x)
            if hidden.mean() > x.mean() + 0.3995:
                hidden = hidden * 0.5
                taken.append(1)
            loss = F.cross_entropy(model[4:](hidden), y)
            loss.backward()
            optimizer.step()
            return loss, len(taken)

        return Training(train, [model], [optimizer])

    check(build, steps=12, planned=6)


@pytest.mark.parametrize(
    "read",
    [
        lambda loss, logits: loss.item(),
        lambda loss, logits: float(loss.detach().numpy()),
        lambda loss, logits: logits.detach().numpy().sum().item(),
        lambda loss, logits: logits.argmax(1).tolist(),
        lambda loss, logits: repr(logits.detach()),
        lambda loss, logits: f"{loss:.6f}",
    ],
    ids=["item", "numpy", "numpy_array", "tolist", "repr", "format"],
)
def test_bytes_read_inside_of_the_step(read):
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits, y)
            value = read(loss, logits)
            loss.backward()
            optimizer.step()
            return value

        return Training(train, [model], [optimizer])

    check(build, steps=12, planned=3)


def test_printing_inside_of_the_step(capsys):
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            print(loss)
            loss.backward()
            print(model[6].bias.grad)
            optimizer.step()

        return Training(train, [model], [optimizer])

    check(build, steps=7, planned=3)
    lines = capsys.readouterr().out.split("\n")
    printed = len(lines) // 2  # by the plain loop, and then by the step
    assert printed == 14 and lines[:printed] == lines[printed:-1]


def test_numpy_values_made_inside_of_the_step():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        calls = []

        @step
        def train(x, y):
            calls.append(1)
            optimizer.zero_grad()
            weights = torch.from_numpy((x.numpy() ** 2).sum(1)) * len(calls)
            loss = (F.cross_entropy(model(x), y, reduction="none") * weights).mean()
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer])

    check(build, steps=7, planned=3)
