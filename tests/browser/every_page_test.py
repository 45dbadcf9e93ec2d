# SPDX-License-Identifier: Apache-2.0
"""What holds for every page: odd graphs, odd names, many ops, numbers, dark, keyboard.   every_page_test.py MAKE_PAGES GRAPHS_DIR"""

import json as json_text
import re
import subprocess
import urllib.parse

import browser
import graphs
from browser import PageTest, WebDriverWait

PAGES = ["profile", "plan", "run", "sweep"]
OF_A_GRAPH = PAGES[:3]
TWO_SECONDS = 2000  # ms; the number is a promise of the pages

# None of these may do anything but be shown.
NASTY = ["</script><script>document.title='broken'</script>", "<img src=x onerror=document.title='broken'>",
         "\"'><b>quoted</b>", "--><!--", "&lt;b&gt;", "слой.слой", "層", "\u2028", "${document.title='broken'}", "\\u003c"]


def nasty_graph():
    lines = ["remat-graph 1", "external x 8 input"]
    before = "x"
    encoded = [urllib.parse.quote(name, safe="") for name in NASTY]
    for i, name in enumerate(encoded):
        lines.append(f"op {name} forward kind=aten::{name} time_ns=5 reads={before} creates=s{i}{name}:{100 + i} scope={name}.{name}")
        before = f"s{i}{name}"
    for i, name in reversed(list(enumerate(encoded))):
        lines.append(f"op d{name} backward kind=aten::{name} time_ns=9 reads={before},s{i}{name} creates=g{i}:{50 + i} scope={name}.{name}")
        before = f"g{i}"
    return "\n".join([*lines, f"output {before}"]) + "\n"


class EveryPageTest(PageTest):
    def each_page(self, graph, *arguments, pages=OF_A_GRAPH):
        folder = self.make(graph, *arguments)
        for page in pages:
            with self.subTest(page=page):
                json = self.opened(folder / f"{page}.html")
                yield page, json
                self.no_errors()

    def test_names_are_text(self):
        # The title is the file's name.
        path = self.folder / "<img onerror=document.title='broken' src=x>&\"é"
        path.write_text(nasty_graph(), encoding="utf-8")
        for page, json in self.each_page(path, "70%", pages=PAGES):
            self.assertEqual(self.script("return JSON.parse(document.getElementById('data').textContent)"), json)
            self.assertEqual(self.driver.title, path.name)
            self.assertEqual(self.find("h1").text, path.name)
            self.assertEqual(self.find_all("main img, main b.quoted, main script"), [])
            text = self.script("return document.querySelector('main').textContent")
            # The plan's page names what there was something to decide about: all but the last. That of a sweep has
            # no ops.
            for name in {"profile": NASTY, "sweep": []}.get(page, NASTY[:-1]):
                self.assertIn(name, text, page)
            if page == "run":
                self.assertIn("every_k: no plan fits </td><b>", text)
            if page == "sweep":
                self.assertIn("is above </p> the budget", text)
                self.assertIn("no plan fits <i>", text)

    def test_a_graph_without_ops(self):
        for page, json in self.each_page("remat-graph 1\nexternal w 7 param\n"):
            self.assertEqual(json.get("op_count", 0), 0)
            self.assertIn("7\u00a0B", self.script("return document.querySelector('.figures').textContent"))

    def test_an_empty_graph(self):
        for page, json in self.each_page("remat-graph 1\n"):
            self.assertEqual(json["keep_all_peak_bytes"], 0)

    def test_one_op(self):
        for page, json in self.each_page(
                "remat-graph 1\nexternal x 8 input\nop f forward kind=aten::f time_ns=5 reads=x creates=y:3\noutput y\n"):
            self.assertEqual(json["keep_all_peak_bytes"], 11)

    def test_ops_that_take_no_time(self):
        text = graphs.network(20).replace("time_ns=", "time_ns=0#")
        lines = [line.split("#")[0] + " " + line.split("#")[1].split(" ", 1)[1] if "#" in line else line
                 for line in text.splitlines()]
        for page, json in self.each_page("\n".join(lines) + "\n"):
            self.assertEqual(json.get("op_time_ns", json.get("time_ns", 0)), 0)

    def test_ten_thousand_ops_open_in_two_seconds_and_stay_below_5_mb(self):
        folder = self.make(graphs.network(10_000), "60%", "every_k")
        for page in ["profile", "plan"]:
            with self.subTest(page=page):
                self.assertLess((folder / f"{page}.html").stat().st_size, 5_000_000)
                json = self.opened(folder / f"{page}.html")
                self.assertGreater(json["op_count"], 9_900)
                self.assertLess(len(self.find_all("td")), 12_000, "rows beyond the first hundred are not made")
                # From the start of the navigation until all has been seen once. Other tests may be running: the best of
                # several times counts.
                times = []
                while len(times) < 8 and min(times, default=TWO_SECONDS) >= TWO_SECONDS:
                    self.opened(folder / f"{page}.html")
                    WebDriverWait(self.driver, 60).until(lambda driver: self.script("return document.body.dataset.seen"))
                    times.append(float(self.script("return document.body.dataset.seen")))
                self.assertLess(min(times), TWO_SECONDS, times)

    def test_fifty_thousand_ops(self):
        for page, json in self.each_page(graphs.network(50_000), "60%", "every_k", pages=["profile", "plan"]):
            self.assertGreater(json["op_count"], 49_000)

    def test_without_charts(self):
        """As a build without npm makes them: the page says so, and the rest of it works."""
        folder = self.make(self.graphs / "mlp.graph")
        for page in PAGES:
            with self.subTest(page=page):
                path = folder / f"{page}.html"
                whole = path.read_text(encoding="utf-8")
                begin = whole.index("<script>\n/*\nuPlot")
                path.write_text(whole[:begin] + whole[whole.index("</script>", begin) + len("</script>"):], encoding="utf-8")
                self.opened(path)
                self.assertIn("There is no chart here", self.find(".no-chart").text)
                self.assertGreater(int(self.find("[data-exact]").get_attribute("data-exact")), 0)
                self.assertTrue(self.find_all("tbody tr"))

    def test_dark(self):
        def seen(scheme, media=""):
            self.emulate(media, scheme)
            return self.script("return ['color', 'backgroundColor'].map((key) => getComputedStyle(document.body)[key]"
                               ".match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))")
        for page, json in self.each_page(self.graphs / "mlp.graph", pages=PAGES):
            ink, paper = seen("dark")
            self.assertGreater(ink, paper + 300)
            ink, paper = seen("light")
            self.assertGreater(paper, ink + 300)
            ink, paper = seen("dark", "print")
            self.assertEqual((ink, paper), (0, 3 * 255), "paper is white, whatever the screen was")
            self.emulate()

    def test_numbers_are_written_as_in_the_terminal(self):
        """1152 B was 1.13 KiB on a page and 1.12 KiB in the terminal."""
        odd = [0, 1, 7, 999, 1000, 1023, 1024, 1025, 1029, 1152, 1154, 1280, 10_239, 10_240, 10_291, 10_496, 10_752, 102_399,
               102_400, 102_912, 103_936, 1_048_575, 1_048_576, 1_179_648, 123_456_789, 2 ** 30 - 1, 2 ** 30, 9 * 2 ** 27,
               10_500, 12_250, 12_350, 100_500, 101_500, 1_125_000, 2_500_000_000, 3 * 2 ** 40 + 12345, 5 * 10 ** 12]
        lines = ["remat-graph 1", "external x 1 input"]
        for i, number in enumerate(odd):
            lines.append(f"op f{i} forward kind=k time_ns={number % 10 ** 12} reads=x creates=a{i}:{number}")
        lines.append("op g backward kind=k time_ns=1 reads=" + ",".join(f"a{i}" for i in range(len(odd))) + " creates=z:1")
        for page, json in self.each_page("\n".join([*lines, "output z"]) + "\n", "100%", "keep_all", pages=["profile"]):
            shown = {(text.replace("\u00a0", " "), int(exact)) for text, exact in self.script("""
              return [...document.querySelectorAll("[data-exact]")].map((e) => [e.textContent, e.dataset.exact])""")
                     if re.search(r"\d\u00a0(B|[KMGT]iB|[num]?s)$", text) and exact.isdigit()}
            self.assertLessEqual(set(odd[1:]), {exact for _, exact in shown})
            exact = sorted({exact for _, exact in shown})
            said = subprocess.run([self.make_pages, "units"], input="\n".join(map(str, exact)), check=True, text=True,
                                  capture_output=True, timeout=60).stdout
            units = dict(zip(exact, json_text.loads(said)))
            for text, number in shown:
                self.assertIn(text, units[number])

    def test_everything_can_be_reached_by_the_keyboard(self):
        for page, json in self.each_page(self.graphs / "mlp.graph", pages=PAGES):
            # Of the rows that open, one can be reached by Tab, and the others from there.
            stops = self.script("""
              return [...document.querySelectorAll('tbody')].filter((each) => each.querySelector('.opens'))
                .map((each) => each.querySelectorAll('[tabindex="0"]').length);""")
            self.assertEqual(set(stops), {1} if page in ["plan", "run"] else set())
            unreachable = self.script("""
              return [...document.querySelectorAll('button:not(.opens), input, select, figure[data-chart], canvas[role], .u-legend th')]
                .filter((each) => each.tabIndex < 0).map((each) => each.outerHTML.slice(0, 200))
                .filter((html) => !html.includes('data-chart="memory of'));""")
            self.assertEqual(unreachable, [])
            unnamed = self.script("""
              return [...document.querySelectorAll('button, input, select, [role=img], [role=button], figure')]
                .filter((each) => !each.hidden && !(each.getAttribute('aria-label') || each.textContent.trim() || each.closest('label')))
                .map((each) => each.outerHTML.slice(0, 200));""")
            self.assertEqual(unnamed, [])


if __name__ == "__main__":
    browser.main()
