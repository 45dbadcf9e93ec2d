# SPDX-License-Identifier: Apache-2.0
"""Optimizers, schedulers, parameter groups and clipping. Each is trained plainly and in a budget; every bit must agree."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from training import CLASSES, FEATURES, Training, check, network, simple


OPTIMIZERS = {
    "SGD": dict(lr=0.1, momentum=0.9),
    "Adam": {},
    "AdamW": {},
    "Adagrad": {},
    "RMSprop": {},
    "Adadelta": {},
    "NAdam": {},
    "RAdam": {},
    "Adamax": {},
    "ASGD": {},
    "Rprop": {},
    "Adafactor": {},
}
FUSED = ("SGD", "Adam", "AdamW", "Adagrad")
VARIANTS = [(name, variant) for name in OPTIMIZERS for variant in (None, "foreach")]
VARIANTS += [(name, "fused") for name in FUSED]


@pytest.mark.parametrize(("name", "variant"), VARIANTS)
def test_optimizer(name, variant):
    def build(step):
        model = network()
        options = {**OPTIMIZERS[name], **({variant: True} if variant else {})}
        return simple(step, model, getattr(torch.optim, name)(model.parameters(), **options))

    check(build)


def test_muon_for_the_matrices():
    def build(step):
        model = nn.Sequential(nn.Linear(FEATURES, 16, bias=False), nn.ReLU(), nn.Linear(16, CLASSES, bias=False))
        return simple(step, model, torch.optim.Muon(model.parameters()))

    check(build)


def test_lbfgs_whose_closure_runs_backward_several_times():
    def build(step):
        model = nn.Sequential(nn.Linear(FEATURES, 16), nn.Tanh(), nn.Linear(16, CLASSES))
        optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=3, history_size=2)

        @step
        def train(x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.cross_entropy(model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure)

        return Training(train, [model], [optimizer])

    check(build, steps=8, planned=1)


SCHEDULERS = {
    "StepLR": lambda o: torch.optim.lr_scheduler.StepLR(o, 2, 0.5),
    "OneCycleLR": lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total_steps=20),
    "CosineAnnealingLR": lambda o: torch.optim.lr_scheduler.CosineAnnealingLR(o, 10),
    "LambdaLR": lambda o: torch.optim.lr_scheduler.LambdaLR(o, lambda i: 1 / (1 + i)),
}


@pytest.mark.parametrize("optimizer_name", ["SGD", "AdamW"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_scheduler_in_the_step(name, optimizer_name):
    def build(step):
        model = network()
        optimizer = getattr(torch.optim, optimizer_name)(model.parameters(), 0.1)
        scheduler = SCHEDULERS[name](optimizer)

        @step
        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            scheduler.step()
            return loss, scheduler.get_last_lr()

        return Training(train, [model], [optimizer])

    check(build, steps=6, planned=3)


def test_parameter_groups_with_rates_and_decay_of_their_own():
    def build(step):
        model = network()
        groups = [
            {"params": [p for p in model.parameters() if p.dim() > 1], "lr": 1e-2, "weight_decay": 0.1},
            {"params": [p for p in model.parameters() if p.dim() == 1], "lr": 1e-3, "weight_decay": 0.0},
        ]
        return simple(step, model, torch.optim.AdamW(groups))

    check(build)


@pytest.mark.parametrize("clip", ["norm", "value"])
def test_clipped_gradients(clip):
    def build(step):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        @step
        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            if clip == "norm":
                norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            else:
                norm = nn.utils.clip_grad_value_(model.parameters(), 0.01)
            optimizer.step()
            return loss, norm

        return Training(train, [model], [optimizer])

    check(build)
