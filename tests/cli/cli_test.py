# SPDX-License-Identifier: Apache-2.0
"""What holds for every command of the tool: help, usage, budgets, files in and out, interrupts.

    cli_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import json
import os
import pathlib
import resource
import shlex
import signal
import stat
import subprocess
import time
import unittest

import cli_fixture
from cli_fixture import (DONE, ERROR, INFEASIBLE, INTERRUPTED, MIB, STRATEGIES, USAGE, CliTest,
                         chain)


class HelpTest(CliTest):
    def test_help_names_every_option(self):
        expected = {
            "": "plan explain verify --help --version",
            "plan": "GRAPH --budget --strategy --every-k --time-limit --orders --seed --keep-order "
                    "--placed --schedule --html --details --json 1.5GiB 50%",
            "explain": "GRAPH --budget --strategy --value --json",
            "verify": "GRAPH SCHEDULE --budget --json",
        }
        for command, words in expected.items():
            for flag in ["--help", "-h"]:
                text = self.done(f"{command} {flag}")
                for word in words.split() + (STRATEGIES if "--strategy" in words else []):
                    self.assertIn(word, text)

    def test_help_is_for_people(self):
        for command in ["", "plan", "explain", "verify"]:
            text = self.done(f"{command} --help")
            for line in text.splitlines():
                self.assertLessEqual(len(line), 100, line)
            self.assertNotRegex(text, r"INT|NONNEGATIVE|FLOAT")

    def test_help_wins(self):
        self.assertIn("Usage", self.done("plan --budget 50% --help"))

    def test_version(self):
        self.assertRegex(self.done("--version"), r"\Aremat \d+\.\d+\.\d+\n\Z")


class UsageTest(CliTest):
    def check(self, program, command):
        with self.subTest(command=command):
            error = self.fails(USAGE, command)
            self.assertTrue(error.startswith(program + ": "), error)
            self.assertTrue(error.endswith(f"; see {program} --help"), error)

    def test_without_a_command(self):
        for command in ["", "frobnicate", "--frobnicate"]:
            self.check("remat", command)

    def test_plan(self):
        for rest in ["", "net", "--budget 1", "net --budget", "net --budget=",
                     "net --budget 50% --frobnicate", "net extra --budget 50%",
                     "net --budget 50% 'a\nb'", "net --budget 50% --every-k x",
                     "net --budget 50% --strategy best", "net --budget 50% --strategy ''",
                     "net --budget 50% --strategy keep_all,best",
                     "net --budget 50% --json - --schedule -",
                     "net --budget 50%,60% --schedule out",
                     "net --budget 50% --strategy all --schedule out"]:
            self.check("remat plan", "plan " + rest)

    def test_explain_and_verify(self):
        for rest in ["", "net", "net --budget 50%,60%", "net --budget 50% --budget 60%",
                     "net --budget 50% --strategy all"]:
            self.check("remat explain", "explain " + rest)
        for rest in ["", "net --budget 50%", "net net", "- - --budget 50%"]:
            self.check("remat verify", "verify " + rest)

    # CLI11 said "A subcommand is required" to that.
    def test_unknown_command_is_named(self):
        self.assertIn("'frobnicate'", self.fails(USAGE, "frobnicate"))

    def test_unknown_strategy_is_answered_with_the_known_ones(self):
        error = self.fails(USAGE, "plan net --budget 50% --strategy best")
        for name in ["'best'", *STRATEGIES]:
            self.assertIn(name, error)

    # The list of budgets and that of strategies swallowed whatever came after them.
    def test_options_may_come_before_the_graph(self):
        self.done("plan --strategy keep_all net --budget 100%")
        self.done("plan --budget 100% net --strategy keep_all")


class BudgetTest(CliTest):
    def test_every_form(self):
        for text, expected in [("1.5GiB", 3 << 29), ("800MB", 800_000_000), ("12345678", 12345678),
                               ("12345678B", 12345678), ("20480KiB", 20 * MIB), ("1TB", 10**12),
                               ("'64 MiB'", 64 * MIB), ("0.5TiB", 1 << 39), ("100%", 10 * MIB),
                               ("150.5%", 10 * MIB * 301 // 200)]:
            with self.subTest(text=text):
                plan = self.done_json(f"plan net --strategy keep_all --budget {text}")
                self.assertEqual(plan["budget_bytes"], expected)

    def test_a_share_is_of_the_keep_all_peak(self):
        self.write("half", "remat-graph 1\nexternal w 1001 param\n")
        error = self.fails(INFEASIBLE, "plan half --budget 50%")
        self.assertIn("budget 500 B is below the floor of 1001 B", error)

    def test_what_is_no_budget_is_a_usage_error(self):
        for text in ["-5", "50%%", "abc", "1e400", "1e3", "", " ", "%", "GiB", "nan", "inf", "0x10",
                     "+5", "1.5.5GiB", "5 %%", "10 gallons", "99999999999999999999",
                     "9223372036854775808", "99999999TiB", "1\n2", "5GiBx"]:
            for command in ["plan net", "explain net", "verify net net"]:
                with self.subTest(text=text, command=command):
                    error = self.fails(USAGE, command + " --budget", text)
                    self.assertIn("is not a budget; expected bytes with a unit (1.5GiB", error)

    def test_a_bad_budget_is_told_before_the_graph_is_read(self):
        self.assertIn("'abc'", self.fails(USAGE, "plan missing --budget abc"))

    def test_zero_is_a_budget_that_nothing_fits(self):
        self.assertIn("budget 0 B is below the floor of 4 MiB",
                      self.fails(INFEASIBLE, "plan net --budget 0"))


class GraphFileTest(CliTest):
    def error_for(self, path, **options):
        error = self.fails(ERROR, "plan --budget 50%", path, **options)
        self.assertTrue(error.startswith("remat plan: "), error)
        return error.removeprefix("remat plan: ")

    def test_files_that_cannot_be_read_are_named(self):
        for path, error in [("missing", "No such file or directory"), ("/", "Is a directory"),
                            ("net/x", "Not a directory")]:
            # A short name might have meant a model: the error goes on about those.
            self.assertEqual(self.error_for(path).split(";")[0], f"cannot read {path}: {error}")
        directory = os.open("/", os.O_RDONLY)
        self.addCleanup(os.close, directory)
        self.assertEqual(self.error_for("-", stdin=directory),
                         "cannot read standard input: Is a directory")

    # "basic_filebuf::underflow error reading the file" came through, and no name.
    def test_a_file_that_can_be_opened_but_not_read(self):
        self.assertIn("cannot read /proc/self/mem: ", self.error_for("/proc/self/mem"))

    @unittest.skipIf(os.geteuid() == 0, "root may read everything")
    def test_unreadable_file(self):
        (self.dir / "net").chmod(0)
        self.assertEqual(self.error_for("net"), "cannot read net: Permission denied")

    def test_a_name_with_a_line_end_still_gives_one_line(self):
        self.error_for("a\nb")

    def test_contents_that_are_no_graph_are_named_with_their_line(self):
        for content, line in [("", 1), ("\n\n", 3), (bytes(range(256)) * 16, 1),
                              ("remat-graph 2\n", 1), ("remat-graph 1\nop a forward size=1\n", 2),
                              ("remat-graph 1\n\noutput y\n", 3),
                              ("remat-graph 1\n\x1b[31mred\n", 2),
                              ("remat-graph 1\n" + "x" * 10_000_000, 2)]:
            with self.subTest(content=content[:40]):
                self.write("bad", content)
                error = self.error_for("bad")
                self.assertRegex(error, rf"\Abad: line {line}: .*expected")
                self.assertLess(len(error), 1000)
                for command in ["explain bad --budget 50%", "verify bad bad --budget 50%"]:
                    self.assertIn(f": bad: line {line}: ", self.fails(ERROR, command))

    def test_standard_input(self):
        plan = self.done_json("plan - --budget 100% --strategy keep_all", input=chain(8).encode())
        self.assertEqual((plan["graph"], plan["peak_bytes"]), ("standard input", 10 * MIB))
        self.assertIn("standard input: line 1: ", self.error_for("-", input=b"junk\n"))

    # The search for the floor never ended on a graph without ops.
    def test_graphs_without_ops(self):
        self.write("empty", "remat-graph 1\n")
        plan = self.done_json("plan empty --budget 0")
        self.assertEqual((plan["feasible"], plan["peak_bytes"]), (True, 0))
        self.write("externals", "remat-graph 1\nexternal w 100 param\n")
        self.done("plan externals --budget 100 --schedule out")
        self.done("verify externals out --budget 100")
        self.assertIn("over_budget", self.fails(ERROR, "verify externals out --budget 99"))
        self.assertIn("budget 99 B is below the floor of 100 B",
                      self.fails(INFEASIBLE, "plan externals --budget 99"))


class OutputFileTest(CliTest):
    PLAN = "plan net --budget 100% --strategy keep_all "

    def test_places_that_cannot_be_written(self):
        for option in ["--json", "--schedule"]:
            for path, reason in [("missing/out", "No such file or directory"),
                                 (".", "Is a directory"), ("net/out", "Not a directory"),
                                 ("/dev/full", "No space left on device")]:
                self.assertEqual(self.fails(ERROR, self.PLAN + option, path),
                                 f"remat plan: cannot write {path}: {reason}")
        self.assertEqual(self.files(), ["net"])

    def test_a_failed_schedule_is_not_followed_by_json(self):
        self.fails(ERROR, self.PLAN + "--schedule missing/out --json -")

    # A disk that fills up half-way. Python ignores SIGXFSZ, and so does a child that inherits it.
    def test_an_incomplete_write_leaves_the_old_file_and_nothing_else(self):
        self.write("out", "precious")
        for option in ["--json", "--schedule"]:
            error = self.fails(
                ERROR, self.PLAN + option + " out", restore_signals=False,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64)))
            self.assertRegex(error, "cannot write .*out: File too large")
            self.assertEqual(self.read("out"), "precious")
            self.assertEqual(self.files(), ["net", "out"])

    # Exit code 0 with the report lost.
    def test_full_standard_output_is_an_error(self):
        self.done(self.PLAN + "--schedule schedule")
        for command in ["plan net", "plan net --json -", "plan net --strategy keep_all,every_k",
                        "explain net", "verify net schedule"]:
            with self.subTest(command=command), open("/dev/full", "wb") as full:
                error = self.fails(ERROR, command + " --budget 100%", stdout=full)
                self.assertIn("cannot write standard output: No space left", error)

    @unittest.skipIf(os.geteuid() == 0, "root may write everything")
    def test_write_protection_is_respected(self):
        self.write("out", "precious")
        (self.dir / "out").chmod(0o444)
        self.assertIn("cannot write out: Permission denied",
                      self.fails(ERROR, self.PLAN + "--json out"))
        self.assertEqual(self.read("out"), "precious")

    def test_permissions_and_links_stay(self):
        self.write("out", "old")
        (self.dir / "out").chmod(0o640)
        (self.dir / "link").symlink_to("out")
        self.done(self.PLAN + "--json link")
        self.assertTrue((self.dir / "link").is_symlink())
        self.assertTrue(json.loads(self.read("out"))["feasible"])
        self.assertEqual(stat.S_IMODE((self.dir / "out").stat().st_mode), 0o640)

    def test_new_files_follow_the_umask(self):
        self.done(self.PLAN + "--json out", umask=0o027)
        self.assertEqual(stat.S_IMODE((self.dir / "out").stat().st_mode), 0o640)

    def test_names_as_long_as_the_file_system_allows(self):
        self.done(self.PLAN + "--json " + "n" * 255)

    # They wrote to the same out.part.
    def test_tools_that_write_the_same_file_at_once_do_not_collide(self):
        processes = [self.start(self.PLAN + "--json out") for _ in range(8)]
        self.assertEqual([process.wait() for process in processes], [DONE] * 8)
        self.assertTrue(json.loads(self.read("out"))["feasible"])
        self.assertEqual(self.files(), ["net", "out"])

    def test_pipes_are_written_to(self):
        result = self.remat(self.PLAN + "--json /dev/stderr")
        self.assertEqual(json.loads(result.stderr)["graph"], "net")

    def test_schedule_on_standard_output_comes_alone(self):
        lines = self.done(self.PLAN + "--schedule -").splitlines()
        self.assertEqual(lines[:2], ["remat-schedule 1", "run f1 reads=x creates=a1"])
        self.assertEqual({line.split()[0] for line in lines[1:]}, {"run", "free"})


class InterruptTest(CliTest):
    def interrupt(self, process):
        """As soon as the tool catches the signal, however slowly it starts."""
        deadline = time.monotonic() + 60
        caught = 0
        while not caught & (1 << (signal.SIGINT - 1)) and time.monotonic() < deadline:
            status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
            caught = int(status.split("SigCgt:")[1].split()[0], 16)
            time.sleep(0.01)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, error = process.communicate(timeout=60)
        self.assertEqual((process.returncode, output), (INTERRUPTED, b""), error)

    def test_while_planning(self):
        graph = shlex.quote(str(cli_fixture.GRAPHS / "gpt2_small_adamw.graph"))
        budgets = ",".join(f"{share / 10}%" for share in range(300, 900))  # half an hour of it
        self.interrupt(self.start(f"plan {graph} --budget {budgets} --json out",
                                  stdin=subprocess.DEVNULL))
        self.assertEqual(self.files(), ["net"])

    def test_while_waiting_for_input(self):
        self.interrupt(self.start("plan - --budget 50%", stdin=subprocess.PIPE))


if __name__ == "__main__":
    cli_fixture.main()
