# SPDX-License-Identifier: Apache-2.0
"""The page of a plan.   plan_page_test.py MAKE_PAGES GRAPHS_DIR"""

import pathlib
import time

import browser
from browser import ActionChains, Keys, PageTest, WebDriverWait


class PlanPageTest(PageTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.page = cls.make(cls.graphs / "resnet50.graph", "50%", "mutwo") / "plan.html"

    def setUp(self):
        self.json = self.opened(self.page)
        self.planned = self.json["schedules"]["planned"]

    def tearDown(self):
        self.no_errors()

    def exact(self, selector):
        return [int(text) for text in self.script(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.dataset.exact)", selector)]

    def now(self):
        return float(self.find(".animation").get_attribute("data-now"))

    def test_the_page_holds_the_json(self):
        self.assertEqual(self.script("return JSON.parse(document.getElementById('data').textContent)"), self.json)

    def test_the_figures_are_those_of_the_json(self):
        figures = self.exact(".figures dd[data-exact]")
        for key in ["budget_bytes", "keep_all_peak_bytes", "peak_bytes", "time_ns", "floor_bytes"]:
            self.assertIn(self.json[key], figures, key)

    def test_both_curves_reach_their_peaks_on_the_same_axes(self):
        most = self.script("""
          const {data} = document.querySelector("[data-chart='before and after']").plot;
          return data.slice(1).map((column) => column.reduce((most, value) => Math.max(most, value ?? 0), 0));""")
        # Everything kept, planned, budget.
        self.assertEqual(most, [self.json["keep_all_peak_bytes"], self.json["peak_bytes"], self.json["budget_bytes"]])
        phases = self.script("return document.querySelector(`[data-chart='before and after']`).phases")
        self.assertEqual((phases[0]["phase"], phases[0]["from"], phases[-1]["to"]), ("forward", 0, self.json["time_ns"]))
        axes = self.script("""
          return ["everything kept, by role", "planned, by role"].map((name) => {
            const {x, y} = document.querySelector(`[data-chart='${name}']`).plot.scales;
            return [x.min, x.max, y.min, y.max];
          });""")
        self.assertEqual(axes[0], axes[1])

    def test_the_animation_plays_and_stops(self):
        play = self.find(".animation .play")
        play.click()
        self.assertEqual(play.get_attribute("aria-pressed"), "true")
        WebDriverWait(self.driver, 30).until(lambda driver: self.now() > 0)
        before = self.now()
        WebDriverWait(self.driver, 30).until(lambda driver: self.now() > before)
        play.click()
        self.assertEqual(play.get_attribute("aria-pressed"), "false")
        stopped = self.now()
        time.sleep(0.2)
        self.assertEqual(self.now(), stopped)

    def test_the_slider_shows_any_moment(self):
        slider = self.find(".animation input[type=range]")
        for at in [0.0, 0.37, 0.5, 1.0]:
            self.script("arguments[0].value = arguments[1] * arguments[0].max;"
                        "arguments[0].dispatchEvent(new Event('input'))", slider, at)
            now = self.now()
            memory = self.exact(".counters > div:nth-child(1) dd")
            for schedule, shown in zip(["keep_all", "every_k", "planned"], memory):
                self.assertEqual(shown, self.bytes_at(self.json["schedules"][schedule], now), (schedule, at))
        # At the end: the peaks, the times and the recomputations of the whole step.
        schedules = [self.json["schedules"][key] for key in ["keep_all", "every_k", "planned"]]
        self.assertEqual(self.exact(".counters > div:nth-child(2) dd"), [each["peak_bytes"] for each in schedules])
        self.assertEqual(self.exact(".counters > div:nth-child(3) dd"), [each["time_ns"] for each in schedules])
        self.assertEqual(self.exact(".counters > div:nth-child(4) dd"),
                         [len(each["op"]) - self.json["op_count"] for each in schedules])
        self.assertEqual(self.exact(".counters > div:nth-child(4) dd")[2], self.json["recomputed_ops"])

    def bytes_at(self, schedule, now):
        start, at = 0, 0
        for i, op in enumerate(schedule["op"]):
            if start <= now:
                at = i
            start += self.json["ops"]["time_ns"][op]
        return schedule["bytes"][at]

    def test_keys_play_and_move(self):
        slider = self.find(".animation input[type=range]")
        self.press(slider, Keys.HOME)
        self.assertEqual(self.now(), 0)
        self.press(slider, Keys.ARROW_RIGHT)
        self.assertGreater(self.now(), 0)
        self.press(slider, Keys.END)
        self.assertEqual(self.now(), max(each["time_ns"] for each in self.json["schedules"].values()))
        self.press(slider, " ")  # from the beginning again
        self.assertEqual(self.find(".animation .play").get_attribute("aria-pressed"), "true")
        self.press(slider, " ")
        self.assertEqual(self.find(".animation .play").get_attribute("aria-pressed"), "false")

    def resident(self, schedule, now):
        """By the JSON: the ops of which something is in memory, and the one that runs, after `now` ns."""
        held, start = set(), 0
        for op, emptied in zip(schedule["op"], schedule["emptied"]):
            held.add(op)
            if start + self.json["ops"]["time_ns"][op] > now:
                return held
            held.difference_update(emptied)
            start += self.json["ops"]["time_ns"][op]
        return held

    def test_filled_dots_are_what_is_in_memory(self):
        schedules = [self.json["schedules"][key] for key in ["keep_all", "every_k", "planned"]]
        for part in [0.0, 0.31, 0.62, 0.87, 1.0]:
            now = self.script("const root = document.querySelector('.animation'); root.show(arguments[0] * root.end);"
                              "return Number(root.dataset.now)", part)
            # What the dots are drawn from, and the colour in the middle of each: that of a filled one, or not.
            shown = self.script("""
              const style = getComputedStyle(document.documentElement);
              const filled = ["--planned", "--again"].map((name) => style.getPropertyValue(name).trim())
                .map((hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join());
              return document.querySelector(".animation").panels.map((panel) => {
                const {x, y, pitch} = panel.dots;
                const {width, height} = panel.canvas;
                const {data} = panel.canvas.getContext("2d").getImageData(0, 0, width, height);
                // A little beside the middle, where a dot that is not filled does not reach.
                const at = (op) => (Math.floor(y[op]) * width + Math.floor(x[op] + 0.27 * pitch)) * 4;
                return [[...panel.residency.held].flatMap((held, op) => (held || op === panel.run.op[panel.current] ? [op] : [])),
                  [...x].flatMap((_, op) => (filled.includes([0, 1, 2].map((i) => data[at(op) + i]).join()) ? [op] : [])), pitch];
              });""")
            for schedule, (held, drawn, pitch) in zip(schedules, shown):
                expected = self.resident(schedule, now)
                self.assertEqual(set(held), expected, part)
                self.assertGreater(pitch, 4)
                # The ring around the op that runs, and the edge of a dot, may be where a pixel is looked at.
                self.assertLess(len(expected.symmetric_difference(drawn)), 12, part)
        self.assertGreater(len(self.resident(schedules[2], 10 ** 18)), 100, "gradients are left")

    def test_keys_go_from_dot_to_dot(self):
        canvas = self.find(".dots canvas")
        self.press(canvas, Keys.HOME)
        self.assertIn(self.json["ops"]["name"][0], self.find(".dots .tip").text)
        self.assertIn(self.json["ops"]["layer"][0], self.find(".dots .tip").text)
        seen = {self.find(".dots .tip").text}
        for key in [Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ARROW_RIGHT, Keys.ARROW_UP]:
            self.press(canvas, key)
            seen.add(self.find(".dots .tip").text)
        self.assertGreater(len(seen), 3)
        self.press(canvas, Keys.ESCAPE)
        self.assertFalse(self.find(".dots .tip").is_displayed())

    def test_tables_have_the_numbers_of_the_json(self):
        self.show_all_rows()
        keys = {"Kept": "kept_values", "Bytes kept": "kept_bytes", "Made again": "recomputed_values",
                "Bytes won": "recomputed_bytes", "Ops run again": "recomputed_ops", "Extra time": "extra_ns"}
        layers = {row["layer"]: row for row in self.json["layers"]}
        names = self.texts("[data-table='layers'] tbody td:nth-child(1)")
        self.assertEqual(sorted(names), sorted(layers))
        for name, shown in zip(names, self.cells("layers", *keys)):
            self.assertEqual(shown, [layers[name][key] for key in keys.values()])
        values = {row: i for i, row in enumerate(self.json["values"]["storage"])}
        names = self.texts("[data-table='values'] tbody td:nth-child(1)")
        self.assertEqual(sorted(names), sorted(values))
        for name, shown in zip(names, self.cells("values", "Bytes", "Times again")):
            self.assertEqual(shown, [self.json["values"][key][values[name]] for key in ("bytes", "recomputes")])

    def test_a_layer_opens_to_its_values_and_reasons(self):
        layer = next(row for row in self.json["layers"] if row["recomputed_values"] > 0 and row["kept_values"] > 0)
        self.find("[data-table='layers'] input[type=search]").send_keys(layer["layer"])
        row = self.find("[data-table='layers'] tbody button")
        self.press(row, Keys.ENTER)
        self.assertEqual(row.get_attribute("aria-expanded"), "true")
        reasons = self.texts("[data-table='layers'] .reasons li")
        values = self.json["values"]
        expected = [reason for reason, where in zip(values["reason"], values["layer"]) if where == layer["layer"]]
        self.assertEqual([text.split(" ", 2 if text.startswith("made") else 1)[-1] for text in reasons], expected)
        self.press(row, Keys.ENTER)
        self.assertEqual(self.find_all("[data-table='layers'] .reasons"), [])
        self.find("[data-table='layers'] tbody td:nth-child(3)").click()  # anywhere in the row
        self.assertEqual(len(self.find_all("[data-table='layers'] .reasons")), 1)

    def test_rows_are_one_tab_stop_and_the_arrow_keys_go_from_row_to_row(self):
        table = "[data-table='values'] "
        names = self.texts(table + "tbody button")
        self.assertEqual(len(names), 100)
        self.press(self.find(table + ".scroll"), *8 * [Keys.TAB])  # over the heads of the columns
        focused = "return [document.activeElement.textContent, document.activeElement.getAttribute('aria-expanded')]"
        self.assertEqual(self.script(focused), [names[0], "false"])
        for key, name in [(Keys.ARROW_DOWN, names[1]), (Keys.ARROW_DOWN, names[2]), (Keys.ARROW_UP, names[1]),
                          (Keys.END, names[99]), (Keys.ARROW_DOWN, names[99]), (Keys.HOME, names[0])]:
            ActionChains(self.driver).send_keys(key).perform()
            self.assertEqual(self.script(focused)[0], name)
        ActionChains(self.driver).send_keys(Keys.ARROW_DOWN, " ").perform()
        self.assertEqual(self.script(focused), [names[1], "true"])
        self.assertEqual(len(self.find_all(table + "tr.detail")), 1)
        ActionChains(self.driver).send_keys(Keys.TAB).perform()  # out of the rows
        self.assertFalse(self.script("return document.activeElement.matches('.opens')"))
        # Only elements that may have it say whether they are open.
        self.assertEqual(self.script("return [...document.querySelectorAll('[aria-expanded]')].filter((e) => e.tagName !== 'BUTTON').length"), 0)

    def test_values_are_found(self):
        value = self.json["values"]["storage"][7]
        self.find("[data-table='values'] input[type=search]").send_keys(value)
        self.assertIn(value, self.texts("[data-table='values'] tbody td:nth-child(1)"))

    def test_the_arena_says_what_lies_where(self):
        chart = "[data-chart='arena']"
        arena = self.json["arena"]
        block = max(range(len(arena["op"])), key=lambda i: arena["bytes"][i] * (arena["to"][i] - arena["from"][i]))
        ActionChains(self.driver).move_to_element(self.find(chart + " .u-over")).perform()
        self.script("""
          const {plot} = document.querySelector(arguments[0]);
          const data = JSON.parse(document.getElementById('data').textContent);
          let now = 0;
          const start = data.schedules.planned.op.map((op) => { const at = now; now += data.ops.time_ns[op]; return at; });
          const [low, bytes, from, to] = arguments[1];
          plot.setCursor({left: plot.valToPos((start[from] + start[to]) / 2, 'x'), top: plot.valToPos(low + bytes / 2, 'y')});
          """, chart, [arena[key][block] for key in ("offset", "bytes", "from", "to")])
        tip = self.find(chart + " .tip").text
        self.assertIn(self.json["ops"]["name"][arena["op"][block]], tip)
        self.assertIn(arena["roles"][arena["role"][block]].replace("_", " "), tip)


    def test_the_arena_by_the_keyboard(self):
        chart = self.find("[data-chart='arena']")
        arena = self.json["arena"]
        self.press(chart, Keys.END, Keys.ARROW_LEFT)
        tips = []
        for _ in range(6):
            self.press(chart, Keys.ARROW_UP)
            tips.append(self.script("return arguments[0].querySelector('.tip').innerText", chart))
        self.assertGreater(len(set(tips)), 3)
        up = tips[-2]
        self.press(chart, Keys.ARROW_DOWN)
        self.assertEqual(self.script("return arguments[0].querySelector('.tip').innerText", chart), up)
        names = {self.json["ops"]["name"][op] for op in arena["op"]}
        self.assertTrue(all(tip.split("\n")[0] in names for tip in tips), tips)


class RunPageTest(PageTest):
    """A plan that was run: what was measured, and the methods beside each other."""

    def setUp(self):
        self.json = self.opened(self.make(self.graphs / "resnet18.graph", "60%", "mutwo") / "run.html")

    def test_measured_bytes_lie_over_the_predicted_ones(self):
        labels, most = self.script("""
          const {series, data} = document.querySelector("[data-chart='before and after']").plot;
          return [series.slice(1).map((each) => each.label),
            data.slice(1).map((column) => column.reduce((most, value) => Math.max(most, value ?? 0), 0))];""")
        self.assertEqual(labels, ["everything kept", "planned", "measured", "budget"])
        planned = self.json["schedules"]["planned"]
        self.assertTrue(all(a != b for a, b in zip(planned["bytes"], planned["measured_bytes"])), "or one could stand for the other")
        for number, key in [(2, "bytes"), (3, "measured_bytes")]:
            shown = dict(self.script("""
              const {data} = document.querySelector("[data-chart='before and after']").plot;
              return [...data[0]].map((x, i) => [x, data[arguments[0]][i]]).filter(([, y]) => y !== null && y !== undefined);""", number))
            expected, now = {}, 0
            for op, bytes in zip(planned["op"], planned[key]):
                expected[now] = max(bytes, expected.get(now, 0))  # of runs that start at once
                now += self.json["ops"]["time_ns"][op]
            expected[now] = list(expected.values())[-1]
            self.assertEqual(shown, expected, key)
        self.assertEqual(most, [self.json["keep_all_peak_bytes"], self.json["predicted_peak_bytes"],
                                max(self.json["schedules"]["planned"]["measured_bytes"]), self.json["budget_bytes"]])

    def test_figures(self):
        figures = self.script("return [...document.querySelectorAll('.figures dd[data-exact]')].map((e) => Number(e.dataset.exact))")
        for key in ["budget_bytes", "keep_all_peak_bytes", "measured_peak_bytes", "floor_bytes"]:
            self.assertIn(self.json[key], figures, key)
        text = self.script("return document.querySelector('.figures').textContent")
        for words in ["as predicted, to the byte", "1.050×", "Same bits", "gradients ✓"]:
            self.assertIn(words, text)

    def test_the_methods(self):
        self.assertEqual(self.texts("[data-table='methods'] tbody td:nth-child(1)"),
                         ["plain LibTorch", "auto", "mutwo", "every_k", "checkpoint"])
        self.assertEqual(self.texts("[data-table='methods'] tbody td:last-child"),
                         ["", "yes", "yes", "every_k: no plan fits </td><b>", "NO"])
        keys = {"Predicted peak": "predicted_peak_bytes", "Measured peak": "measured_peak_bytes", "Reserved": "reserved_bytes",
                "Step": "step_ns", "Time ratio": "time_ratio_to_eager"}
        plain, *others = self.cells("methods", *keys)
        self.assertEqual(plain, [None, self.json["eager_peak_bytes"], None, self.json["eager_step_ns"], 1])
        for shown, method in zip(others, [self.json, *self.json["compared"]]):
            self.assertEqual(shown, [method.get(key) for key in keys.values()])
        self.no_errors()


class MovesTest(PageTest):
    """A plan that packs m and r, of which b4 reads the packed bytes, and has a on a disk meanwhile."""

    GRAPH = pathlib.Path(__file__).parents[1] / "testing" / "packed_and_away.graph"

    def setUp(self):
        self.folder = self.make(self.GRAPH, "55%")
        self.json = self.opened(self.folder / "plan.html")
        self.planned = self.json["schedules"]["planned"]

    def tearDown(self):
        self.no_errors()

    def at(self, time):
        """The animation's panel of the plan at a moment: names of ops by what the dots show."""
        held, moved = self.script("""
          const root = document.querySelector(".animation");
          root.show(arguments[0]);
          const {residency} = root.panels[2];
          return [[...residency.held], [...residency.moved]];""", time)
        names = self.json["ops"]["name"]
        return ({names[op] for op, each in enumerate(held) if each},
                {names[op]: ["", "packed", "away"][each] for op, each in enumerate(moved) if each and not held[op]})

    def test_the_plan_is_what_the_tests_need(self):
        self.assertEqual((self.json["packed_values"], self.json["offloaded_values"], self.json["recomputed_ops"]), (2, 1, 0))
        self.assertEqual({kind for _, kind in self.planned["moves"]}, {"pack", "unpack", "offload", "prefetch"})

    def test_figures_and_tables(self):
        text = self.script("return document.querySelector('.figures').textContent")
        self.assertIn("0 ops run again, 2 values packed, 1 values on a disk", text)
        keys = {"Packed": "packed_values", "Bytes packed": "packed_bytes", "On a disk": "offloaded_values",
                "Bytes there": "offloaded_bytes", "Extra time": "extra_ns"}
        names = self.texts("[data-table='layers'] tbody td:nth-child(1)")
        layers = {row["layer"]: row for row in self.json["layers"]}
        for name, shown in zip(names, self.cells("layers", *keys)):
            self.assertEqual(shown, [layers[name][key] for key in keys.values()])
        self.assertEqual(sum(row["packed_values"] for row in layers.values()), 2)
        decisions = dict(zip(self.texts("[data-table='values'] tbody td:nth-child(1)"), self.texts("[data-table='values'] tbody td:nth-child(6)")))
        self.assertEqual(decisions, {"m": "packed", "a": "on a disk", "r": "packed"})

    def test_the_animation_shows_what_is_packed_and_what_is_away(self):
        self.assertIn("packed, or on a disk", self.texts(".animation .key li"))
        starts = self.planned["start_ns"]
        runs = [self.json["ops"]["name"][op] for op in self.planned["op"]]
        moves = dict(self.planned["moves"])
        first = {name: i for i, name in reversed(list(enumerate(runs))) if i not in moves}
        held, moved = self.at(starts[first["f5"]] + 1)
        self.assertEqual(moved, {"f1": "packed", "f2": "away", "f3": "packed"})
        self.assertFalse({"f1", "f2", "f3"} & held)
        held, moved = self.at(starts[first["b3"]] + 1)  # a is there again, r is needed no more
        self.assertIn("f2", held)
        self.assertEqual(moved, {"f1": "packed"})
        held, moved = self.at(starts[first["b2"]] + 1)
        self.assertIn("f1", held)
        self.assertEqual(moved, {})
        held, moved = self.at(self.planned["time_ns"])
        self.assertEqual((held, moved), ({"f5", "b2"}, {}), "the outputs are left")

    def test_charts_say_what_is_moved(self):
        chart = self.find("[data-chart='planned, by role']")
        self.press(chart, Keys.HOME)
        said = []
        for _ in self.planned["op"]:
            said.append(self.script("return arguments[0].querySelector('.tip strong').textContent", chart))
            self.press(chart, Keys.ARROW_RIGHT)
        runs = [self.json["ops"]["name"][op] for op in self.planned["op"]]
        moves = dict(self.planned["moves"])
        self.assertEqual(said, [f"{moves[i]} what {name} made" if i in moves else name for i, name in enumerate(runs)])

    def test_the_arena_has_no_block_of_what_is_away(self):
        arena = self.json["arena"]
        sizes = [bytes for bytes, op in zip(arena["bytes"], arena["op"]) if self.json["ops"]["name"][op] == "f2"]
        self.assertEqual(sorted(sizes), [512, 102400, 102400])  # workspace, before and after
        sizes = [bytes for bytes, op in zip(arena["bytes"], arena["op"]) if self.json["ops"]["name"][op] == "f1"]
        self.assertEqual(sorted(sizes), [2048, 65536, 65536])

    def test_other_pages(self):
        for page in ["profile", "run"]:
            self.opened(self.folder / f"{page}.html")


class InfeasiblePlanTest(PageTest):
    def test_it_says_so(self):
        page = self.make(self.graphs / "mlp.graph", "1B", "every_k") / "plan.html"
        self.assertFalse(self.opened(page)["feasible"])
        self.assertIn("No plan fits", self.find(".lead").text)


if __name__ == "__main__":
    browser.main()
