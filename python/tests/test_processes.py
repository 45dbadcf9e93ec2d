# SPDX-License-Identifier: Apache-2.0
"""Workers, forks, threads, and the end of the interpreter."""

import multiprocessing
import threading

import pytest
import remat
import torch
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset
from training import (
    CLASSES,
    FEATURES,
    Training,
    assert_kept_its_word,
    assert_same,
    check,
    made,
    network,
    rows,
    simple,
    state_of,
)

QUICK = {"budget": "90%", "plan_seconds": 0.2, "measure_seconds": 0.1}


class Examples(Dataset):
    def __len__(self):
        return 64 * 6

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        return {"x": torch.randn(FEATURES, generator=generator), "y": index % CLASSES}


@pytest.mark.parametrize("workers", [0, 2])
def test_data_loader_with_workers(workers):
    def build(step):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        # Workers take their seed from the default generator, in plain training as in ours.
        batches = iter(DataLoader(Examples(), batch_size=64, num_workers=workers, shuffle=True))

        @step
        def train(batch):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(batch["x"]), batch["y"])
            loss.backward()
            optimizer.step()
            return loss

        return Training(train, [model], [optimizer], batch=lambda i: (next(batches),))

    check(build, steps=6, planned=4)


def test_data_loader_whose_workers_start_while_a_step_lives():
    training = made(simple, lambda function: remat.step(function, **QUICK))
    for epoch in range(2):
        for batch in DataLoader(Examples(), batch_size=64, num_workers=2):
            training.step(batch["x"], batch["y"])
    assert_kept_its_word(training.step, planned=8)


def test_several_steps_in_one_process():
    """They take turns; each has a generator state of its own."""

    def states_of(step, count=3, steps=5):
        trainings, generators = [], []
        for index in range(count):
            torch.manual_seed(index)
            trainings.append(simple(step))
            generators.append(torch.get_rng_state())
        states = []
        for i in range(steps):
            for index, training in enumerate(trainings):
                torch.set_rng_state(generators[index])
                training.step(*rows(i))
                generators[index] = torch.get_rng_state()
                states.append(state_of(training))
        return states, trainings

    expected, _ = states_of(lambda function: function)
    found, trainings = states_of(lambda function: remat.step(function, **QUICK))
    for one, other in zip(found, expected, strict=True):
        assert_same(one, other)
    for training in trainings:
        assert_kept_its_word(training.step, planned=3)


def without_randomness(step, seed):
    torch.manual_seed(seed)
    return simple(step, network(dropout=0.0))


def test_two_threads_with_a_step_each():
    def train(training, states):
        for i in range(30):
            training.step(*rows(i))
        states.update(state_of(training))
        del states["generator"]

    found, expected, trainings, threads = [{}, {}], [{}, {}], [], []
    for seed in range(2):
        train(without_randomness(lambda function: function, seed), expected[seed])
        trainings.append(without_randomness(lambda function: remat.step(function, **QUICK), seed))
    for training, states in zip(trainings, found):
        threads.append(threading.Thread(target=train, args=(training, states)))
        threads[-1].start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive()
    for training, one, other in zip(trainings, found, expected):
        assert_same(one, other)
        assert_kept_its_word(training.step, planned=25)


def test_a_plain_loop_beside_a_step_on_another_thread():
    stop, losses = threading.Event(), []
    plain = without_randomness(lambda function: function, 0)
    training = without_randomness(lambda function: remat.step(function, **QUICK), 1)

    def train_plainly():
        while not stop.is_set():
            losses.append(plain.step(*rows(len(losses))).item())

    thread = threading.Thread(target=train_plainly)
    thread.start()
    for i in range(30):
        training.step(*rows(i))
    stop.set()
    thread.join(100)
    again = without_randomness(lambda function: function, 0)
    assert losses == [again.step(*rows(i)).item() for i in range(len(losses))]
    assert_kept_its_word(training.step, planned=25)


TRAIN = """
import remat, torch
from training import check, made, rows, simple
torch.set_num_threads(1)  # the threads of a parallel kernel do not survive a fork; torch asks the same of its users
def train():
    step = made(simple, lambda f: remat.step(f, budget="80%", plan_seconds=0.2, measure_seconds=0.1)).step
    for i in range(5):
        loss = step(*rows(i))
    assert step.report().planned_steps >= 3
    return step
"""

FORK = """
import os, sys
if sys.argv[1] == "after a step":
    step = train()
sys.stdout.flush()
child = os.fork()
if child == 0:
    check(simple)
    if sys.argv[1] == "after a step":
        step(*rows(5))  # the copy of the parent's
    os._exit(3)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
check(simple)
print("both trained")
"""


@pytest.mark.parametrize("when", ["after import", "after a step"])
def test_fork(python, when):
    assert python(TRAIN + FORK, when) == "both trained\n"


EXITS = {
    "right after a step": "train()",
    "with the step in a global": "kept = train()",
    "with the loss and the step in a global": "kept = train(); loss = kept(*rows(9))",
    "with the step in a cycle": "kept = train(); kept.__dict__['me'] = kept",
    "by sys.exit in the function": """
import sys
@remat.step(budget="1MiB")
def leave(x):
    sys.exit(0)
leave(torch.ones(3))
""",
    # One that is inside of torch when the interpreter ends aborts the process, without us too (Python 3.11).
    "with a daemon thread that has trained": """
import threading
trained = threading.Event()
def train_and_wait():
    step = train()
    trained.set()
    threading.Event().wait()
threading.Thread(target=train_and_wait, daemon=True).start()
trained.wait()
""",
}


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_ends_quietly(python, how):
    python(TRAIN + EXITS[how])


def child_of_spawn(queue):
    check(simple)
    queue.put("trained")


def test_a_spawned_process_trains():
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=child_of_spawn, args=(queue,))
    process.start()
    assert queue.get(timeout=100) == "trained"
    process.join()
    assert process.exitcode == 0
