# SPDX-License-Identifier: Apache-2.0
"""What people combine in a training step. Each is trained plainly and in a budget; every bit must agree."""

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
