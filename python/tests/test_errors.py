# SPDX-License-Identifier: Apache-2.0
"""What comes out when something goes wrong, and in which state it leaves the training."""

import copy
import pickle
import textwrap
import threading
import traceback

import pytest
import remat
import torch
from torch import nn
from torch.nn import functional as F
from training import CLASSES, Training, assert_kept_its_word, assert_same, made, network, rows, simple, state_of

QUICK = {"budget": "80%", "plan_seconds": 0.2, "measure_seconds": 0.1}


def quick(function):
    return remat.step(function, **QUICK)


class Mine(Exception):
    pass


PLACES = ["begin", "forward", "loss", "hook", "backward", "end"]


def build_raising(place, step, raising):
    """Raises what `raising` holds, once, at that place of the step."""
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def reach(here):
        if here == place and raising:
            raise raising.pop()

    model[3].register_forward_hook(lambda *_: reach("forward"))
    model[4].weight.register_hook(lambda gradient: reach("hook"))

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


@pytest.mark.parametrize("when", [0, 1, 3])
@pytest.mark.parametrize("place", PLACES)
def test_the_users_exception_comes_out_unchanged_and_training_goes_on(place, when):
    raisings = [], []
    plain = made(lambda step: build_raising(place, step, raisings[0]), lambda function: function)
    expected = []
    for i in range(7):
        error = Mine("plain")
        if i == when:
            raisings[0].append(error)
            with pytest.raises(Mine):
                plain.step(*rows(i))
        else:
            plain.step(*rows(i))
        expected.append(state_of(plain))
    followed = made(lambda step: build_raising(place, step, raisings[1]), quick)
    for i in range(7):
        error = Mine("followed")
        if i == when:
            raisings[1].append(error)
            with pytest.raises(Mine) as caught:
                followed.step(*rows(i))
            assert caught.value is error
            assert "reach" in [frame.name for frame in traceback.extract_tb(error.__traceback__)]
        else:
            followed.step(*rows(i))
        assert_same(state_of(followed), expected[i], f"after step {i}")
    assert_kept_its_word(followed.step)


def embedding_training(step):
    model = nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

    @step
    def train(tokens, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), y)
        loss.backward()
        optimizer.step()
        return loss

    def batch(i):
        return torch.arange(64).add(i) % 10, torch.arange(64) % CLASSES

    return Training(train, [model], [optimizer], batch=batch)


def test_an_index_out_of_range_in_a_planned_step():
    training = made(embedding_training, quick)
    plain = made(embedding_training, lambda function: function)
    for i in range(4):
        training.step(*training.batch(i))
        plain.step(*plain.batch(i))
    before = {name: value for name, value in state_of(training).items() if "gradient" not in name}
    tokens, y = training.batch(4)
    tokens[5] = 10
    with pytest.raises(IndexError, match="index out of range") as caught:
        training.step(tokens, y)
    after = state_of(training)
    assert_same({name: after[name] for name in before}, before, "after the error")
    (note,) = caught.value.__notes__
    assert "embedding" in note and "test_errors.py:" in note, note
    assert "layer 0" in note, note
    for i in range(4, 7):
        training.step(*training.batch(i))
        plain.step(*plain.batch(i))
        assert_same(state_of(training), state_of(plain), f"after step {i}")
    assert_kept_its_word(training.step)


def test_an_index_out_of_range_while_recording():
    training = made(embedding_training, quick)
    tokens, y = training.batch(0)
    with pytest.raises(IndexError, match="index out of range"):
        training.step(tokens + 10, y)
    plain = made(embedding_training, lambda function: function)
    for i in range(5):
        training.step(*training.batch(i))
        plain.step(*plain.batch(i))
        assert_same(state_of(training), state_of(plain), f"after step {i}")


def resize(x):
    y = x * 2
    y.resize_(100)
    return y.sum()


def set_storage(x):
    y = x * 2
    y.set_(x.untyped_storage())
    return y.sum()


def sparse(x):
    return torch.sparse.sum(x.to_sparse() * 2)


def sparse_gradient(x):
    embedding = nn.Embedding(10, 4, sparse=True)
    loss = embedding(x.long()).sum()
    loss.backward()
    return embedding.weight.grad


@pytest.mark.parametrize("function", [resize, set_storage, sparse, sparse_gradient])
def test_what_is_refused_leads_to_the_users_line(function):
    step = remat.step(function, budget="1MiB")
    with pytest.raises(remat.Error, match=r"\[step\]") as caught:
        for _ in range(3):
            step(torch.ones(4, 4))
    names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert function.__name__ in names, names


def test_a_loss_function_that_returns_no_loss():
    model = network()
    for function, found in [
        (lambda x, y: model(x), "a tensor of 256 elements"),
        (lambda x, y: model(x).detach().sum(), "does not depend on any parameter"),
        (lambda x, y: 3.0, "float"),
    ]:
        with pytest.raises(remat.Error, match=found):
            remat.TrainingStep(function, model, **QUICK)(*rows(0))


def test_torch_errors_in_the_function_are_those_of_torch():
    training = made(simple, quick)
    for i in range(3):
        training.step(*rows(i))
    before = state_of(training)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied") as caught:
        training.step(torch.ones(64, 9), rows(0)[1])
    assert type(caught.value) is RuntimeError
    found = state_of(training)
    assert_same(
        {name: value for name, value in found.items() if "gradient" not in name},
        {name: value for name, value in before.items() if "gradient" not in name},
    )
    training.step(*rows(3))


def test_a_step_is_not_pickled_nor_copied():
    step = made(simple, quick).step
    step(*rows(0))
    for attempt in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be pickled.*make it where it is used"):
            attempt(step)


class Trainer:
    def __init__(self):
        self.model = network()
        self.train_step = remat.step(self.train_step, **QUICK)

    def train_step(self, x, y):
        loss = F.cross_entropy(self.model(x), y)
        loss.backward()
        self.model.zero_grad()
        return loss

    @remat.step(**QUICK)
    def decorated(self, x, y):
        return self.train_step(x, y)


def test_a_decorated_method_is_refused_with_what_to_write_instead():
    trainer = Trainer()
    with pytest.raises(remat.Error, match=r"self.train_step = remat.step\(self.train_step, budget=...\)"):
        trainer.decorated(*rows(0))


def test_a_method_as_a_step_of_its_object():
    trainers = [Trainer(), Trainer()]
    for i in range(4):
        for trainer in trainers:
            trainer.train_step(*rows(i))
    for trainer in trainers:
        assert_kept_its_word(trainer.train_step, planned=2)


def test_a_step_keeps_the_name_and_the_docstring_of_its_function():
    @quick
    def train(x):
        """Trains."""

    assert train.__name__ == "train" and train.__doc__ == "Trains."
    assert repr(train) == "<remat.Step of train>"


def test_a_step_is_not_called_in_its_own_function():
    model = network()
    depth = []

    @quick
    def train(x, y):
        if depth:
            depth.clear()
            train(x, y)
        F.cross_entropy(model(x), y).backward()
        model.zero_grad()

    for i in range(5):
        if i in (1, 3):
            depth.append(1)
            with pytest.raises(remat.Error, match="running already"):
                train(*rows(i))
        else:
            train(*rows(i))


def test_a_step_is_not_called_by_two_threads_at_once():
    inside, leave = threading.Event(), threading.Event()

    @remat.step(budget="1MiB")
    def train(x):
        inside.set()
        leave.wait(30)
        return (x * 2).sum()

    results = []
    thread = threading.Thread(target=lambda: results.append(train(torch.ones(3))))
    thread.start()
    assert inside.wait(30)
    with pytest.raises(remat.Error, match="running already, on another thread"):
        train(torch.ones(3))
    leave.set()
    thread.join(60)
    assert [r.item() for r in results] == [6.0]
    assert train(torch.ones(3)).item() == 6.0


def test_a_step_is_not_called_inside_of_another_step():
    model = network()
    inner = remat.TrainingStep(lambda x, y: F.cross_entropy(model(x), y), model, **QUICK)

    @quick
    def outer(x, y):
        return inner(x, y)

    for i in range(3):
        with pytest.raises(remat.Error, match="inside of another step"):
            outer(*rows(i))
        model.zero_grad()
        inner(*rows(i))


def test_a_sparse_gradient_from_before_does_not_end_the_process(python):
    """Looking for gradients to drop, the library asked it for its storage, where nothing may be thrown."""
    python(
        textwrap.dedent("""
        import remat, torch
        embedding = torch.nn.Embedding(10, 4, sparse=True)
        embedding(torch.tensor([1, 2])).sum().backward()
        head = torch.nn.Linear(4, 2)
        raised = []

        @remat.step(budget="1GiB", plan_seconds=0.1, measure_seconds=0.05, notice=lambda text: None)
        def train(x):
            loss = (head(x) + (embedding.weight * 2).detach().sum()).sum()
            loss.backward()
            head.zero_grad()
            if raised:
                raise raised.pop()
            return loss

        for error in (KeyboardInterrupt, ValueError, None, KeyboardInterrupt, ValueError, None):
            raised[:] = [error] if error else []
            try:
                train(torch.ones(3, 4))
                assert error is None
            except (KeyboardInterrupt, ValueError) as found:
                assert isinstance(found, error)
        """)
    )


def test_a_report_during_a_step_is_refused():
    found = []

    @remat.step(budget="1GiB", plan_seconds=0.1, measure_seconds=0.05)
    def train(x):
        try:
            train.report()
        except remat.Error as error:
            found.append(str(error))
        return x.sum()

    train(torch.ones(3))
    assert "the step is running already" in found[0]


def test_a_notice_that_raises_comes_out_after_the_step():
    """Warnings as errors: the step has been done, and training goes on."""

    class Told(Exception):
        pass

    def raise_it(text):
        raise Told(text)

    weight = torch.ones(4, requires_grad=True)

    @remat.step(budget="1GiB", plan_seconds=0.1, measure_seconds=0.05, notice=raise_it)
    def train(x):
        weight.grad = None
        (weight * x).sum().backward()

    train(torch.ones(4))
    with pytest.raises(Told, match="another course"):
        train(torch.full((2, 4), 3.0))
    assert torch.equal(weight.grad, torch.full((4,), 6.0))
    train(torch.ones(4))
    assert torch.equal(weight.grad, torch.ones(4))


def test_checkpoint_function_can_still_be_subclassed():
    import torch.utils.checkpoint as checkpoint

    class Own(checkpoint.CheckpointFunction):
        pass

    x = torch.ones(3, requires_grad=True)
    Own.apply(lambda a: a * 2, True, x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))
