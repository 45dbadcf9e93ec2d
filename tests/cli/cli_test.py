# SPDX-License-Identifier: Apache-2.0
"""What a person and a script see of the tool: exit codes, output, errors, files.

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
import sys
import tempfile
import time
import unittest

TOOL = ""
GRAPHS = pathlib.Path()

DONE, ERROR, USAGE, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130
MIB = 1 << 20
STRATEGIES = ["keep_all", "recompute_all", "every_k", "selective", "mutwo", "chain_dp", "search",
              "optimal", "auto"]


def chain(layers):
    """x -f1-> a1 ... -fn-> an -loss-> gn -bn-> ... -b1-> g0; b_i reads g_i and a_(i-1); 1 MiB each.

    Keeping all needs layers + 2 MiB (x, the activations, two gradients). No plan can need less
    than 4 MiB: b_i with i > 1 holds x, g_i, a_(i-1) and g_(i-1).
    """
    a = ["x"] + [f"a{i}" for i in range(1, layers + 1)]
    lines = ["remat-graph 1", f"external x {MIB} input"]
    for i in range(1, layers + 1):
        lines.append(f"op f{i} forward kind=f time_ns=1000 reads={a[i - 1]} creates={a[i]}:{MIB}")
    lines.append(f"op loss backward kind=l time_ns=1000 reads={a[-1]} creates=g{layers}:{MIB}")
    for i in range(layers, 0, -1):
        lines.append(f"op b{i} backward kind=b time_ns=1000 reads=g{i},{a[i - 1]}"
                     f" creates=g{i - 1}:{MIB}")
    return "\n".join(lines + ["output g0"]) + "\n"


class CliTest(unittest.TestCase):
    """Runs in a directory with `net`, a chain of eight layers: keep-all 10 MiB, floor 4 MiB.

    A command is one string, as a shell takes it; further arguments are passed as they are.
    """

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.dir = pathlib.Path(scratch.name)
        self.write("net", chain(8))

    def write(self, name, content):
        (self.dir / name).write_bytes(content if isinstance(content, bytes) else content.encode())

    def read(self, name):
        return (self.dir / name).read_text()

    def files(self):
        return sorted(path.name for path in self.dir.iterdir())

    def remat(self, command, *more, **options):
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        options.setdefault("stdout", subprocess.PIPE)
        return subprocess.run([TOOL, *shlex.split(command), *more], stderr=subprocess.PIPE,
                              timeout=300, cwd=self.dir, **options)

    def start(self, command, **options):
        process = subprocess.Popen([TOOL, *shlex.split(command)], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, cwd=self.dir, **options)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def done(self, command, *more, **options):
        """Demands success without a word on standard error; returns the output."""
        result = self.remat(command, *more, **options)
        self.assertEqual((result.returncode, result.stderr), (DONE, b""), command)
        return result.stdout.decode()

    def done_json(self, command, **options):
        return json.loads(self.done(command + " --json -", **options))

    def fails(self, code, command, *more, **options):
        """Demands the exit code, one line of error and no output; returns the line."""
        result = self.remat(command, *more, **options)
        error = result.stderr.decode()
        self.assertEqual(result.returncode, code, (command, error))
        self.assertRegex(error, r"\A[^\x00-\x1f]+\n\Z", command)
        self.assertFalse(result.stdout, command)
        return error.rstrip("\n")


class HelpTest(CliTest):
    def test_help_names_every_option(self):
        expected = {
            "": "plan explain verify --help --version",
            "plan": "GRAPH --budget --strategy --every-k --time-limit --moves --seed --keep-order "
                    "--placed --schedule --json 1.5GiB 50%",
            "explain": "GRAPH --budget --strategy --value --json",
            "verify": "GRAPH SCHEDULE --budget --json",
        }
        for command, words in expected.items():
            for flag in ["--help", "-h"]:
                text = self.done(f"{command} {flag}")
                for word in words.split() + (STRATEGIES if "--strategy" in words else []):
                    self.assertIn(word, text)

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
        for rest in ["", "net", "net net", "- - --budget 50%"]:
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


class PlanTest(CliTest):
    KEYS = {
        "graph": str, "strategy": str, "budget_bytes": int, "feasible": bool,
        "keep_all_peak_bytes": int, "peak_bytes": int, "floor_bytes": int, "keep_all_time_ns": int,
        "time_ns": int, "lower_bound_time_ns": (int, type(None)), "plan_seconds": float,
        "arena_bytes": int, "max_live_bytes": int,
    }

    def check_keys(self, plan):
        for key, kind in self.KEYS.items():
            self.assertIn(key, plan)
            self.assertIsInstance(plan[key], kind, key)
        self.assertEqual(plan["feasible"], plan["peak_bytes"] <= plan["budget_bytes"])
        self.assertLessEqual(plan["floor_bytes"], plan["peak_bytes"])
        self.assertLessEqual(plan["max_live_bytes"], plan["arena_bytes"])
        self.assertGreaterEqual(plan["plan_seconds"], 0)

    def test_json_keys(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                plan = self.done_json(f"plan net --budget 100% --strategy {strategy}")
                self.check_keys(plan)
                self.assertEqual(plan["graph"], "net")
                self.assertEqual(plan["keep_all_peak_bytes"], 10 * MIB)
                self.assertEqual(plan["keep_all_time_ns"], 17_000)

    def test_text_for_people(self):
        text = self.done("plan net --budget 100% --strategy keep_all")
        for words in ["net (17 ops, 18 storages)", "keep_all", "10 MiB", "100.0 %", "floor",
                      "4 MiB", "set by", "17 us", "+0.00 %", "planned in"]:
            self.assertIn(words, text)

    def test_placed_plans_fit_with_the_arena_that_is_reported(self):
        # Without --placed the arena of this plan is some MiB too large.
        report = self.done_json(f"plan {GRAPHS}/resnet50.graph --budget 50% --placed")
        self.assertTrue(report["feasible"])
        self.assertLessEqual(report["external_bytes"] + report["arena_bytes"], report["budget_bytes"])

    def test_json_in_a_file_leaves_the_text(self):
        text = self.done("plan net --budget 100% --strategy keep_all --json out")
        self.assertIn("planned in", text)
        self.check_keys(json.loads(self.read("out")))

    def test_infeasible_says_what_is_missing_and_still_writes_json(self):
        error = self.fails(INFEASIBLE, "plan net --budget 3MiB --json out --schedule schedule")
        self.assertRegex(error, r"\Aremat plan: budget 3 MiB is below the floor of 4 MiB "
                                r"\(set by \S+ (forward|backward)\); raise --budget\Z")
        plan = json.loads(self.read("out"))
        self.check_keys(plan)
        self.assertEqual((plan["feasible"], plan["floor_bytes"]), (False, 4 * MIB))
        self.assertEqual(self.files(), ["net", "out"])  # no schedule that breaks the budget

    def test_infeasible_json_on_standard_output(self):
        result = self.remat("plan net --budget 3MiB --strategy keep_all --json -")
        self.assertEqual(result.returncode, INFEASIBLE)
        self.assertFalse(json.loads(result.stdout)["feasible"])

    # Rounding made it "budget 4 MiB is below the floor of 4 MiB".
    def test_one_byte_below_the_floor_is_told_to_the_byte(self):
        error = self.fails(INFEASIBLE, f"plan net --budget {4 * MIB - 1}")
        self.assertIn("budget 4194303 B is below the floor of 4194304 B (set by", error)

    # 4001 bytes were "a floor of 3.91 KiB": typed in as it stood, 4003 bytes. But 4007 bytes were
    # 3.91 KiB too, and that was not enough.
    def test_the_floor_as_printed_is_enough(self):
        for size in [4001, 4007, 123456789]:
            self.write("odd", f"remat-graph 1\nexternal w {size} param\n")
            error = self.fails(INFEASIBLE, "plan odd --budget 1000")
            self.done("plan odd --budget", error.split("floor of ")[1].split(" (")[0])

    def test_at_the_floor_it_fits(self):
        self.assertEqual(self.done_json("plan net --budget 4MiB")["peak_bytes"], 4 * MIB)

    def test_a_strategy_that_misses_a_reachable_budget_says_so(self):
        error = self.fails(INFEASIBLE, "plan net --budget 6MiB --strategy keep_all")
        self.assertIn("keep_all reaches 10 MiB, above the budget of 6 MiB; the floor is 4 MiB",
                      error)
        error = self.fails(INFEASIBLE, f"plan net --budget {10 * MIB - 1} --strategy keep_all")
        self.assertIn("keep_all reaches 10485760 B, above the budget of 10485759 B", error)

    def test_several_plans_are_a_table(self):
        text = self.done("plan net --budget 100%,6MiB --strategy keep_all,every_k")
        lines = text.splitlines()
        self.assertIn("net: 17 ops", lines[0])
        self.assertEqual([" ".join(line.split()[:3]) for line in lines[2:]],
                         ["strategy budget fits", "keep_all 10 MiB", "every_k 10 MiB",
                          "keep_all 6 MiB", "every_k 6 MiB"])
        self.assertEqual(len({len(line) for line in lines[2:]}), 1, "columns line up")

    def test_several_plans_are_a_list_in_json(self):
        several = self.done_json("plan net --budget 100% --budget 6MiB --strategy keep_all,every_k")
        self.assertEqual(list(several), ["plans"])
        for plan in several["plans"]:
            self.check_keys(plan)
        self.assertEqual([(plan["strategy"], plan["budget_bytes"]) for plan in several["plans"]],
                         [("keep_all", 10 * MIB), ("every_k", 10 * MIB),
                          ("keep_all", 6 * MIB), ("every_k", 6 * MIB)])

    def test_all_strategies(self):
        for names in ["all", "all,keep_all"]:
            several = self.done_json(f"plan net --budget 100% --strategy {names}")
            self.assertEqual(len(several["plans"]), len(STRATEGIES))

    def test_the_same_input_gives_the_same_bytes(self):
        resnet = shlex.quote(str(GRAPHS / "resnet18.graph"))
        for rest in ["net --budget 60% --strategy auto", "net --budget 60% --strategy search",
                     f"{resnet} --budget 90% --strategy mutwo",
                     f"{resnet} --budget 90% --strategy every_k"]:
            with self.subTest(rest=rest):
                for name in ["one", "two"]:
                    self.done(f"plan {rest} --schedule {name}")
                self.assertEqual(self.read("one"), self.read("two"))


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


class VerifyTest(CliTest):
    def setUp(self):
        super().setUp()
        self.done("plan net --budget 9MiB --strategy every_k --schedule good")
        self.lines = self.read("good").splitlines()

    def find(self, start):
        return next(i for i, line in enumerate(self.lines) if line.startswith(start))

    def rejected(self, lines, budget="9MiB"):
        self.write("bad", "\n".join(lines) + "\n")
        error = self.fails(ERROR, f"verify net bad --budget {budget}")
        self.assertTrue(error.startswith("remat verify: "), error)
        return error.removeprefix("remat verify: ")

    def test_accepts_what_plan_wrote(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                plan = self.done_json(
                    f"plan net --budget 100% --strategy {strategy} --schedule out")
                peak = plan["peak_bytes"]
                self.assertIn("accepted: ", self.done(f"verify net out --budget {peak}"))
                self.assertIn("over_budget",
                              self.fails(ERROR, f"verify net out --budget {peak - 1}"))

    def test_json(self):
        self.assertEqual(self.done_json("verify net good --budget 9MiB"),
                         {"accepted": True, "budget_bytes": 9 * MIB, "violation": None})
        result = self.remat("verify net good --budget 1MiB --json -")
        self.assertEqual(result.returncode, ERROR)
        verdict = json.loads(result.stdout)
        self.assertFalse(verdict["accepted"])
        self.assertEqual(verdict["violation"]["kind"], "over_budget")
        self.assertEqual(set(verdict["violation"]), {"kind", "step", "op", "reason"})

    def test_dropped_run(self):
        del self.lines[self.find("run f2 ")]
        self.assertIn("read_missing at step", self.rejected(self.lines))

    def test_dropped_recompute(self):
        del self.lines[self.find("recompute ")]
        self.assertIn("read_missing at step", self.rejected(self.lines))

    def test_dropped_end(self):
        del self.lines[self.find("run b1 "):]
        self.assertRegex(self.rejected(self.lines), "op_missing|output_wrong|missing_free")

    def test_swapped_dependent_lines(self):
        i, j = self.find("run f1 "), self.find("run f2 ")
        self.lines[i], self.lines[j] = self.lines[j], self.lines[i]
        self.assertIn("read_missing at step 0 (f2)", self.rejected(self.lines))

    def test_another_op_of_the_same_shape(self):
        i = self.find("run f2 ")
        self.lines[i] = self.lines[i].replace("run f2 ", "run f3 ")
        self.assertIn("wrong_operand at step", self.rejected(self.lines))

    def test_an_unknown_op_is_named_with_its_line(self):
        i = self.find("run f2 ")
        self.lines[i] = self.lines[i].replace("run f2 ", "run conv ")
        self.assertIn(f"bad: line {i + 1}: unknown op 'conv'", self.rejected(self.lines))

    def test_duplicated_free(self):
        i = self.find("free ")
        self.lines.insert(i, self.lines[i])
        self.assertIn("bad_free at step", self.rejected(self.lines))

    def test_dropped_free(self):
        del self.lines[self.find("free ")]
        self.assertIn("missing_free at step", self.rejected(self.lines, budget="1GiB"))

    def test_repeated_run(self):
        i = self.find("run f1 ")
        self.lines.insert(i, self.lines[i])
        self.assertRegex(self.rejected(self.lines), "run_twice|created_twice")

    def test_schedules_that_are_none(self):
        for lines in [[], ["remat-graph 1"], ["remat-schedule 1", "\x00\xff"]]:
            self.assertRegex(self.rejected(lines), r"\Abad: line [12]: .*expected")
        self.assertIn("cannot read nowhere", self.fails(ERROR, "verify net nowhere --budget 1"))

    def test_schedule_from_standard_input(self):
        self.done("verify net - --budget 9MiB", input=self.read("good").encode())


class ExplainTest(CliTest):
    def test_every_decision_has_a_reason(self):
        for strategy in STRATEGIES:
            with self.subTest(strategy=strategy):
                text = self.done(f"explain net --budget 100% --strategy {strategy}")
                self.assertTrue(text)
                for line in text.splitlines():
                    self.assertRegex(line, r"\A(keep|recompute) +a\d \(1 MiB, made by f\d, .*: \S")

    # The search records no reasons; its values were said to be passed through by something else.
    def test_the_default_strategy_gives_numbers_too(self):
        lines = self.done("explain net --budget 6MiB").splitlines()
        self.assertTrue([line for line in lines if line.startswith("recompute")])
        for line in lines:
            self.assertRegex(line.split(": ", 1)[1], r"\d|passes through")

    def test_one_value(self):
        text = self.done("explain net --budget 100% --strategy selective --value a3")
        self.assertRegex(text, r"\A\w+ +a3 \(1 MiB, made by f3, last used by b4\), "
                               r"idle for \d+ us [^\n]*\n\Z")
        text = self.done("explain net --budget 100% --strategy keep_all --value g0")
        self.assertRegex(text, r"\Anone +g0 \(1 MiB, made by b1, an output of the step\): it must")

    def test_unknown_and_external_values(self):
        for value, words in [("nothing", "no such storage"), ("x", "it is external"),
                             ("a\n1", "no such storage")]:
            error = self.fails(ERROR, "explain net --budget 100% --value", value)
            self.assertRegex(error, rf"\Aremat explain: no value .*{words}")

    def test_json(self):
        explained = self.done_json("explain net --budget 100% --strategy recompute_all")
        self.assertEqual(explained["strategy"], "recompute_all")
        self.assertTrue(explained["feasible"])
        self.assertEqual({key for value in explained["values"] for key in value},
                         {"storage", "bytes", "action", "recomputes", "reason"})

    def test_infeasible(self):
        result = self.remat("explain net --budget 3MiB --strategy keep_all")
        self.assertEqual(result.returncode, INFEASIBLE)
        self.assertRegex(result.stderr.decode(), r"\Aremat explain: [^\n]* reaches 10 MiB, "
                                                 r"above the budget of 3 MiB; raise --budget\n\Z")
        self.assertTrue(result.stdout)


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
        graph = shlex.quote(str(GRAPHS / "gpt2_small_adamw.graph"))
        budgets = ",".join(f"{share / 10}%" for share in range(300, 900))  # half an hour of it
        self.interrupt(self.start(f"plan {graph} --budget {budgets} --json out",
                                  stdin=subprocess.DEVNULL))
        self.assertEqual(self.files(), ["net"])

    def test_while_waiting_for_input(self):
        self.interrupt(self.start("plan - --budget 50%", stdin=subprocess.PIPE))


if __name__ == "__main__":
    TOOL = os.path.abspath(sys.argv[1])
    GRAPHS = pathlib.Path(sys.argv[2]).resolve()
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
