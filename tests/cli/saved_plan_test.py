# SPDX-License-Identifier: Apache-2.0
"""Plans as files: plan --save of a graph, and verify on what it wrote.

    saved_plan_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import cli_fixture
from cli_fixture import ERROR, INFEASIBLE, MIB, USAGE, CliTest


class SavedPlanTest(CliTest):
    def setUp(self):
        super().setUp()
        self.report = self.done_json("plan net --strategy every_k --budget 9MiB --save net.plan")
        self.text = self.read("net.plan")

    def test_the_file_says_what_it_holds(self):
        lines = self.text.splitlines()
        self.assertEqual(lines[0], "remat-plan 1")
        self.assertRegex(lines[1], r"\Alibrary \d+\.\d+\.\d+\Z")
        self.assertEqual(lines[2:7], ["libtorch none", "course", "fingerprint none", "threads 0",
                                      f"budget {9 * MIB}"])
        graph = self.text[self.text.index("remat-graph 1"):self.text.index("schedule\n")]
        self.assertEqual(graph, self.read("net"))
        self.assertRegex(lines[-1], r"\Achecksum [0-9a-f]{16}\Z")

    def test_the_schedule_is_that_of_the_plan(self):
        self.done("plan net --strategy every_k --budget 9MiB --placed --schedule out")
        self.assertIn("schedule\n" + self.read("out") + "addresses\n", self.text)

    def test_the_same_plan_is_the_same_file(self):
        self.done("plan net --strategy every_k --budget 9MiB --save again.plan")
        self.assertEqual(self.read("again.plan"), self.text)

    def test_verify_accepts_it(self):
        self.assertIn("accepted: the same outputs", self.done("verify net.plan"))
        self.assertIn("accepted: ", self.done("verify -", input=self.text.encode()))
        answer = self.done_json("verify net.plan")
        self.assertTrue(answer["accepted"])
        self.assertEqual(answer["courses"][0]["peak_bytes"], self.report["peak_bytes"])
        self.assertLessEqual(answer["courses"][0]["reserved_bytes"], 9 * MIB)

    def refused(self, text):
        self.write("bad.plan", text)
        error = self.fails(ERROR, "verify bad.plan")
        self.assertTrue(error.startswith("remat verify: bad.plan: "), error)
        return error

    def test_damage_is_refused(self):
        self.assertIn("a part of it is missing", self.refused(self.text[:len(self.text) // 2]))
        self.assertIn("expected the header 'remat-plan 1'", self.refused(""))
        self.assertIn("expected the header 'remat-plan 1'", self.refused(self.read("net")))
        self.assertIn("the file is damaged, or was changed",
                      self.refused(self.text.replace("threads 0", "threads 1")))
        self.assertIn("cannot read nowhere", self.fails(ERROR, "verify nowhere"))

    def test_no_plan_no_file(self):
        self.fails(INFEASIBLE, "plan net --budget 1MiB --save none.plan")
        self.assertNotIn("none.plan", self.files())

    def test_what_does_not_go_together_is_a_usage_error(self):
        for command in ["plan net --budget 50%,60% --save out", "plan net --budget 70% --save - --json -",
                        "plan net --budget 70% --save - --schedule -", "verify net.plan --budget 9MiB"]:
            with self.subTest(command=command):
                self.fails(USAGE, command)
        self.assertEqual(self.done("plan net --strategy every_k --budget 9MiB --save -"), self.text)


if __name__ == "__main__":
    cli_fixture.main()
