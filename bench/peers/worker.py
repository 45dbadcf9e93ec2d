# SPDX-License-Identifier: Apache-2.0
"""One model trained by one method. Commands come on stdin, one JSON line answers each.

Usage: worker.py MODEL METHOD [--small]      (started by peers.py; METHOD as in methods.py)

    setup    two steps from the initial state; digests of what they leave; the peak of a third
    step     one step: wall and CPU seconds, resident bytes
    quit

An error is an answer too: {"error": "..."}. The worker then waits for quit.
"""

import gc
import hashlib
import json
import os
import sys
import time

import torch

import methods
import models

LEARNING_RATE = 0.01


def status_bytes(field):
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith(field + ":"):
                return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")


def reset_resident_peak():
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def counted_peak_bytes(step):
    """The most bytes that torch's CPU allocator had handed out during a step and not got back, from the
    profiler's record of every allocation. Blocks that were there before the step are not in it."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        step()
    events = [e for e in recorded.profiler.kineto_results.events() if e.name() == "[memory]"]
    live = peak = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        live += event.nbytes()
        peak = max(peak, live)
    return peak


def digest(tensors):
    sha = hashlib.sha256()
    for tensor in tensors:
        if tensor is None:
            sha.update(b"none")
            continue
        sha.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    return sha.hexdigest()[:16]


class Worker:
    def __init__(self, model, method, small):
        self._method = method
        # What any training process has: thread pools, BLAS, the modules that torch imports late.
        self._task = models.make(model, small=True)
        self._parameters = list(self._task.model.parameters())
        self._optimizer = torch.optim.SGD(self._parameters, lr=LEARNING_RATE)
        self._train_step(self._task.loss, *self._task.batch)
        gc.collect()
        self._resident_before = status_bytes("VmRSS")
        self._task = task = models.make(model, small)
        # In this order in every process; a method may put modules around the blocks.
        self._parameters = list(task.model.parameters())
        self._buffers = list(task.model.buffers())
        self._optimizer = torch.optim.SGD(self._parameters, lr=LEARNING_RATE)
        self._step = methods.apply_method(method, task, self._train_step)

    def _train_step(self, loss_function, *batch):
        self._optimizer.zero_grad()
        loss = loss_function(*batch)
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def _run(self):
        return self._step(*self._task.batch)

    def setup(self):
        answer = {}
        if self._method == "checkpoint_segments":
            answer["segment"] = self._choose_segment()
        seconds = []
        losses = []
        for _ in range(2):
            start = time.perf_counter()
            losses.append(self._run().clone())
            seconds.append(time.perf_counter() - start)
        answer["first_seconds"] = sum(seconds)
        answer["digests"] = {
            "loss": digest(losses),
            "parameters": digest(self._parameters),
            "gradients": digest([p.grad for p in self._parameters]),
            "buffers": digest(self._buffers),
            "generator": digest([torch.get_rng_state()]),
        }
        answer["peak_bytes"], answer["static_bytes"] = self._peak_bytes()
        if self._method.startswith("remat"):
            report = self._step.report()
            # The arena is not torch's allocation: it is added as reserved, in use or not.
            answer["peak_bytes"] += report.arena_bytes
            names = ("peak_bytes", "keep_all_peak_bytes", "floor_bytes", "plain_steps", "planned_steps", "variants")
            answer["remat"] = {name: getattr(report, name) for name in names}
        return answer

    def _peak_bytes(self):
        """(peak, of it parameters, buffers and batch). Gradients are allocated in the step."""
        static = sum(t.untyped_storage().nbytes() for t in self._parameters + self._buffers)
        static += sum(t.untyped_storage().nbytes() for t in self._task.batch)
        return static + counted_peak_bytes(self._run), static

    def _choose_segment(self):
        """The number of blocks per segment with the lowest peak. Leaves weights and generator as they were."""
        saved = [t.detach().clone() for t in self._parameters + self._buffers]
        generator = torch.get_rng_state()
        longest = max(len(container) for container in self._task.containers)
        peaks = {}
        for size in [k for k in methods.SEGMENT_SIZES if k <= longest]:
            methods.checkpoint_segments(self._task.containers, size)
            peaks[size] = counted_peak_bytes(self._run)
            methods.undo_segments(self._task.containers)
        if not peaks:
            raise RuntimeError("no two blocks follow each other")
        best = min(peaks, key=peaks.get)
        methods.checkpoint_segments(self._task.containers, best)
        with torch.no_grad():
            for tensor, value in zip(self._parameters + self._buffers, saved, strict=True):
                tensor.copy_(value)
        self._optimizer.zero_grad()
        torch.set_rng_state(generator)
        return best

    def step(self):
        gc.collect()
        reset_resident_peak()
        cpu = time.process_time()
        start = time.perf_counter()
        self._run()
        wall = time.perf_counter() - start
        cpu = time.process_time() - cpu
        return {
            "wall": wall,
            "cpu": cpu,
            "resident_bytes": status_bytes("VmHWM") - self._resident_before,
        }


def failure(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    answer = {"error": f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]}
    if getattr(error, "floor_bytes", 0):
        answer["floor_bytes"] = error.floor_bytes
    return answer


def main():
    # Answers have the real stdout to themselves; whatever libraries print goes to stderr.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    model, method = sys.argv[1:3]
    worker = None
    for line in sys.stdin:
        command = line.strip()
        if command == "quit":
            break
        try:
            if worker is None:
                worker = Worker(model, method, "--small" in sys.argv)
            answer = {"setup": worker.setup, "step": worker.step}[command]()
        except Exception as error:
            answer = failure(error)
        answers.write(json.dumps(answer) + "\n")
    answers.flush()
    os._exit(0)  # compile's helpers and a large heap need no orderly end


if __name__ == "__main__":
    main()
