#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a followed step costs on the Python side, on a model so small that kernels hardly count.

    python bench/python_step.py [--steps 10000]

Interleaved, medians: the plain loop, the same as a remat step, and its kernels alone (follow=1: the function is no
longer called). `python side` is the step less its kernels. Then many steps: times and memory, early and late."""

import argparse
import statistics
import time

import remat
import torch
from torch.nn import functional as F


def make_step(wrap):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(16, 16) for _ in range(8)]
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.ReLU())))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def train(x, y):
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss

    return wrap(train)


def seconds_of(step, batch):
    begin = time.perf_counter()
    step(*batch)
    return time.perf_counter() - begin


def resident_kib():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=10_000)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    batch = (torch.randn(8, 16), torch.randn(8, 16))
    ways = {
        "plain": make_step(lambda train: train),
        "step": make_step(lambda train: remat.step(train, budget="1GiB")),
        "kernels": make_step(lambda train: remat.step(train, budget="1GiB", follow=1)),
    }
    for step in ways.values():
        for _ in range(20):
            step(*batch)
    rounds = [{name: seconds_of(step, batch) for name, step in ways.items()} for _ in range(1000)]
    micros = {name: 1e6 * statistics.median(each[name] for each in rounds) for name in ways}
    ops = ways["step"].graph().op_count
    print(f"{ops} ops, 1000 rounds: plain {micros['plain']:.0f} us, step {micros['step']:.0f} us, "
          f"kernels {micros['kernels']:.0f} us")
    side = micros["step"] - micros["kernels"]
    print(f"python side {side:.0f} us: {side / micros['plain']:.2f} of the plain step")

    step = ways["step"]
    tenth = max(1, steps // 10)
    taken = []
    memory = []
    for i in range(steps):
        taken.append(seconds_of(step, batch))
        if i % tenth == 0:
            memory.append(resident_kib())
    early, late = statistics.median(taken[:tenth]), statistics.median(taken[-tenth:])
    print(f"{steps} steps: the last tenth takes {late / early:.3f} of the first; resident {memory[0]} -> "
          f"{memory[-1]} KiB; {step.report().plain_steps} plain steps")


if __name__ == "__main__":
    main()
