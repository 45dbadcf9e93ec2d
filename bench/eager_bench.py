# SPDX-License-Identifier: Apache-2.0
"""Fixed cost of a checkpointed region: remat beside torch.utils.checkpoint (non-reentrant).

Usage: python bench/eager_bench.py build/bin/eager_bench [side depth]

Both sides run sin(x * w), `depth` (1) times over, on side x side (4 x 4) tensors, forward and
backward, on one thread. The two programs take turns; each figure is the median over the turns, in
CPU time of the thread, so that other programs on the machine do not count. The fixed cost of a
region is the time with a checkpoint minus the time without.
"""

import json
import statistics
import subprocess
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

STEPS = 100
ROUNDS = 15
TURNS = 5


def python_turn(side, depth):
    """Microseconds per step: (plain, checkpointed)."""
    x = torch.randn(side, side, requires_grad=True)
    w = torch.randn(side, side, requires_grad=True)

    def region(a):
        for _ in range(depth):
            a = torch.sin(a * w)
        return a

    def per_step(forward):
        start = time.thread_time()
        for _ in range(STEPS):
            forward(x).sum().backward()
        return (time.thread_time() - start) / STEPS * 1e6

    plain, ours = [], []
    for _ in range(ROUNDS):
        plain.append(per_step(region))
        ours.append(per_step(lambda a: checkpoint(region, a, use_reentrant=False)))
    return statistics.median(plain), statistics.median(ours)


def main():
    if len(sys.argv) not in (2, 4):
        sys.exit(__doc__)
    side, depth = (int(a) for a in sys.argv[2:] or ("4", "1"))
    torch.set_num_threads(1)
    rows = {"remat::checkpoint": [], "remat, no early stop": [], "torch.utils.checkpoint": []}
    for _ in range(TURNS):
        out = subprocess.run(
            [sys.argv[1], "overhead", str(side), str(depth)], check=True, capture_output=True, text=True
        ).stdout
        cpp = json.loads(out)
        rows["remat::checkpoint"].append((cpp["plain_us"], cpp["checkpoint_us"]))
        rows["remat, no early stop"].append((cpp["plain_us"], cpp["no_early_stop_us"]))
        rows["torch.utils.checkpoint"].append(python_turn(side, depth))
    print("| region | plain µs | checkpointed µs | fixed cost µs |")
    print("|---|---:|---:|---:|")
    cost = {}
    for name, turns in rows.items():
        plain = statistics.median(t[0] for t in turns)
        checkpointed = statistics.median(t[1] for t in turns)
        cost[name] = statistics.median(t[1] - t[0] for t in turns)
        print(f"| {name} | {plain:.1f} | {checkpointed:.1f} | {cost[name]:.1f} |")
    ratio = cost["remat::checkpoint"] / cost["torch.utils.checkpoint"]
    print(f"\nfixed cost, ours / Python's: {ratio:.3f} (bar: 0.100)")
    sys.exit(0 if ratio <= 0.1 else 1)


if __name__ == "__main__":
    main()
