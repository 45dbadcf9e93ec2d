# SPDX-License-Identifier: Apache-2.0
"""What all tests of the tool share: how to run it, and a graph to run it on."""

import fcntl
import json
import os
import pathlib
import pty
import shlex
import struct
import subprocess
import sys
import tempfile
import termios
import unittest

TOOL = ""
GRAPHS = pathlib.Path()

DONE, ERROR, USAGE, INFEASIBLE, INTERRUPTED = 0, 1, 2, 3, 130
MIB = 1 << 20
BAR = r"  [━─]{30}  1?\d?\d %"  # of progress, on a terminal
STRATEGIES = ["keep_all", "recompute_all", "every_k", "selective", "mutwo", "chain_dp", "pack_only",
              "offload_only", "search", "optimal", "auto"]


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

    def page_data(self, name):
        """What a page is made from, out of the page."""
        begin = '<script type="application/json" id="data">'
        page = self.read(name)
        self.assertTrue(page.startswith("<!doctype html>"))
        at = page.index(begin) + len(begin)
        return json.loads(page[at:page.index("</script>", at)])

    def page_title(self, name):
        return self.read(name).partition("<title>")[2].partition("</title>")[0]

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

    def on_terminal(self, command, **environment):
        """What a terminal of 100 columns gets on standard output and standard error."""
        parent, child = pty.openpty()
        self.addCleanup(os.close, parent)
        fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        settings = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment}
        process = subprocess.Popen([TOOL, *shlex.split(command)], stdin=subprocess.DEVNULL, stdout=child,
                                   stderr=child, cwd=self.dir, env=settings)
        os.close(child)
        said = b""
        while True:
            try:
                part = os.read(parent, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
        self.assertEqual(process.wait(60), DONE)
        return said.decode()

    def progress_lines(self, command):
        """What is written on one line of a terminal, one after the other; the last is what is left there."""
        lines = self.on_terminal(command, NO_COLOR="1").split("\r\033[K")
        for line in lines[:-1]:
            self.assertLess(len(line), 100)
            self.assertNotIn("\n", line)
        return lines

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


def main():
    """TEST_FILE TOOL GRAPHS_DIR [unittest's own arguments]"""
    global TOOL, GRAPHS
    TOOL = os.path.abspath(sys.argv[1])
    GRAPHS = pathlib.Path(sys.argv[2]).resolve()
    unittest.main(module="__main__", argv=[sys.argv[0], *sys.argv[3:]])
