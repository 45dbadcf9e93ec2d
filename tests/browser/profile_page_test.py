# SPDX-License-Identifier: Apache-2.0
"""The page of a profile.   profile_page_test.py MAKE_PAGES GRAPHS_DIR"""

import browser
from browser import ActionChains, Keys, PageTest

CHART = "[data-chart='memory over the step']"


class ProfilePageTest(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = cls.make(cls.graphs / "resnet50.graph") / "profile.html"

    def setUp(self):
        self.json = self.opened(self.page)

    def tearDown(self):
        self.no_errors()

    def shown(self):
        """The range of time that the chart shows."""
        data = self.find(CHART)
        return float(data.get_attribute("data-from")), float(data.get_attribute("data-to"))

    def column(self, table, number):
        return self.texts(f"[data-table='{table}'] tbody tr td:nth-child({number})")

    def test_the_page_holds_the_json(self):
        self.assertEqual(self.script("return JSON.parse(document.getElementById('data').textContent)"), self.json)

    def test_the_peak_is_that_of_the_json(self):
        peak = self.json["keep_all_peak_bytes"]
        self.assertEqual(int(self.find(".figures dd").get_attribute("data-exact")), peak)
        parts = self.script("return [...document.querySelectorAll('.share .key b')].map((e) => Number(e.dataset.exact))")
        self.assertEqual(sum(parts), peak)
        self.assertEqual(sorted(parts), sorted(row["peak_bytes"] for row in self.json["by_role"]))

    def test_the_chart_reaches_the_peak(self):
        # The first column of bytes is the sum over all roles.
        highest = self.script("return Math.max(...document.querySelector(arguments[0]).plot.data[1])", CHART)
        self.assertEqual(highest, self.json["keep_all_peak_bytes"])
        self.assertEqual(highest, max(self.json["timeline"]["bytes"]))
        self.assertEqual(self.script("const {min, max} = document.querySelector(arguments[0]).plot.scales.y;"
                                     "return min === 0 && max > arguments[1]", CHART, highest), True)

    def test_the_chart_is_drawn(self):
        colours = self.script("""
          const canvas = document.querySelector(arguments[0] + ' canvas');
          const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
          const found = {};
          for (let i = 0; i < pixels.length; i += 4) found[[pixels[i], pixels[i + 1], pixels[i + 2]]] = 1 + (found[[pixels[i], pixels[i + 1], pixels[i + 2]]] ?? 0);
          return found;""", CHART)
        def drawn(role):
            value = self.script("return getComputedStyle(document.documentElement).getPropertyValue('--' + arguments[0])", role)
            return colours.get(",".join(str(int(value.strip()[i:i + 2], 16)) for i in (1, 3, 5)), 0)
        self.assertGreater(drawn("activation"), 10000)
        self.assertGreater(drawn("param"), 1000)

    def test_dragging_zooms_and_a_double_click_shows_all(self):
        low, high = self.shown()
        over = self.find(CHART + " .u-over")
        ActionChains(self.driver).move_to_element_with_offset(over, -200, 0).click_and_hold() \
            .move_by_offset(300, 0).release().perform()
        zoomed = self.shown()
        self.assertGreater(zoomed[0], low)
        self.assertLess(zoomed[1], high)
        self.assertTrue(self.find(CHART + " .reset").is_displayed())
        ActionChains(self.driver).double_click(over).perform()
        self.assertEqual(self.shown(), (low, high))

    def test_keys_zoom_and_move(self):
        low, high = self.shown()
        chart = self.find(CHART)
        self.press(chart, "+")
        self.assertAlmostEqual(self.shown()[1] - self.shown()[0], (high - low) / 2, delta=(high - low) / 20)
        self.press(chart, "0")
        self.assertEqual(self.shown(), (low, high))
        self.press(chart, Keys.HOME)
        first = self.find(CHART + " .tip").text
        self.assertIn(self.json["ops"]["name"][0], first)
        self.press(chart, Keys.ARROW_RIGHT)
        self.assertIn(self.json["ops"]["name"][1], self.find(CHART + " .tip").text)

    def test_hovering_says_op_layer_and_bytes(self):
        """In the second half of an op the next one was said: its start is nearer."""
        ops = self.json["ops"]
        longest = max(range(len(ops["name"])), key=lambda op: ops["time_ns"][op])
        for part in [0.2, 0.8]:
            hover(self, CHART, sum(ops["time_ns"][:longest]) + part * ops["time_ns"][longest])
            tip = self.find(CHART + " .tip").text
            self.assertEqual(tip.split("\n")[0], ops["name"][longest])
            for text in [ops["layer"][longest], "resident", "activation"]:
                self.assertIn(text, tip)

    def bytes_shown(self):
        """By role, the bytes that the chart's areas have at every op: those of an area less those of the one below."""
        return self.script("""
          const {series, data} = document.querySelector(arguments[0]).plot;
          const areas = series.flatMap((each, i) => (each.area && each.show ? [[each.label, data[i]]] : []));
          return Object.fromEntries(areas.map(([label, column], i) =>
            [label, [...column].slice(0, -1).map((value, at) => value - (areas[i + 1]?.[1][at] ?? 0))]));""", CHART)

    def test_a_role_that_is_hidden_leaves_its_bytes_to_none(self):
        """The role above it took them over: areas are sums."""
        by_role = {role.replace("_", " "): bytes if isinstance(bytes, list) else self.json["op_count"] * [bytes]
                   for role, bytes in self.json["timeline"]["by_role"].items()}
        self.assertEqual(self.bytes_shown(), by_role)
        top = self.script("return document.querySelector(arguments[0]).plot.scales.y.max", CHART)
        def legend(role):
            return self.find(f"{CHART} .u-legend th[aria-label='Show or hide {role}']")
        def hidden(*roles):
            self.assertEqual(self.bytes_shown(), {role: bytes for role, bytes in by_role.items() if role not in roles})
            self.assertEqual(self.script("return document.querySelector(arguments[0]).plot.scales.y.max", CHART), top)
        legend("activation").click()
        hidden("activation")
        self.press(legend("param"), Keys.ENTER)
        hidden("activation", "param")
        # And drawn: what is left begins at the lower edge.
        self.press(legend("activation"), " ")
        hidden("param")
        legend("param").click()
        hidden()

    def test_tables_sort(self):
        by_time = sorted(self.json["ops"]["time_ns"], reverse=True)
        names = dict(zip(self.json["ops"]["name"], self.json["ops"]["time_ns"]))
        self.assertEqual([names[name] for name in self.column("ops", 2)], by_time[:100])
        button = self.find("[data-table='ops'] th:nth-child(6) button")
        self.press(button, Keys.ENTER)  # the other way round, by the keyboard
        self.assertEqual([names[name] for name in self.column("ops", 2)], by_time[::-1][:100])
        self.assertEqual(self.find("[data-table='ops'] th:nth-child(6)").get_attribute("aria-sort"), "ascending")
        self.find("[data-table='ops'] th:nth-child(2) button").click()
        self.assertEqual(self.column("ops", 2), sorted(self.json["ops"]["name"])[:100])

    def test_tables_search(self):
        self.find("[data-table='ops'] input[type=search]").send_keys("layer1.0 Conv")
        expected = [name for name, kind, layer in zip(*(self.json["ops"][key] for key in ("name", "kind", "layer")))
                    if "layer1.0" in layer and ("conv" in name or "conv" in kind or "conv" in layer)]
        self.assertEqual(sorted(self.column("ops", 2)), sorted(expected))
        self.assertIn(f"{len(expected)} of {self.json['op_count']}", self.find("[data-table='ops'] .count").text)

    def test_more_rows_are_shown_when_asked_for(self):
        self.assertEqual(len(self.column("ops", 2)), 100)
        self.find("[data-table='ops'] .more button").click()
        self.assertEqual(len(self.column("ops", 2)), self.json["op_count"])

    def test_the_table_of_ops_can_follow_the_zoom(self):
        self.press(self.find(CHART), "+", "+", "+")
        self.find("[data-table='ops'] input[type=checkbox]").click()
        rows = int(self.find("[data-table='ops'] .count").text.split()[0])
        self.assertLess(rows, self.json["op_count"] / 4)
        self.assertGreater(rows, 0)
        self.press(self.find(CHART), "0")
        self.assertIn(str(self.json["op_count"]), self.find("[data-table='ops'] .count").text)

    def test_layers_have_the_numbers_of_the_json(self):
        names = [row["name"] for row in sorted(self.json["by_layer"], key=lambda row: -row["peak_bytes"])]
        self.assertEqual(self.column("layers", 1), names)
        keys = {"At the peak": "peak_bytes", "Forward": "forward_ns", "Backward": "backward_ns", "Ops": "ops",
                "Created": "created_bytes", "Saved": "saved_bytes", "Idle": "idle_ns", "To make again": "remake_ns",
                "Won per ms": "saved_bytes_per_ms", "First use forward": "first_forward_use",
                "Last use backward": "last_backward_use"}
        by_name = {row["name"]: row for row in self.json["by_layer"]}
        empty = {"created_bytes", "saved_bytes", "idle_ns", "remake_ns"}  # where there is none
        for name, shown in zip(names, self.cells("layers", *keys)):
            self.assertEqual(shown, [by_name[name][key] or (None if key in empty else by_name[name][key])
                                     for key in keys.values()], name)

    def test_ops_and_kinds_have_the_numbers_of_the_json(self):
        self.show_all_rows()
        ops = self.json["ops"]
        keys = {"Time": "time_ns", "Workspace": "workspace_bytes", "Created": "created_bytes", "Saved": "saved_bytes",
                "Idle": "idle_ns", "To make again": "remake_ns", "First use backward": "first_backward_use"}
        rows = self.cells("ops", "#", "Resident", *keys)
        self.assertEqual(sorted(row[0] for row in rows), list(range(self.json["op_count"])))
        for number, resident, *shown in rows:
            self.assertEqual(resident, self.json["timeline"]["bytes"][number])
            self.assertEqual([value or 0 for value in shown], [ops[key][number] or 0 for key in keys.values()])
        kinds = {row["name"]: row for row in self.json["by_kind"]}
        for name, (time, count, peak) in zip(self.column("kinds", 1), self.cells("kinds", "Time", "Ops", "At the peak")):
            row = kinds[name]
            self.assertEqual((time, count, peak), (row["forward_ns"] + row["backward_ns"] + row["optimizer_ns"], row["ops"],
                                                   row["peak_bytes"]))


def hover(test, chart, time):
    """Moves the mouse over a chart to a moment of the step."""
    over = test.find(chart + " .u-over")
    left = test.script("return document.querySelector(arguments[0]).plot.valToPos(arguments[1], 'x')", chart, time)
    ActionChains(test.driver).move_to_element_with_offset(over, round(left - over.size["width"] / 2), 0).perform()


class KeyboardTest(PageTest):
    """The cursor of a chart by the keyboard, in graphs that are hard for it."""

    def tip(self):
        return self.find(CHART + " .tip").text.split("\n")[0]

    def test_runs_that_start_at_the_same_time_are_passed_one_by_one(self):
        """The cursor stuck at the first or the last of ops that take no time: it was where the next one was, too."""
        lines = ["remat-graph 1", "external x 8 input"]
        for i in range(9):
            lines.append(f"op f{i} forward kind=k time_ns={0 if 2 <= i <= 6 else 50} reads={f'a{i - 1}' if i else 'x'} creates=a{i}:{8 + i}")
        self.opened(self.make("\n".join([*lines, "output a8"]) + "\n") / "profile.html")
        chart = self.find(CHART)
        self.press(chart, Keys.HOME)
        seen = [self.tip()]
        for _ in range(8):
            self.press(chart, Keys.ARROW_RIGHT)
            seen.append(self.tip())
        self.assertEqual(seen, [f"f{i}" for i in range(9)])
        for i in reversed(range(8)):
            self.press(chart, Keys.ARROW_LEFT)
            self.assertEqual(self.tip(), f"f{i}")
        self.no_errors()

    def test_the_cursor_is_not_lost_where_the_zoomed_range_ends(self):
        json = self.opened(self.make(self.graphs / "resnet18.graph") / "profile.html")
        names = json["ops"]["name"]
        chart = self.find(CHART)
        self.press(chart, Keys.HOME, "+", "+", "+", "+")
        width = float(chart.get_attribute("data-to")) - float(chart.get_attribute("data-from"))
        self.assertEqual(self.tip(), names[0])
        for i in range(1, 60):
            self.press(chart, Keys.ARROW_RIGHT)
            self.assertEqual(self.tip(), names[i])
            low, high = float(chart.get_attribute("data-from")), float(chart.get_attribute("data-to"))
            self.assertTrue(low <= sum(json["ops"]["time_ns"][:i]) <= high, "the range follows the cursor")
            self.assertAlmostEqual(high - low, width, delta=1)
        self.assertGreater(low, 0)
        self.press(chart, "-")
        self.assertEqual(self.tip(), names[59])
        self.press(chart, Keys.HOME)
        self.assertEqual(self.tip(), names[0])
        self.press(chart, Keys.END, "0")
        self.assertEqual(self.tip(), names[-1])
        self.no_errors()


class UpdatePageTest(PageTest):
    """A step with its update inside, as `--optimizer adamw` has it."""

    def test_the_update_is_shaded_and_has_a_column(self):
        json = self.opened(self.make(self.graphs / "gpt2_small_adamw.graph", "60%", "keep_all") / "profile.html")
        ops = json["ops"]
        starts, now = [], 0
        for time in ops["time_ns"]:
            starts.append(now)
            now += time
        updates = [i for i, phase in enumerate(ops["phase"]) if phase == "optimizer"]
        ranges = self.script("return document.querySelector(arguments[0]).phases", CHART)
        self.assertEqual([each["phase"] for each in ranges], ["forward", "backward", "optimizer"])
        self.assertEqual((ranges[-1]["from"], ranges[-1]["to"]), (starts[updates[0]], now))
        self.assertEqual(ranges[0]["from"], 0)
        # It is drawn in its own colour: between what is stacked and the upper edge.
        pixel = self.script("""
          const {plot} = document.querySelector(arguments[0]);
          const at = [plot.valToPos(arguments[1], "x", true), plot.bbox.top + plot.bbox.height * 0.02];
          return [...plot.ctx.getImageData(...at.map(Math.round), 1, 1).data].join();""", CHART, (starts[updates[0]] + now) / 2)
        backward = self.script("""
          const {plot} = document.querySelector(arguments[0]);
          const at = [plot.valToPos(arguments[1], "x", true), plot.bbox.top + plot.bbox.height * 0.02];
          return [...plot.ctx.getImageData(...at.map(Math.round), 1, 1).data].join();""", CHART,
                               (ranges[1]["from"] + ranges[1]["to"]) / 2)
        self.assertNotEqual(pixel, backward)
        self.assertNotEqual(pixel.split(",")[3], "0")
        # Not a part of backward.
        rows = self.cells("layers", "Forward", "Backward", "Update", "Time")
        for forward, backward_ns, update, time in rows:
            self.assertEqual(forward + backward_ns + update, time)
        self.assertEqual(sum(row[2] for row in rows), sum(ops["time_ns"][i] for i in updates))
        self.no_errors()


if __name__ == "__main__":
    browser.main()
