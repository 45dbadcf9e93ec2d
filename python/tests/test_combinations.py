# SPDX-License-Identifier: Apache-2.0
"""What else people combine in a training step. Each is trained plainly and in a budget; every bit must agree."""

import pytest
import remat
import torch
from torch import nn
from torch.nn import functional as F
from training import CLASSES, FEATURES, Training, check, network, rows, simple


def test_autocast_to_bfloat16():
    def build(step):
        model = network()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        @step
        def train(x, y):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer])

    check(build)


def test_bfloat16_parameters_without_a_grad_scaler():
    def build(step):
        model = network().to(torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        @step
        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x.bfloat16()).float(), y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer])

    check(build)


def test_several_micro_batches_in_one_step():
    def build(step):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)

        @step
        def train(x, y):
            optimizer.zero_grad()
            total = 0.0
            for xs, ys in zip(x.chunk(4), y.chunk(4)):
                loss = F.cross_entropy(model(xs), ys) / 4
                loss.backward()
                total = total + loss.detach()
            optimizer.step()
            return total

        return Training(train, [model], [optimizer])

    check(build)


def test_a_training_step_for_each_micro_batch_and_the_optimizer_outside():
    def build(step):
        model = network()
        optimizer = torch.optim.Adam(model.parameters(), 1e-2)

        @step
        def micro_step(x, y):
            return F.cross_entropy(model(x), y) / 4

        def train(x, y):
            losses = [micro_step(xs, ys) for xs, ys in zip(x.chunk(4), y.chunk(4))]
            optimizer.step()
            gradients = [p.grad.clone() for p in model.parameters()]
            optimizer.zero_grad()
            return losses, gradients

        return Training(train, [model], [optimizer])

    def plain_micro_step(function):
        def forward_and_backward(x, y):
            loss = function(x, y)
            loss.backward()
            return loss.detach()

        return forward_and_backward

    check(build, plain=plain_micro_step, wrap=remat.TrainingStep)


def test_frozen_parameters():
    def build(step):
        model = network()
        model[0].requires_grad_(False)
        return simple(step, model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad]))

    check(build)


def test_parameters_unfrozen_in_the_middle():
    def build(step):
        model = network()
        model[0].requires_grad_(False)
        training = simple(step, model)
        training.before = lambda i: model[0].requires_grad_(True) if i == 4 else None
        return training

    check(build, steps=10, planned=4)


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(32, 16)
            self.middle = nn.Linear(16, 16)
            self.head = nn.Linear(16, 32, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens):
            return self.head(F.gelu(self.middle(self.embedding(tokens))))

    def build(step):
        model = Tied()
        optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

        @step
        def train(tokens):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss

        def batch(i):
            return (torch.randint(0, 32, (4, 17), generator=torch.Generator().manual_seed(i)),)

        return Training(train, [model], [optimizer], batch=batch)

    check(build)


def test_adapters_in_a_frozen_model():
    class Adapted(nn.Module):
        def __init__(self, inner, rank=2):
            super().__init__()
            self.inner = inner.requires_grad_(False)
            self.down = nn.Linear(inner.in_features, rank, bias=False)
            self.up = nn.Linear(rank, inner.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.inner(x) + self.up(self.down(x)) * 2.0

    def build(step):
        model = network().requires_grad_(False)
        model[4] = Adapted(model[4])
        model[6] = Adapted(model[6])
        return simple(step, model, torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-2))

    check(build)


def test_an_average_of_the_parameters_updated_in_the_step():
    def build(step):
        model = network()
        average = torch.optim.swa_utils.AveragedModel(
            model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9), use_buffers=True
        )
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            average.update_parameters(model)
            return loss

        return Training(train, [model, average], [optimizer])

    check(build, steps=6)


def test_validation_between_steps():
    def build(step):
        training = simple(step)
        (model,) = training.modules

        def validate(i):
            model.eval()
            with torch.no_grad():
                training.others.append(model(rows(100 + i)[0]))
            model.train()

        training.before = validate
        return training

    check(build)


def test_one_step_that_trains_and_validates():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def run(x, y, training):
            model.train(training)
            with torch.set_grad_enabled(training):
                loss = F.cross_entropy(model(x), y)
            if training:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            return loss

        return Training(run, [model], [optimizer], batch=lambda i: (*rows(i), i % 3 != 2))

    check(build, steps=9, planned=4)


def test_state_dicts_saved_and_loaded_between_steps(tmp_path):
    def build(step):
        training = simple(step)
        (model,), (optimizer,) = training.modules, training.optimizers
        path = tmp_path / "saved.pt"

        def save_and_load(i):
            if i == 3:
                torch.save([model.state_dict(), optimizer.state_dict()], path)
            if i == 6:  # the steps 3, 4, 5 never happened
                state = torch.load(path)
                model.load_state_dict(state[0])
                optimizer.load_state_dict(state[1])

        training.before = save_and_load
        return training

    check(build, steps=9, planned=5)


def test_state_loaded_by_assignment_replaces_the_parameters():
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        training = simple(step, model, optimizer)

        def assign(i):
            if i == 4:
                model.load_state_dict({k: v.clone() + 1 for k, v in model.state_dict().items()}, assign=True)
                optimizer.param_groups[0]["params"] = list(model.parameters())

        training.before = assign
        return training

    check(build, steps=8, planned=2)


def test_two_models_against_each_other():
    def build(step):
        maker = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, FEATURES))
        judge = nn.Sequential(nn.Linear(FEATURES, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
        makers = torch.optim.Adam(maker.parameters(), 1e-2, betas=(0.5, 0.9))
        judges = torch.optim.Adam(judge.parameters(), 1e-2, betas=(0.5, 0.9))

        @step
        def train(x, y):
            real, unreal = torch.ones(len(x), 1), torch.zeros(len(x), 1)
            made = maker(torch.randn(len(x), 4))
            judges.zero_grad()
            loss = F.binary_cross_entropy_with_logits(judge(x), real)
            loss = loss + F.binary_cross_entropy_with_logits(judge(made.detach()), unreal)
            loss.backward()
            judges.step()
            makers.zero_grad()
            fooled = F.binary_cross_entropy_with_logits(judge(made), real)
            fooled.backward()
            makers.step()
            return {"judge": loss, "maker": fooled}

        return Training(train, [maker, judge], [makers, judges])

    step = check(build)
    names = [each["name"] for each in step.graph().externals]
    assert "0.weight" in names and "Sequential.0.weight" in names


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind):
    def build(step):
        model = nn.ModuleDict({"rnn": kind(4, 8, num_layers=2, dropout=0.1), "head": nn.Linear(8, CLASSES)})
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        @step
        def train(x, y):
            optimizer.zero_grad()
            hidden, _ = model["rnn"](x.view(-1, 2, 4).transpose(0, 1))
            loss = F.cross_entropy(model["head"](hidden[-1]), y)
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer])

    check(build)
