# SPDX-License-Identifier: Apache-2.0
import gc
import os
import pathlib
import subprocess
import sys

import pytest
import torch


@pytest.fixture(autouse=True)
def deterministic():
    """Every test begins with the same generator and leaves no step of its own behind."""
    torch.manual_seed(0)
    yield
    gc.collect()


@pytest.fixture
def python():
    """Runs a program in an interpreter of its own. It must end well and say nothing on stderr."""

    def run(program, *arguments, seconds=100):
        environment = dict(os.environ)
        here = str(pathlib.Path(__file__).parent)
        environment["PYTHONPATH"] = os.pathsep.join([here, *filter(None, [environment.get("PYTHONPATH")])])
        done = subprocess.run(
            [sys.executable, "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=seconds,
            env=environment,
        )
        assert (done.returncode, done.stderr) == (0, ""), done
        return done.stdout

    return run
