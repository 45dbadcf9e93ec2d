# SPDX-License-Identifier: Apache-2.0
"""Traces in Perfetto's own trace processor.   trace_test.py MAKE_PAGES GRAPHS_DIR"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

from perfetto import Perfetto

TOOL = pathlib.Path(sys.argv[1]).with_name("remat")
GRAPHS = pathlib.Path(sys.argv[2])

ODD_NAMES = """remat-graph 1
external x 1048576 input
op f"\\n forward kind=a::<b> time_ns=1000 reads=x creates=a:1048576 scope=layer."one"
op g</script> forward kind=k time_ns=2000 reads=a creates=b:1048576 scope=layer.two
op h backward kind=k time_ns=3000 reads=b,a creates=c:1048576 scope=layer.two
output c
"""


class TraceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.perfetto = Perfetto()
        cls.addClassCleanup(cls.perfetto.close)

    def opened(self, graph, *more, command="plan"):
        """Plans with a trace, or runs, opens it; the plan as JSON, and how to ask about the trace."""
        said = subprocess.run([TOOL, command, graph, *more, "--trace", self.folder / "trace", "--json", "-"], check=True,
                              capture_output=True, timeout=300).stdout
        query = self.perfetto.open(self.folder / "trace").query
        self.assertEqual(query("select name from stats where severity != 'info' and value > 0", "name"), [])
        return json.loads(said), query

    def test_every_op_with_its_time_and_counters_that_reach_the_peak(self):
        plan, query = self.opened(GRAPHS / "resnet18.graph", "--budget", "60%", "--strategy", "mutwo")
        processes = dict(query("select upid, name from process where name is not null", "upid", "name"))
        self.assertEqual(sorted(processes.values()), ["plain: everything kept", query(
            "select name from process where name glob 'planned inside *'", "name")[0][0]])
        ops = """select process.name as step, thread.name as track, count(*) as ops, sum(slice.dur) as ns
                 from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
                 join process using (upid)
                 where slice.category = 'recompute' or extract_arg(slice.arg_set_id, 'args.kind') is not null
                 group by step, track order by step, track"""
        rows = query(ops, "step", "track", "ops", "ns")
        plain, again, planned = rows
        self.assertEqual(plain[1:], ("layers and ops", plan["op_count"], plan["keep_all_time_ns"]))
        self.assertEqual(again[1:3], ("computed again", plan["recomputed_ops"]))
        self.assertEqual(planned[2], plan["op_count"])
        self.assertEqual(again[3] + planned[3], plan["time_ns"])
        peaks = """select process.name as step, max(total) as bytes from (
                     select upid, ts, sum(value) as total from counter
                     join process_counter_track track on counter.track_id = track.id
                     where track.name glob 'bytes by role*' group by upid, ts)
                   join process using (upid) group by step order by step"""
        self.assertEqual([bytes for _, bytes in query(peaks, "step", "bytes")],
                         [plan["keep_all_peak_bytes"], plan["peak_bytes"]])

    def test_a_measured_step(self):
        """As `run` writes it: times that were measured, and the bytes that the allocator counted."""
        if " run " not in subprocess.run([TOOL, "--help"], check=True, capture_output=True, text=True).stdout:
            self.skipTest("a tool without LibTorch")
        for more in [[], ["--optimizer", "adamw"]]:
            with self.subTest(more=more):
                run, query = self.opened("resnet18", *"--batch 16 --image 64 --width 8 --budget 80% --steps 1 --time-limit 1".split(),
                                         "--details", *more, command="run")
                self.assertEqual([name for (name,) in query("select name from process where name is not null order by name", "name")][1],
                                 "plain: everything kept")
                ops = query("""select count(*) as ops, min(slice.dur) as least, sum(slice.dur) as ns
                               from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
                               join process using (upid) where process.name glob 'measured inside *'
                               and extract_arg(slice.arg_set_id, 'args.kind') is not null""", "ops", "least", "ns")[0]
                self.assertEqual(ops[0], len(run["schedules"]["planned"]["op"]))
                self.assertGreaterEqual(ops[1], 0)
                self.assertGreater(ops[2], 0)
                counted = query("""select max(value) as bytes from counter
                                   join process_counter_track track on counter.track_id = track.id
                                   join process using (upid) where process.name glob 'measured inside *'
                                   and track.name glob '*measured*'""", "bytes")[0][0]
                self.assertEqual(counted, run["measured_peak_bytes"])

    def test_names_as_they_are_and_ops_under_their_layers(self):
        (self.folder / "odd").write_text(ODD_NAMES)
        _, query = self.opened(self.folder / "odd", "--budget", "100%")
        names = {name for (name,) in query("select distinct name from slice", "name")}
        self.assertEqual(names, {'f"\\n', "g</script>", "h", 'layer."one"', "layer.two"})
        parents = query("select distinct slice.name as name, parent.name as layer from slice "
                        "join slice parent on slice.parent_id = parent.id order by name", "name", "layer")
        self.assertEqual(parents, [('f"\\n', 'layer."one"'), ("g</script>", "layer.two"), ("h", "layer.two")])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
