# SPDX-License-Identifier: Apache-2.0
"""plan --html and --details: what is in a page is what is in the JSON. Pages in a browser: tests/browser.

    pages_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import json

import cli_fixture
from cli_fixture import ERROR, INFEASIBLE, USAGE, CliTest


class PlanPageTest(CliTest):
    def test_the_page_holds_the_json(self):
        plan = self.done_json("plan net --budget 60% --details --html page")
        self.assertEqual(self.page_data("page"), plan)
        self.assertEqual(self.page_title("page"), "Plan of net")
        planned = plan["schedules"]["planned"]
        self.assertEqual((planned["peak_bytes"], planned["time_ns"]), (plan["peak_bytes"], plan["time_ns"]))
        self.assertEqual(max(planned["bytes"]), plan["peak_bytes"])
        self.assertEqual(len(planned["op"]) - plan["op_count"], plan["recomputed_ops"])
        kept = plan["schedules"]["keep_all"]
        self.assertEqual((kept["peak_bytes"], kept["time_ns"]), (plan["keep_all_peak_bytes"], plan["keep_all_time_ns"]))
        self.assertEqual(plan["arena"]["arena_bytes"], plan["arena_bytes"])
        self.assertEqual(sum(row["extra_ns"] for row in plan["layers"]), plan["time_ns"] - plan["keep_all_time_ns"])

    def test_without_details_the_json_has_sums_only(self):
        plan = self.done_json("plan net --budget 60% --html page")
        self.assertNotIn("ops", plan)
        shown = self.page_data("page")
        for key, value in plan.items():
            self.assertEqual(shown[key], value, key)

    def test_a_page_needs_nothing_else(self):
        self.done("plan net --budget 60% --html page")
        page = self.read("page")
        for loads in ["src=", "@import", "url("]:
            self.assertNotIn(loads, page)

    def test_standard_output(self):
        self.assertTrue(self.done("plan net --budget 60% --html -").startswith("<!doctype html>"))
        self.fails(USAGE, "plan net --budget 60% --html - --json -")

    def test_what_cannot_be_written(self):
        self.assertEqual(self.fails(ERROR, "plan net --budget 60% --html nowhere/page"),
                         "remat plan: cannot write nowhere/page: No such file or directory")
        self.assertIn("No space left", self.fails(ERROR, "plan net --budget 60% --html /dev/full"))

    def test_a_page_shows_one_plan(self):
        error = self.fails(USAGE, "plan net --budget 60%,70% --html page")
        self.assertIn("--html", error)
        self.assertNotIn("page", self.files())

    def test_a_plan_that_does_not_fit_is_shown_too(self):
        self.fails(INFEASIBLE, "plan net --budget 1B --html page")
        self.assertFalse(self.page_data("page")["feasible"])

    def test_graphs_with_little_in_them(self):
        for text in ["remat-graph 1\n", "remat-graph 1\nexternal w 7 param\n",
                     "remat-graph 1\nexternal x 8 input\nop f forward kind=f time_ns=5 reads=x creates=y:3\noutput y\n"]:
            with self.subTest(text=text):
                self.write("small", text)
                plan = self.done_json("plan small --budget 100% --details --html page")
                self.assertEqual(json.dumps(self.page_data("page")), json.dumps(plan))


if __name__ == "__main__":
    cli_fixture.main()
