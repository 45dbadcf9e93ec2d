# SPDX-License-Identifier: Apache-2.0
"""What the tool writes for other tools (traces, DOT, CSV), and what it looks like in a terminal.

    exports_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import csv
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree

import cli_fixture
from cli_fixture import BAR, ERROR, MIB, USAGE, CliTest, chain

# Quotes, a backslash, what would end a script element. (Names beyond ASCII cannot come from a file: the tests of
# the reports have them.)
ODD_NAMES = """remat-graph 1
external x"' 1048576 input
op f"\\n forward kind=a::<b> time_ns=1000 reads=x"' creates=a"e:1048576 scope=layer."one"
op g;e forward kind=k time_ns=1000 reads=a"e creates=b/script>':1048576 scope=layer.two
op h;e backward kind=k time_ns=1000 reads=b/script>',a"e creates=c:1048576 scope=layer.two
output c
"""
ONE_OP = "remat-graph 1\nexternal x 8 input\nop f forward kind=f time_ns=5 reads=x creates=a:8\noutput a\n"
NO_OP = "remat-graph 1\nexternal x 8 input\n"


class TraceTest(CliTest):
    def trace(self, command):
        self.done(command + " --trace trace")
        trace = json.loads(self.read("trace"))
        self.check(trace)
        return trace["traceEvents"]

    def check(self, trace):
        """The parts of the Trace Event Format that we use: metadata, complete events, counters."""
        self.assertEqual(set(trace), {"displayTimeUnit", "traceEvents"})
        fields = {"M": {"ph", "name", "pid", "tid", "args"}, "C": {"ph", "name", "pid", "ts", "args"},
                  "X": {"ph", "name", "cat", "pid", "tid", "ts", "dur", "args"}}
        for event in trace["traceEvents"]:
            self.assertEqual(set(event), fields[event["ph"]], event)
            for number in {"ts", "dur"} & set(event):
                self.assertGreaterEqual(event[number], 0)
            if event["ph"] == "C":
                self.assertEqual({type(value) for value in event["args"].values()}, {int})

    def test_planned_beside_plain(self):
        plan = self.done_json("plan net --budget 6MiB")
        events = self.trace("plan net --budget 6MiB")
        names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
        self.assertEqual(names, {1: "planned inside 6 MiB", 2: "plain: everything kept"})
        again = [event for event in events if event.get("cat") == "recompute"]
        self.assertEqual(len(again), plan["recomputed_ops"])
        self.assertGreater(len(again), 0)
        for pid, time_ns, peak in [(1, plan["time_ns"], plan["peak_bytes"]),
                                   (2, plan["keep_all_time_ns"], plan["keep_all_peak_bytes"])]:
            ops = [event for event in events if event["ph"] == "X" and event["pid"] == pid]
            self.assertAlmostEqual(sum(op["dur"] for op in ops) * 1000, time_ns)
            counters = [event for event in events if event["ph"] == "C" and event["pid"] == pid]
            self.assertEqual(max(sum(counter["args"].values()) for counter in counters), peak)

    def test_layers_hold_their_ops(self):
        self.write("odd", ODD_NAMES)
        events = self.trace("plan odd --budget 100%")
        layers = [event for event in events if event["ph"] == "X" and "ops" in event["args"]]
        self.assertEqual({layer["name"] for layer in layers}, {'layer."one"', "layer.two"})

    def test_without_ops(self):
        self.write("none", NO_OP)
        self.assertEqual({event["ph"] for event in self.trace("plan none --budget 1KiB")}, {"M"})

    def test_several_plans_have_no_trace(self):
        for flag in ["--trace", "--dot"]:
            self.assertIn("expected one budget", self.fails(USAGE, f"plan net --budget 6MiB,7MiB {flag} out"))

    def test_one_file_on_standard_output(self):
        self.assertIn("standard output is for one", self.fails(USAGE, "plan net --budget 6MiB --trace - --json -"))
        self.assertIn("traceEvents", json.loads(self.done("plan net --budget 6MiB --trace -")))


class DotTest(CliTest):
    def svg(self, graph, *rest):
        """The titles of what dot draws: nodes and edges."""
        self.done(f"plan {graph} --budget 100% --dot out.dot", *rest)
        drawn = subprocess.run(["dot", "-Tsvg", "out.dot"], cwd=self.dir, capture_output=True, timeout=120)
        self.assertEqual((drawn.returncode, drawn.stderr), (0, b""))
        texts = {}
        for group in ElementTree.fromstring(drawn.stdout).iter("{http://www.w3.org/2000/svg}g"):
            title = group.find("{http://www.w3.org/2000/svg}title")
            if title is not None:
                texts[title.text] = [text.text for text in group.iter("{http://www.w3.org/2000/svg}text")]
        return texts

    def test_every_op_and_what_it_reads(self):
        drawn = self.svg("net")
        self.assertEqual(len([name for name in drawn if re.fullmatch(r"op\d+", name)]), 17)
        self.assertEqual(drawn["op0"][0], "f1")
        self.assertEqual(drawn["op0->op1"], ["a1, 1 MiB"])
        self.assertIn("op6->op9", drawn)  # a7, idle until b8

    def test_names_as_they_are(self):
        self.write("odd", ODD_NAMES)
        drawn = self.svg("odd")
        self.assertEqual(drawn["op0"][0], 'f"\\n')
        self.assertEqual(drawn["op1"][0], "g;e")
        self.assertEqual(drawn["op1->op2"], ["b/script>', 1 MiB"])
        self.assertIn(['layer."one", forward'], drawn.values())

    def test_a_range(self):
        for text in ["f2:f4", "1:3", "f2:3"]:
            drawn = self.svg("net", "--range", text)
            self.assertEqual(sorted(name for name in drawn if re.fullmatch(r"op\d+", name)), ["op1", "op2", "op3"])
            # What comes in and what goes out.
            self.assertEqual(len([name for name in drawn if re.fullmatch(r"storage\d+", name)]), 4)
        self.assertEqual(len([name for name in self.svg("net", "--range", ":f2") if name.startswith("op") and ">" not in name]), 2)

    def test_ranges_that_are_none(self):
        for text in ["f4:f2", "nothing", "0:17", "-1:2", "f2:f3:f4"]:
            self.assertIn("expected a:b", self.fails(ERROR, "plan net --budget 100% --dot out --range", text))
        self.assertIn("--dot", self.fails(USAGE, "plan net --budget 100% --range f1:f2"))

    def test_small_graphs(self):
        for text in [NO_OP, ONE_OP]:
            self.write("small", text)
            self.svg("small")

    def test_what_runs_again_says_so(self):
        self.done("plan net --budget 6MiB --dot out")
        self.assertIn("runs 2 times", self.read("out"))


class CsvTest(CliTest):
    def rows(self, path):
        with open(self.dir / path, newline="", encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def test_plans(self):
        self.done("plan net --budget 100%,6MiB --strategy keep_all,every_k --csv tables")
        plans = self.done_json("plan net --budget 100%,6MiB --strategy keep_all,every_k")["plans"]
        rows = self.rows("tables/plans.csv")
        self.assertEqual(len(rows), 4)
        for row, plan in zip(rows, plans):
            self.assertEqual(row["peak_bytes"], str(plan["peak_bytes"]))
            self.assertEqual(row["feasible"], "true" if plan["feasible"] else "false")

    def test_one_plan_in_detail(self):
        plan = json.loads(self.done("plan net --budget 6MiB --csv tables --json -"))
        runs = self.rows("tables/runs.csv")
        self.assertEqual(len(runs), plan["op_count"] + plan["recomputed_ops"])
        self.assertEqual(max(int(run["bytes"]) for run in runs), plan["peak_bytes"])
        roles = ["input", "activation", "gradient", "temporary"]
        for run in runs:
            self.assertEqual(sum(int(run.get(role) or 0) for role in roles), int(run["bytes"]))
        self.assertEqual({row["action"] for row in self.rows("tables/values.csv")}, {"keep", "recompute"})
        self.assertEqual(sum(int(row["recomputed_ops"]) for row in self.rows("tables/layers.csv")), plan["recomputed_ops"])
        blocks = self.rows("tables/arena.csv")
        self.assertEqual(max(int(block["offset"]) + int(block["bytes"]) for block in blocks), plan["arena_bytes"])

    def test_names_are_quoted(self):
        self.write("odd", ODD_NAMES)
        self.done("plan odd --budget 100% --csv tables")
        rows = self.rows("tables/runs.csv")
        self.assertEqual([row["op"] for row in rows], ['f"\\n', "g;e", "h;e"])
        self.assertEqual(rows[0]["layer"], 'layer."one"')
        reasons = [value["reason"] for value in self.done_json("explain net --budget 6MiB")["values"]]
        self.done("explain net --budget 6MiB --csv tables")
        self.assertEqual([row["reason"] for row in self.rows("tables/values.csv")], reasons)
        self.assertTrue(all("," in reason for reason in reasons))

    def test_folders_that_cannot_be(self):
        self.write("file", "")
        self.assertIn("takes a folder", self.fails(ERROR, "plan net --budget 100% --csv file"))
        self.assertIn("cannot make the folder", self.fails(ERROR, "plan net --budget 100% --csv file/below"))


class MovesTest(CliTest):
    """A plan that packs two values, one of which is read packed, and offloads one."""

    GRAPH = pathlib.Path(__file__).resolve().parents[1] / "testing" / "packed_and_away.graph"

    def setUp(self):
        super().setUp()
        (self.dir / "moving").symlink_to(self.GRAPH)

    def test_every_export(self):
        """The DOT of such a plan was written beyond the end of a table."""
        plan = self.done_json("plan moving --budget 55% --trace trace --dot dot --csv tables --html page --details")
        self.assertEqual((plan["packed_values"], plan["offloaded_values"], plan["recomputed_ops"]), (2, 1, 0))
        planned = plan["schedules"]["planned"]
        self.assertEqual(sorted(kind for _, kind in planned["moves"]), ["offload", "pack", "pack", "prefetch", "unpack"])
        self.assertEqual(self.page_data("page"), plan)
        events = [event for event in json.loads(self.read("trace"))["traceEvents"] if event["ph"] == "X" and event["pid"] == 1]
        self.assertEqual(sorted(event["cat"] for event in events if event["cat"] not in ("forward", "backward")),
                         sorted(kind for _, kind in planned["moves"]))
        end = max(event["ts"] + event["dur"] for event in events)
        self.assertAlmostEqual(end * 1000, plan["time_ns"])
        self.assertNotIn("runs", self.read("dot"))
        subprocess.run(["dot", "-Tsvg", "dot"], cwd=self.dir, check=True, capture_output=True, timeout=120)
        with open(self.dir / "tables" / "runs.csv", newline="", encoding="utf-8") as file:
            runs = list(csv.DictReader(file))
        self.assertEqual([(i, row["move"]) for i, row in enumerate(runs) if row["move"]], [tuple(move) for move in planned["moves"]])
        with open(self.dir / "tables" / "values.csv", newline="", encoding="utf-8") as file:
            self.assertEqual({row["storage"]: row["action"] for row in csv.DictReader(file)},
                             {"m": "pack", "a": "offload", "r": "pack"})

    def test_explain(self):
        text = self.done("explain moving --budget 55%")
        self.assertRegex(text, r"layer +kept +recomputed +packed +offloaded")
        self.assertIn("1 (100 KiB)", text)


class BadInputTest(CliTest):
    def test_unwritable_files(self):
        for flag in ["--trace", "--dot"]:
            self.assertIn("cannot write", self.fails(ERROR, f"plan net --budget 100% {flag} nowhere/out"))

    def test_fifty_thousand_ops(self):
        self.write("long", chain(25_000))
        self.done("plan long --budget 100% --strategy keep_all --trace trace --dot out --range 0:99 --csv tables")
        self.assertGreater(len(json.loads(self.read("trace"))["traceEvents"]), 4 * 50_000)
        subprocess.run(["dot", "-Tsvg", "out"], cwd=self.dir, check=True, capture_output=True, timeout=300)


class ExplainTest(CliTest):
    def test_layers_add_up(self):
        resnet = shlex.quote(str(cli_fixture.GRAPHS / "resnet18.graph"))
        explained = self.done_json(f"explain {resnet} --budget 60% --strategy mutwo")
        plan = self.done_json(f"plan {resnet} --budget 60% --strategy mutwo")
        layers = explained["layers"]
        self.assertEqual(sum(layer["extra_ns"] for layer in layers), plan["time_ns"] - plan["keep_all_time_ns"])
        self.assertEqual(sum(layer["recomputed_ops"] for layer in layers), plan["recomputed_ops"])
        for action, key in [("keep", "kept"), ("recompute", "recomputed")]:
            values = [value for value in explained["values"] if value["action"] == action]
            self.assertEqual(sum(layer[f"{key}_values"] for layer in layers), len(values))
            self.assertEqual(sum(layer[f"{key}_bytes"] for layer in layers), sum(value["bytes"] for value in values))
        self.assertIn("layer1.0", [layer["layer"] for layer in layers])
        deeper = self.done_json(f"explain {resnet} --budget 60% --strategy mutwo --depth 0")["layers"]
        self.assertGreater(len(deeper), len(layers))

    def test_text_is_short(self):
        resnet = shlex.quote(str(cli_fixture.GRAPHS / "resnet18.graph"))
        lines = self.done(f"explain {resnet} --budget 60% --strategy mutwo").splitlines()
        self.assertLess(len(lines), 25)
        self.assertTrue(lines[0].split()[:3] == ["layer", "kept", "recomputed"])
        self.assertIn("--value NAME", lines[-1])


class TerminalTest(CliTest):
    def chart(self, text):
        return [line for line in text.splitlines() if line.startswith(("activation", "gradient", "input", "temporary"))]

    def test_colours_on_a_terminal_only(self):
        command = "plan net --budget 6MiB"
        self.assertIn("\033[38;5;", self.on_terminal(command))
        for setting in [{"NO_COLOR": "1"}, {"TERM": "dumb"}]:
            text = self.on_terminal(command, **setting)
            self.assertNotIn("\033[38", text)
            self.assertIn("█", text)
        self.assertIn("\033[38;5;", self.on_terminal(command, NO_COLOR=""))  # empty is as good as unset
        self.assertNotIn("\033", self.done(command))

    def test_without_utf8_bars_are_ascii(self):
        text = self.on_terminal("plan net --budget 6MiB", LC_ALL="C")
        self.assertTrue(text.isascii())
        self.assertTrue(all(re.search(r"#+\.*", line) for line in self.chart(text)), text)

    def test_the_chart_is_as_wide_as_the_terminal(self):
        text = self.on_terminal("plan net --budget 6MiB", NO_COLOR="1")
        widths = [len(line.rstrip()) for line in self.chart(text)]
        self.assertTrue(widths)
        self.assertLessEqual(max(widths), 100)

    def test_bars_show_the_numbers(self):
        """keep-all has 8 activations of 1 MiB at its peak; the bar of the plan is shorter by its share."""
        plan = self.done_json("plan net --budget 6MiB")
        text = self.done("plan net --budget 6MiB", env={**os.environ, "LC_ALL": "C"})
        (line,) = [line for line in self.chart(text) if line.startswith("activation")]
        full, rest = line.count("#"), line.split()[-1].count(".")
        before = plan["keep_all_peak_by_role"]["activation"]
        self.assertEqual(before, 8 * MIB)
        self.assertAlmostEqual(full / (full + rest), plan["peak_by_role"]["activation"] / before, delta=0.05)

    def test_progress_leaves_nothing_behind(self):
        graph = shlex.quote(str(cli_fixture.GRAPHS / "gpt2_small_adamw.graph"))
        *shown, left = self.progress_lines(f"plan {graph} --budget 40% --time-limit 5")
        self.assertIn("planned in", left)
        bars = [line for line in shown if line.startswith("planning  ")]
        self.assertTrue(bars)
        for line in bars:
            self.assertRegex(line, BAR)

    def test_no_progress_in_a_file(self):
        graph = shlex.quote(str(cli_fixture.GRAPHS / "gpt2_small_adamw.graph"))
        self.done(f"plan {graph} --budget 40% --time-limit 2")  # demands an empty standard error


if __name__ == "__main__":
    if shutil.which("dot") is None:
        raise SystemExit("these tests need Graphviz: apt-get install graphviz")
    cli_fixture.main()
