# SPDX-License-Identifier: Apache-2.0
"""The update inside of TrainingStep: the bits of the plain loop, less memory, no gradients left."""

import pytest
import remat
import torch
from torch.nn import functional as F
from training import exact, network, rows


def trained(optimizer_name, clip, planned, **options):
    torch.manual_seed(7)
    model = network()
    optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), lr=0.01, **options)

    def update():
        clip(model.parameters())
        optimizer.step()

    def loss_function(x, y):
        return F.cross_entropy(model(x), y)

    def plain(x, y):
        loss = loss_function(x, y)
        loss.backward()
        update()
        model.zero_grad()
        return loss.detach()

    step = plain
    if planned:
        step = remat.TrainingStep(
            loss_function, model, budget="100%", plan_seconds=0.2, measure_seconds=0, notice=lambda text: None, update=update
        )
    losses = []
    for i in range(5):
        losses.append(step(*rows(i)))
        assert all(p.grad is None for p in model.parameters())
    return exact([losses, model.state_dict(), optimizer.state_dict()]), step


CLIPPING = {
    "unclipped": lambda parameters: None,
    "by_value": lambda parameters: torch.nn.utils.clip_grad_value_(parameters, 0.01),
    "by_norm": lambda parameters: torch.nn.utils.clip_grad_norm_(parameters, 0.1),
}


@pytest.mark.parametrize("clipping", CLIPPING)
@pytest.mark.parametrize("variant", [{}, {"foreach": True}, {"fused": True}], ids=["each", "foreach", "fused"])
@pytest.mark.parametrize("name", ["SGD", "AdamW"])
def test_trains_as_the_plain_loop(name, variant, clipping):
    options = {**variant, **({"momentum": 0.9} if name == "SGD" else {})}
    expected, _ = trained(name, CLIPPING[clipping], False, **options)
    found, step = trained(name, CLIPPING[clipping], True, **options)
    assert found == expected
    report = step.report()
    assert report.planned_steps >= 3
    assert report.measured_peak_bytes == report.predicted_peak_bytes
    by_role = report.external_bytes_by_role
    assert sum(by_role.values()) == report.external_bytes
    assert by_role["optimizer_state"] >= by_role["param"]
    assert by_role["gradient"] == 0


@pytest.mark.parametrize("variant", ["foreach", "fused"])
def test_an_op_over_all_parameters_stands_in_parts(variant):
    _, step = trained("AdamW", CLIPPING["unclipped"], True, **{variant: True})
    kind = "_fused_adamw_" if variant == "fused" else "_foreach_addcdiv_"
    parts = [op for op in str(step.graph()).splitlines() if op.startswith("op") and kind in op]
    assert len(parts) == len(list(network().parameters()))


def test_what_an_update_needs():
    with pytest.raises(TypeError, match="found int"):
        remat.TrainingStep(lambda x: x.sum(), network(), budget="50%", update=3)
    with pytest.raises(TypeError, match="expects the model"):
        remat.TrainingStep(lambda x: x.sum(), budget="50%", update=lambda: None)
