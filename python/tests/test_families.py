# SPDX-License-Identifier: Apache-2.0
"""A handful of model families that differ most, at half of their plain memory. All of them: all_families.py."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))

QUICK = ["albert", "gpt2", "t5", "vit", "resnet", "mixtral", "mamba2"]


@pytest.mark.parametrize("name", QUICK)
def test_trains_the_same_bits_at_half_the_memory(name):
    # A process of its own: generators, allocator and numbers of threads are those of a fresh program.
    command = [sys.executable, os.path.join(HERE, "run_family.py"), name, "--budget", "50%"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    assert lines, f"ended with code {done.returncode}: {done.stderr[-2000:]}"
    result = json.loads(lines[-1])
    assert result["failures"] == []
    assert done.returncode == 0
