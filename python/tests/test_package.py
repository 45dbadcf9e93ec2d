# SPDX-License-Identifier: Apache-2.0
"""What is in the package besides its behaviour: types, versions, libraries, the tool."""

import ast
import os
import pathlib
import re
import site
import subprocess
import sys

import torch

import remat
from remat import _remat, _version

PACKAGE = pathlib.Path(remat.__file__).parent
TYPING = pathlib.Path(__file__).parent / "typing"


def mypy(module, *arguments):
    """mypy looks into site-packages, not along PYTHONPATH: what is imported from elsewhere it must be told."""
    environment = dict(os.environ)
    if str(PACKAGE.parent) not in site.getsitepackages():
        environment["MYPYPATH"] = str(PACKAGE.parent)
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], capture_output=True, text=True, env=environment, timeout=600
    )


def test_every_public_name_is_in_the_stub():
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    assigned = {each.targets[0].id: each.value for each in stub.body if isinstance(each, ast.Assign)}
    assert ast.literal_eval(assigned["__all__"]) == remat.__all__


def test_the_stubs_agree_with_what_is_there():
    found = mypy(
        "mypy.stubtest", "remat", "--concise", "--mypy-config-file", TYPING / "mypy.ini",
        "--allowlist", TYPING / "allowed.txt",
    )  # fmt: skip
    assert (found.returncode, found.stderr) == (0, ""), found.stdout + found.stderr


def test_a_type_checker_sees_arguments_and_results(tmp_path):
    found = mypy("mypy", "--config-file", TYPING / "mypy.ini", "--cache-dir", tmp_path, TYPING / "usage.py")
    assert found.returncode == 0, found.stdout + found.stderr


def test_every_report_value_is_in_the_stub():
    weight = torch.nn.Parameter(torch.ones(8))
    step = remat.TrainingStep(lambda x: (weight * x).sum(), budget="1GiB", plan_seconds=0.1, measure_seconds=0.1)
    step(torch.ones(8))
    stub = ast.parse((PACKAGE / "__init__.pyi").read_text())
    (report,) = [each for each in stub.body if isinstance(each, ast.ClassDef) and each.name == "Report"]
    (counts,) = [each for each in stub.body if isinstance(each, ast.ClassDef) and each.name == "_StepCounts"]

    def names(stubbed):
        return {each.target.id for each in stubbed.body if isinstance(each, ast.AnnAssign)}

    assert names(report) == set(step.report().as_dict())
    assert names(counts) == set(step.report().counts)


def test_the_versions_of_torch_agree():
    assert _version.TORCH_VERSION == _remat.torch_version == torch.__version__.split("+")[0]


def test_another_torch_is_refused_with_the_command_that_helps(python):
    said = python(
        """
        import torch
        torch.__version__ = "2.12.1"
        try:
            import remat
        except ImportError as error:
            print(error)
        """.replace("        ", "")
    )
    assert re.search(r"torch 2\.12\.1 is installed: pip install torch==\d+\.\d+\.\d+", said), said


def test_a_missing_torch_is_named(python):
    said = python(
        """
        import sys
        sys.modules["torch"] = None
        try:
            import remat
        except ImportError as error:
            print(error)
        """.replace("        ", "")
    )
    assert re.search(r"which is not installed: pip install torch==\d+\.\d+\.\d+", said), said


def test_highs_is_linked():
    """Without it `optimal` and the proven bounds have no solver."""
    assert any("/libhighs.so" in line for line in open("/proc/self/maps"))


def test_the_tool_runs(tmp_path):
    (tmp_path / "one.graph").write_text("remat-graph 1\nop a forward kind=make time_ns=1 creates=v:64\n")

    def tool(*arguments):
        return subprocess.run([PACKAGE / "bin" / "remat", *arguments], cwd=tmp_path, capture_output=True, text=True)

    done = tool("plan", "one.graph", "--budget", "64B")
    assert (done.returncode, done.stderr) == (0, ""), done
    assert tool("plan", "one.graph", "--budget", "63B").returncode == 3
    assert tool("plan", "absent.graph", "--budget", "64B").returncode == 1
