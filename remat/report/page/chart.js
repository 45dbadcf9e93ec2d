// SPDX-License-Identifier: Apache-2.0
// Charts over the step or over any other range, by uPlot: zoom by dragging, and by keys.

const hasCharts = typeof uPlot !== "undefined";

function chartColours() {
  return { ink: colour("--ink"), faint: colour("--faint"), rule: colour("--rule"), paper: colour("--card") };
}

// `options` are uPlot's, without width and colours of axes; `data` its columns. `describe(i, plot)` has lines
// of text for the i-th point, shown beside the cursor and read out; none, nothing is shown. `steps`: a point holds
// until the next one begins; otherwise the cursor is at the nearest. `height` in pixels. `climb(plot, up, i)`: what the
// keys up and down do at the i-th point, if anything. `root.plot` is uPlot's object; an event "zoom" says that
// data-from and data-to, the range that is shown, have changed.
function chart(label, options, data, { describe = null, height = 280, keys = true, climb = null, steps = false } = {}) {
  if (!hasCharts) {
    return el("p", { class: "no-chart" },
      "There is no chart here: uPlot could not be had when this copy of remat was built. The numbers are below.");
  }
  const tip = el("div", { class: "tip", role: "status", hidden: true });
  const reset = el("button", { type: "button", class: "reset", hidden: true }, "Whole range");
  const host = el("div", { class: "plot" });
  const root = el("figure", { class: "chart", "data-chart": label, tabindex: keys ? 0 : null, "aria-label": label + (keys
    ? `. ${climb ? "All four arrow" : "Arrow"} keys move the cursor, plus and minus zoom, zero shows all.` : "") }, host, reset, tip);
  const x = data[0];
  const pointer = new Pointer(x, steps);
  const whole = () => [x[0] ?? 0, x[x.length - 1] ?? 1];
  const axis = (more) => ({
    stroke: () => chartColours().faint, font: "12px system-ui, sans-serif",
    grid: { stroke: () => chartColours().rule, width: 1 }, ticks: { stroke: () => chartColours().rule, width: 1 },
    ...more,
  });
  const showTip = (u) => {
    const i = pointer.at(u);
    const lines = describe && i !== null ? describe(i, u) : [];
    tip.hidden = lines.length === 0;
    if (tip.hidden) return;
    tip.replaceChildren(...lines.map((text, n) => el(n ? "div" : "strong", {}, text)));
    const left = u.over.offsetLeft + u.cursor.left;
    const flip = left > root.clientWidth / 2;
    tip.style.left = flip ? "auto" : `${left + 14}px`;
    tip.style.right = flip ? `${root.clientWidth - left + 14}px` : "auto";
    tip.style.top = `${u.over.offsetTop + 8}px`;
  };
  const plot = new uPlot({
    width: 800, height,
    ...options,
    legend: { live: false, ...options.legend },
    scales: { x: { time: false, ...options.scales?.x }, y: { ...options.scales?.y } },
    axes: (options.axes ?? [{}, {}]).map(axis),
    cursor: { drag: { x: true, y: false }, points: { size: 7 }, ...options.cursor },
    hooks: {
      ...options.hooks,
      setCursor: [showTip, ...(options.hooks?.setCursor ?? [])],
      setScale: [(u, scale) => {
        if (scale !== "x") return;
        const [low, high] = whole();
        reset.hidden = u.scales.x.min <= low && u.scales.x.max >= high;
        root.dataset.from = u.scales.x.min;
        root.dataset.to = u.scales.x.max;
        root.dispatchEvent(new Event("zoom"));
      }, ...(options.hooks?.setScale ?? [])],
    },
  }, data, host);
  const showAll = () => { const [min, max] = whole(); plot.setScale("x", { min, max }); };
  reset.addEventListener("click", showAll);
  root.addEventListener("keydown", (event) => keys && moveByKey(plot, pointer, climb, event));
  finishLegend(plot);
  const fit = () => {
    const width = Math.floor(host.getBoundingClientRect().width);
    if (width > 0) plot.batch(() => plot.setSize({ width, height }));
  };
  drawings.add(fit);
  new ResizeObserver(fit).observe(host);
  root.plot = plot;
  return root;
}

const byteAxis = { size: 76, values: (u, splits) => splits.map((value) => formatBytes(value)), incrs: byteSteps() };
const timeAxis = { values: (u, splits) => splits.map((value) => formatNs(value)) };

// Round numbers of bytes: 1, 2, 4, ... of each unit.
function byteSteps() {
  const steps = [];
  for (let step = 1; step < 2 ** 50; step *= 2) steps.push(step);
  return steps;
}
