# SPDX-License-Identifier: Apache-2.0
"""A model whose plain step does not fit into a memory cgroup: what works says how, what does not says why. Nothing is
ended by the system.

    memory_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import json
import os
import pathlib
import subprocess
import unittest

import cli_fixture
from cli_fixture import ERROR, MIB, CliTest

LIMIT = 640 * MIB  # of which the tool takes some 130 before it has a model
LARGE = "resnet18 --batch 400 --image 160 --width 8 --threads 1"  # a plain step: 690 MiB


class MemoryGroup:
    """A memory cgroup of version 1 or 2, where one can be made: else `why_not`."""

    def __init__(self, limit_bytes):
        first = pathlib.Path("/sys/fs/cgroup/memory")
        second = pathlib.Path("/sys/fs/cgroup")
        self.why_not = ""
        parent = first if (first / "memory.limit_in_bytes").exists() else second
        self.folder = parent / f"remat_cli_{os.getpid()}"
        try:
            if parent == second:
                (second / "cgroup.subtree_control").write_text("+memory")
            self.folder.mkdir()
            limit = "memory.limit_in_bytes" if parent == first else "memory.max"
            (self.folder / limit).write_text(str(limit_bytes))
        except OSError as error:
            self.why_not = str(error)

    def enter(self):
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def remove(self):
        if self.folder.exists():
            self.folder.rmdir()


class TooLargeTest(CliTest):
    def setUp(self):
        super().setUp()
        group = MemoryGroup(LIMIT)
        self.addCleanup(group.remove)
        if group.why_not:
            if "CI" in os.environ:
                self.fail(f"in CI it must run: {group.why_not}")
            self.skipTest(f"a memory cgroup cannot be made here: {group.why_not}")
        self.inside = {"preexec_fn": group.enter, "env": {**os.environ, "TMPDIR": "/var/tmp"}}

    def test_run_says_what_else_can_be_done(self):
        error = self.fails(ERROR, f"run {LARGE} --budget 50%", **self.inside)
        self.assertRegex(error, r"\Aremat run: the plain step of resnet18, batch 400, .* needs more than the .*MiB that "
                                r"are left here; .*remat fit.*TrainingStep")

    def test_profile_and_plan_record_it_with_its_values_in_a_file(self):
        for command in ["profile --optimizer adamw", "plan --budget 75% --save saved"]:
            with self.subTest(command=command):
                verb, *rest = command.split(" ", 1)
                done = self.remat(f"{verb} {LARGE} {' '.join(rest)} --json report", **self.inside)
                error = done.stderr.decode()
                self.assertEqual(done.returncode, 0, error)
                self.assertRegex(error, r"\Athe plain step of resnet18, .* does not fit into the .*MiB that are left here: "
                                        r"it is recorded with its values in a file, and timed under a plan\n\Z")
                report = json.loads(self.read("report"))
                self.assertGreater(report["keep_all_peak_bytes"], LIMIT - 130 * MIB)
        self.assertLessEqual(report["peak_bytes"], 0.75 * report["keep_all_peak_bytes"])
        self.done("verify saved")

    def test_what_fits_is_as_ever(self):
        small = LARGE.replace("--batch 400", "--batch 16")
        self.done(f"profile {small}", **self.inside)


if __name__ == "__main__":
    cli_fixture.main()
