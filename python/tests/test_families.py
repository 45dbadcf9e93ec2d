# SPDX-License-Identifier: Apache-2.0
"""A handful of model families that differ most, at half of their plain memory. All of them: all_families.py."""

import json
import os
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))

QUICK = ["albert", "gpt2", "t5", "vit", "resnet", "mixtral", "mamba2"]


@pytest.fixture(scope="module")
def results():
    command = [sys.executable, os.path.join(HERE, "run_family.py"), *QUICK, "--budget", "50%"]
    done = subprocess.run(command, capture_output=True, text=True)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {line["family"]: line for line in lines}, done


@pytest.mark.parametrize("name", QUICK)
def test_trains_the_same_bits_at_half_the_memory(name, results):
    found, done = results
    assert name in found, f"ended with code {done.returncode}: {done.stderr[-2000:]}"
    assert found[name]["failures"] == []


def test_the_exit_code_says_that_all_is_well(results):
    assert results[1].returncode == 0, results[1].stderr[-2000:]
