# SPDX-License-Identifier: Apache-2.0
"""Values that are packed, or on a disk, while they are idle."""

import pathlib
import tempfile

import pytest
import torch

import remat


def trained(wrap, steps=5):
    """The parameters after a few steps of a network with dropout, whose masks can be packed, and the step."""
    torch.manual_seed(3)
    layers = []
    for _ in range(4):
        layers += [torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Dropout(0.3)]
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = wrap(step)
    for _ in range(steps):
        step(torch.randn(1024, 256))
    return [parameter.detach().clone() for parameter in model.parameters()], step


def same(a, b):
    return all(torch.equal(x.view(torch.int32), y.view(torch.int32)) for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("options", [{}, {"strategy": "pack_only"}, {"pack": False}], ids=str)
def test_the_same_bits_packed_or_not(options):
    plain, _ = trained(lambda function: function)
    planned, step = trained(lambda function: remat.step(function, budget="75%", plan_seconds=0.5, **options))
    assert same(planned, plain)
    report = step.report()
    assert report.planned_steps >= 3
    assert report.channel == ""
    steps = remat.print_schedule(step.schedule(), step.graph()).splitlines()
    packs = sum(line.startswith("pack ") for line in steps)
    if options.get("strategy") == "pack_only":
        assert packs > 0
    if not options.get("pack", True):
        assert packs == 0


@pytest.fixture
def disk():
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # tmp_path may lie in memory, which is refused
        yield folder


def test_offloaded(disk):
    plain, _ = trained(lambda function: function)
    planned, step = trained(
        lambda function: remat.step(function, budget="75%", plan_seconds=0.5, strategy="offload_only", offload=disk)
    )
    assert same(planned, plain)
    report = step.report()
    assert report.channel != ""
    assert report.channel_bytes > 0
    assert report.counts["offloaded_bytes"] > 0
    assert report.counts["waited_ns"] >= 0
    assert list(pathlib.Path(disk).iterdir()) == []


def test_a_folder_that_is_none():
    with pytest.raises(remat.Error, match="no/such/folder"):
        remat.step(lambda: torch.zeros(1), budget="50%", offload="no/such/folder")
