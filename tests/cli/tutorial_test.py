# SPDX-License-Identifier: Apache-2.0
"""docs/tutorial.md as a newcomer follows it: every command, one after the other.

    tutorial_test.py TOOL GRAPHS_DIR [unittest's own arguments]
"""

import json
import os
import pathlib
import re
import subprocess

import cli_fixture
from cli_fixture import CliTest

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"


class TutorialTest(CliTest):
    def setUp(self):
        super().setUp()
        (self.dir / "bin").mkdir()
        (self.dir / "bin" / "remat").symlink_to(cli_fixture.TOOL)
        self.text = PAGE.read_text(encoding="utf-8")

    def follow(self, command):
        path = os.pathsep.join([str(self.dir / "bin"), os.environ["PATH"]])
        done = subprocess.run(["bash", "-e", "-c", command], cwd=self.dir, capture_output=True, text=True,
                              timeout=600, env={**os.environ, "PATH": path, "LC_ALL": "C.UTF-8"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        return done.stdout

    def test_every_command_runs(self):
        blocks = re.findall(r"^```sh\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        said = {command: self.follow(command) for block in blocks for command in block.splitlines()}
        verbs = {command.split()[1] for command in said}
        self.assertEqual(verbs, {"profile", "plan", "explain", "run", "sweep"})
        for command, text in said.items():
            self.assertTrue(text, command)
            for name in re.findall(r"--(?:html|graph|trace|dot|csv) (\S+)", command):
                self.assertTrue((self.dir / name).exists(), name)
        for page in self.dir.glob("*.html"):
            self.assertIn("</html>", page.read_text(encoding="utf-8"))
        for trace in self.dir.glob("*.trace.json"):
            self.assertTrue(json.loads(trace.read_text(encoding="utf-8"))["traceEvents"])
        runs = [text for command, text in said.items() if " run " in command]
        self.assertEqual(len(runs), 2)
        for text in runs:
            first, last = map(float, re.search(r"loss (\S+) to (\S+)", text).groups())
            self.assertLess(last, first)
            self.assertRegex(text, r"(?m)^auto .* yes$")
        # What the page quotes is what the command prints, numbers aside: they depend on the machine.
        (quoted,) = re.findall(r"^```text\n(.*?)^```$", self.text, re.DOTALL | re.MULTILINE)
        printed = next(text for command, text in said.items() if " profile " in command)
        for line in quoted.splitlines():
            self.assertIn(line.split()[0], [each.split()[0] for each in printed.splitlines() if each])

    def test_what_it_links_to_is_there(self):
        """Two pictures were shown that nobody had made."""
        for page in [PAGE, PAGE.parent / "pages.md", PAGE.parents[1] / "README.md"]:
            text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
            targets = re.findall(r"\]\(([^)#]+)", text)
            pictures = re.findall(r"""(?:src|srcset)=["']([^"']+)["']""", text)
            self.assertEqual(len(pictures), text.count("src"), page)  # none in another spelling; srcset has src in it
            for target in targets + pictures:
                if not target.startswith("https:"):
                    self.assertTrue((page.parent / target).exists(), (page, target))


if __name__ == "__main__":
    cli_fixture.main()
