# SPDX-License-Identifier: Apache-2.0
"""Pages on paper.   paper_test.py MAKE_PAGES GRAPHS_DIR"""

import base64
import re
import time
import zlib

import browser
from browser import PageTest

PAGES = ["profile", "plan", "run", "sweep"]


class PaperTest(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.folder_of_pages = cls.make(cls.graphs / "resnet18.graph", "60%", "mutwo")

    def each_page(self):
        for page in PAGES:
            with self.subTest(page=page):
                self.opened(self.folder_of_pages / f"{page}.html")
                yield page
                self.no_errors()

    def widths(self):
        """Of every drawing: its own width, and that of its place."""
        return self.script("""
          return [...document.querySelectorAll("canvas")].map((canvas) => [
            canvas.getBoundingClientRect().width, canvas.width / devicePixelRatio,
            canvas.closest(".plot, .dots").getBoundingClientRect().width]);""")

    def settled_widths(self, seconds=20):
        """The same, once every drawing has taken note of its place, for which the browser takes its time."""
        end = time.monotonic() + seconds
        while True:
            widths = self.widths()
            settled = all(abs(drawn - shown) <= 1.5 and shown <= place for shown, drawn, place in widths)
            if settled or time.monotonic() > end:
                return widths
            time.sleep(0.05)

    def test_drawings_fit_a_sheet_and_the_screen_afterwards(self):
        for page in self.each_page():
            before = self.settled_widths()
            self.assertTrue(before)
            self.emulate("print")
            self.assertLessEqual(self.script("return document.querySelector('main').scrollWidth"), 700)
            for shown, drawn, place in self.settled_widths():
                self.assertLessEqual(shown, place)
                self.assertAlmostEqual(drawn, shown, delta=1.5)  # drawn for this place, not squeezed into it
                self.assertLessEqual(place, 700)
            self.emulate()
            self.assertEqual(self.settled_widths(), before)

    def test_what_explains_stays_and_what_is_for_the_mouse_goes(self):
        for page in self.each_page():
            self.emulate("print")
            hidden = self.script("""
              return [...document.querySelectorAll(".hint, .key, .panel h3, .counters")]
                .filter((each) => !each.getClientRects().length).map((each) => each.className);""")
            self.assertEqual({name for name in hidden if "how" not in name}, set())
            for selector in [".how", ".controls", "input[type=search]"]:
                self.assertEqual([each for each in self.find_all(selector) if each.is_displayed()], [], selector)
            self.emulate()

    def test_panels_and_charts_are_not_cut(self):
        for page in self.each_page():
            self.emulate("print")
            cut = self.script("""
              return [...document.querySelectorAll(".panel, .chart, .figures > div, tr")]
                .filter((each) => getComputedStyle(each).breakInside !== "avoid").map((each) => each.className);""")
            self.assertEqual(cut, [])
            self.emulate()

    def test_tables_are_not_cut_off(self):
        for page in self.each_page():
            self.emulate("print")
            wide = self.script("""
              return [...document.querySelectorAll("table")].filter((each) => each.getBoundingClientRect().right > 701)
                .map((each) => each.closest("[data-table]")?.dataset.table + " " + each.getBoundingClientRect().right);""")
            self.assertEqual(wide, [])
            self.emulate()

    def test_a_table_that_is_cut_says_so(self):
        """There is no button for more on paper."""
        for page in self.each_page():
            for media in ["", "print"]:
                self.emulate(media)
                tables = self.script("""
                  return [...document.querySelectorAll("[data-table]")].map((each) => [
                    each.querySelectorAll("tbody tr:not(.detail)").length, each.querySelector(".count").textContent,
                    [...each.querySelectorAll(".cut-off")].filter((e) => e.getClientRects().length).map((e) => e.textContent)]);""")
                for rows, count, said in tables:
                    number = int(count.split()[0].replace(",", ""))
                    cut = media == "print" and number > rows
                    self.assertEqual(said, [f"The first {rows:,} of {number:,} rows."] if cut else [])
            self.emulate()
            if page == "profile":
                self.assertTrue(any(said for *_, said in tables), "its ops are more than a hundred")

    def test_a_real_print(self):
        """What the browser prints, on A4: sheets as wide as the page, and the page as it was afterwards."""
        self.emulate("", "dark")
        self.addCleanup(self.emulate)
        for page in self.each_page():
            before = self.settled_widths()
            printed = self.driver.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69,
                                                                      "preferCSSPageSize": False, "printBackground": False})
            pdf = base64.b64decode(printed["data"])
            self.assertTrue(pdf.startswith(b"%PDF"))
            self.assertGreater(len(re.findall(rb"/Type\s*/Page\b", pdf)), 1)
            # Nothing was scaled down to make it fit: a pixel of the page is 300 / 96 of the sheet's.
            scales = set()
            for stream in re.findall(rb"stream\r?\n(.*?)endstream", pdf, re.DOTALL):
                try:
                    text = zlib.decompress(stream)
                except zlib.error:
                    continue
                if re.match(rb"\s*\.2399", text):  # a sheet, in points
                    scales.update(re.findall(rb"[\d.]+ 0 0 ([\d.]+) [-\d.]+ [-\d.]+ cm", text)[:1])
            self.assertEqual(scales, {b"3.125"})
            self.assertFalse(self.script("return document.documentElement.classList.contains('paper')"))
            self.assertEqual(self.settled_widths(), before)


if __name__ == "__main__":
    browser.main()
