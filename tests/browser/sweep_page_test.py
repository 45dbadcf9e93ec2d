# SPDX-License-Identifier: Apache-2.0
"""The page of a trade-off.   sweep_page_test.py MAKE_PAGES GRAPHS_DIR"""

import json

import browser
from browser import By, Keys, PageTest


class SweepPageTest(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pages = cls.make(cls.graphs / "mlp.graph")

    def load(self, page="sweep"):
        return self.opened(self.pages / f"{page}.html")

    def column(self, chart, number):
        """A column of a chart's data, without the room at its ends."""
        return self.script("return document.querySelector(`[data-chart=\"${arguments[0]}\"]`).plot.data[arguments[1]]"
                           ".slice(1, -1)", chart, number)

    def test_charts_show_the_numbers_of_the_json(self):
        data = self.load()
        batches = data["batches"]
        peak = "Peak against batch size"
        self.assertEqual(self.column(peak, 1), [point["plain_peak_bytes"] for point in batches])
        self.assertEqual(self.column(peak, 2), [point["planned_peak_bytes"] for point in batches])
        self.assertEqual(set(self.column(peak, 3)), {data["limit_bytes"]})
        for chart, key in [("Step time", "step_ns"), ("Samples per second", "samples_per_second")]:
            for number, how in [(1, "plain"), (2, "planned")]:
                self.assertEqual(self.column(chart + " against batch size", number),
                                 [point[f"{how}_{key}"] for point in batches])
        figures = [int(each.get_attribute("data-exact")) for each in self.find_all(".figures dd[data-exact]")]
        self.assertEqual(figures, [data["largest_plain_batch"], data["largest_planned_batch"], data["limit_bytes"]])
        self.assertEqual(figures[:2], [3, 8])
        # One was planned from other sizes, the other was tried.
        self.assertEqual(self.texts(".figures dd[data-exact]")[:2], ["≈ 3", "8"])
        self.assertIn("batch 9 does not fit", " ".join(self.texts(".lead")))
        self.assertIn("Planned: ", self.find(".lead").text)

    def test_a_curve_ends_where_nothing_fits(self):
        data = self.load()
        plot = "document.querySelector('[data-chart=\"Time against budget\"]').plot"
        names = self.script(f"return {plot}.series.slice(1).map((each) => each.label)")
        self.assertEqual((names[:2], names[-1]), (["keep_all", "recompute_all"], "auto"))
        budgets, *curves = self.script(f"return {plot}.data.map((each) => [...each])")
        self.assertEqual(budgets, sorted({point["budget_bytes"] for point in data["frontier"]}))
        self.assertEqual(curves[0], [None, None, 1.0])
        for name, curve in zip(names, curves):
            points = {p["budget_bytes"]: p["time_ratio"] for p in data["frontier"] if p["strategy"] == name and p["fits"]}
            self.assertEqual(curve, [points.get(budget) for budget in budgets])
        # Nine times as long would press the others flat.
        self.assertLess(self.script(f"return {plot}.scales.y.max"), 2)

    def test_what_does_not_fit_is_said(self):
        self.load()
        rows = self.texts("[data-table=batches] tbody tr")
        self.assertEqual(len(rows), 5)
        self.assertIn("no plan fits <i>", rows[3])
        self.assertIn("not tried", rows[4])
        self.assertNotIn("not tried", "".join(rows[:4]))
        said = " ".join(self.texts(".hint"))
        self.assertIn("✕", said)
        self.assertIn("half of what the plain step needs", said)

    def test_a_cross_stands_over_its_bar(self):
        """Where bars are as wide as they may become, it stood beside them."""
        path = self.pages / "one.html"
        data = self.load()
        whole = (self.pages / "sweep.html").read_text(encoding="utf-8")
        begin = whole.index(">", whole.index('id="data"')) + 1
        one = json.dumps({**data, "batches": [{**data["batches"][3], "planned_peak_bytes": data["batches"][3]["plain_peak_bytes"] // 2}],
                          "limit_bytes": 100 * data["limit_bytes"]}).replace("<", "\\u003c")
        path.write_text(whole[:begin] + one + whole[whole.index("</script>", begin):], encoding="utf-8")
        browser.load(self.driver, path)
        for name, bytes in [("plain", data["batches"][3]["plain_peak_bytes"]), ("planned", data["batches"][3]["plain_peak_bytes"] // 2)]:
            bar, cross = self.script("""
              const {plot} = document.querySelector('[data-chart="Peak against batch size"]');
              const style = getComputedStyle(document.documentElement);
              const top = Math.round(plot.valToPos(arguments[1], "y", true));
              // From the first to the last pixel that is near a colour, in some rows. Thin strokes are mixed with white.
              const extent = (name, near, from, to, first = 0, end = plot.bbox.width) => {
                const hex = style.getPropertyValue("--" + name).trim();
                const wanted = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
                const {left, width} = plot.bbox;
                const {data} = plot.ctx.getImageData(left, from, width, to - from);
                const at = [];
                for (let i = 0; i < data.length; i += 4) {
                  const x = i / 4 % width;
                  if (first <= x && x < end && wanted.every((part, j) => Math.abs(data[i + j] - part) <= near)) at.push(x);
                }
                return [Math.min(...at), Math.max(...at)];
              };
              const bar = extent(arguments[0], 0, top + 5, top + 9);
              return [bar, extent("budget", 100, top - 14, top - 7, bar[0] - 50, bar[1] + 50)];""", name, bytes)
            self.assertGreater(bar[1] - bar[0], 60)
            self.assertAlmostEqual(sum(cross) / 2, sum(bar) / 2, delta=3, msg=name)

    def test_tables_sort_and_search(self):
        data = self.load()
        self.find("[data-table=frontier] th:nth-child(6) button").click()
        first = self.texts("[data-table=frontier] tbody tr:first-child td")
        self.assertEqual(first[0], "recompute_all")
        self.find("[data-table=frontier] input").send_keys("keep")
        self.assertEqual(len(self.texts("[data-table=frontier] tbody tr")),
                         len([point for point in data["frontier"] if point["strategy"] == "keep_all"]))

    def test_tables_have_the_numbers_of_the_json(self):
        data = self.load()
        keys = {"Batch": "batch", "Plain peak": "plain_peak_bytes", "Plain step": "plain_step_ns", "Floor": "floor_bytes",
                "Budget": "planned_budget_bytes", "Planned peak": "planned_peak_bytes", "Planned step": "planned_step_ns", "Run again": "recomputed_ops"}
        self.assertEqual(self.cells("batches", *keys), [[point[key] for key in keys.values()] for point in data["batches"]])
        keys = {"Budget": "budget_bytes", "Peak": "peak_bytes", "Step": "step_ns", "Over plain": "time_ratio"}
        self.assertEqual(self.cells("frontier", *keys), [[point[key] for key in keys.values()] for point in data["frontier"]])

    def test_a_limit_far_above_is_marked_at_the_upper_edge(self):
        path = self.pages / "sweep.html"
        far = self.pages / "far.html"
        text = path.read_text(encoding="utf-8")
        limit = self.load()["limit_bytes"]
        far.write_text(text.replace(f'"limit_bytes":{limit}', f'"limit_bytes":{100 * limit}'), encoding="utf-8")
        edge = """
          const {plot} = document.querySelector('[data-chart="Peak against batch size"]');
          const budget = getComputedStyle(document.documentElement).getPropertyValue("--budget").trim();
          const wanted = [1, 3, 5].map((i) => parseInt(budget.slice(i, i + 2), 16)).join();
          const {left, top, width} = plot.bbox;
          const {data} = plot.ctx.getImageData(left, top, width, 24);
          let count = 0;
          for (let i = 0; i < data.length; i += 4) count += [data[i], data[i + 1], data[i + 2]].join() === wanted;
          return [count, plot.series.map((each) => each.label ?? ""), plot.scales.y.max];"""
        near, labels, _ = self.script(edge)
        self.assertIn("limit", labels)
        browser.load(self.driver, far)
        marked, labels, most = self.script(edge)
        self.assertNotIn("limit", labels)
        self.assertLess(most, 100 * limit)
        self.assertGreater(marked, near + 300)
        self.no_errors()

    def test_the_keyboard_moves_and_zooms(self):
        data = self.load()
        chart = self.find("[data-chart='Time against budget']")
        self.press(chart, Keys.HOME)
        tip = chart.find_element(By.CSS_SELECTOR, ".tip")
        self.assertIn("keep_all: does not fit", tip.text)
        self.press(chart, "+")
        low, high = float(chart.get_attribute("data-from")), float(chart.get_attribute("data-to"))
        budgets = [point["budget_bytes"] for point in data["frontier"]]
        self.assertLess(high - low, max(budgets) - min(budgets))
        self.no_errors()

    def test_without_points_the_page_says_so(self):
        self.load("empty")
        self.assertIn("Interrupted", self.find(".lead").text)
        self.assertFalse(self.find_all(".chart"))
        self.assertNotIn("0\u00a0B", self.script("return document.querySelector('main').textContent"), "no limit is known yet")


if __name__ == "__main__":
    browser.main()
