# SPDX-License-Identifier: Apache-2.0
"""Colours that everyone tells apart, on a light page, on a dark one and on paper.   colours_test.py MAKE_PAGES GRAPHS_DIR"""

import itertools

import browser
import colours
from browser import PageTest

ROLES = ["param", "buffer", "input", "optimizer-state", "activation", "gradient", "temporary", "workspace"]
APPEARANCES = [("", "light"), ("", "dark"), ("print", "light")]
# Distances (CIEDE2000) under normal vision and without each of the three kinds of cones.
AREAS_APART = 14    # large, and beside each other
LINES_APART = 10    # with dashes and shapes too
SEEN = 12           # on the card


class ColoursTest(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.pages = cls.make(cls.graphs / "mlp.graph")

    def colours(self, names):
        values = self.script("""
          const style = getComputedStyle(document.documentElement);
          return arguments[0].map((name) => style.getPropertyValue("--" + name).trim());""", names)
        for name, value in zip(names, values):
            self.assertRegex(value, r"\A#[0-9a-f]{6}\Z", name)
        return dict(zip(names, values))

    def each_appearance(self):
        for media, scheme in APPEARANCES:
            with self.subTest(media=media, scheme=scheme):
                self.emulate(media, scheme)
                yield scheme
        self.emulate()

    def apart(self, found, at_least):
        distance, vision, first, second = colours.nearest(found)
        self.assertGreaterEqual(distance, at_least, f"{first} and {second} with {vision}")

    def test_the_distance_is_that_of_the_standard(self):
        """Pairs of Sharma, Wu, Dalal 2005."""
        for first, second, distance in [((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425), ((50, 2.5, 0), (73, 25, -18), 27.1492),
                                        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
                                        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082)]:
            self.assertAlmostEqual(colours.ciede2000(first, second), distance, places=4)

    def test_roles(self):
        self.opened(self.pages / "profile.html")
        for _ in self.each_appearance():
            roles = self.colours(ROLES)
            self.apart(roles, AREAS_APART)
            for name, colour in roles.items():
                self.apart({name: colour, **self.colours(["card"])}, SEEN)

    def test_curves_of_a_plan(self):
        self.opened(self.pages / "plan.html")
        for _ in self.each_appearance():
            self.apart(self.colours(["planned", "again", "card"]), AREAS_APART)
            self.apart(self.colours(["plain", "planned", "budget", "measured", "card"]), LINES_APART)

    def test_strategies_by_colour_and_by_dashes_or_shapes(self):
        # make_pages gives it the table of strategies that the tool has.
        frontier = self.opened(self.pages / "sweep.html")["frontier"]
        strategies = list(dict.fromkeys(point["strategy"].replace("_", "-") for point in frontier))
        self.assertIn("pack-only", strategies)
        for _ in self.each_appearance():
            self.apart(self.colours([*strategies, "card"]), LINES_APART)
        series = self.script("""
          return document.querySelector('[data-chart="Time against budget"]').plot.series.slice(1)
            .map(({label, variable, dash, shape}) => [label, variable, dash ?? [], shape]);""")
        self.assertEqual([label.replace("_", "-") for label, *_ in series], strategies)
        self.assertEqual([variable for _, variable, *_ in series], ["--" + name for name in strategies])
        for (a, _, *one), (b, _, *other) in itertools.combinations(series, 2):
            self.assertNotEqual(one, other, f"{a} and {b} without colours")

    def test_a_legend_has_the_dashes_and_shapes_of_its_lines(self):
        for page in ["sweep", "run"]:
            self.opened(self.pages / f"{page}.html")
            rows = self.script("""
              return [...document.querySelectorAll("[data-chart]")].flatMap(({plot}) => {
                const lines = plot.series.slice(1).filter((each) => !each.area);
                const marks = [...plot.root.querySelectorAll(".u-legend .u-marker.line svg path:first-child")];
                const shapes = [...plot.root.querySelectorAll(".u-legend .u-marker.line svg")];
                return marks.map((mark, i) => [(lines[i].dash ?? []).join(" "), mark.getAttribute("stroke-dasharray"),
                  Boolean(lines[i].shape), shapes[i].children.length === 2, mark.style.stroke, `var(${lines[i].variable})`]);
              });""")
            self.assertGreater(len(rows), 2)
            for dash, shown, shape, shape_shown, stroke, variable in rows:
                self.assertEqual((shown, shape_shown, stroke), (dash, shape, variable))


if __name__ == "__main__":
    browser.main()
