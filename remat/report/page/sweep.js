// SPDX-License-Identifier: Apache-2.0
// What other batch sizes and budgets would need and cost.

// Told apart by colour, by dashes and by shapes.
const strategyLines = {
  keep_all: { dash: [2, 4], shape: "bar" }, recompute_all: { dash: [12, 4], shape: "wedge" },
  every_k: { dash: [9, 3, 2, 3], shape: "square" }, selective: { dash: [5, 5], shape: "triangle" },
  mutwo: { dash: [], shape: "diamond" }, chain_dp: { dash: [14, 3, 2, 3, 2, 3], shape: "square" },
  pack_only: { dash: [10, 3], shape: "plus" }, offload_only: { dash: [3, 3, 10, 3], shape: "beam" },
  search: { dash: [7, 3], shape: "triangle" }, optimal: { dash: [2, 2], shape: "diamond" },
  auto: { dash: [], shape: "circle", width: 3, size: 10 },
};
const strategyVariable = (name) => (strategyLines[name] ? "--" + name.replace("_", "-") : "--plain");

// The columns of a chart over the batch sizes. They stand at 0, 1, 2, ...; there is room for half a bar at
// either end.
function batchColumns(points, ...values) {
  const at = [-1, ...points.map((_, i) => i), points.length];
  return [at, ...values.map((value) => [null, ...points.map(value), null])];
}

function batchAxis(points) {
  return { splits: () => points.map((_, i) => i), values: () => points.map((point) => point.batch), label: "Batch size",
    labelSize: 22, labelFont: "12px system-ui, sans-serif", grid: { show: false } };
}

// Without the memory for the plain step, nothing was captured that could be planned.
function whyNot(point, key) {
  if (point[key + "_fits"]) return "";
  return key === "planned" && point.plain_estimated ? "not tried" : "does not fit";
}

function batchTip(points) {
  return (i) => {
    const point = points[Math.max(0, Math.min(points.length - 1, i - 1))];
    const step = (name, key) => {
      const bytes = point[key + "_peak_bytes"];
      const ns = point[key + "_step_ns"];
      const rate = point[key + "_samples_per_second"];
      return [name + ": " + (bytes === null ? "" : formatBytes(bytes)), ns ? formatNs(ns) : "",
        rate ? rate.toFixed(1) + "/s" : "", whyNot(point, key)].filter(Boolean).join(", ");
    };
    return [`Batch size ${point.batch}`, step("plain", "plain"), step("planned", "planned"), point.fault].filter(Boolean);
  };
}

// Where the limit lies far above: at the upper edge, with an arrow.
function markFarLimit(limit) {
  return (u) => {
    const { left, top, width } = u.bbox;
    const dpr = devicePixelRatio;
    u.ctx.save();
    u.ctx.strokeStyle = u.ctx.fillStyle = colour("--budget");
    u.ctx.lineWidth = 2 * dpr;
    u.ctx.setLineDash([8 * dpr, 5 * dpr]);
    u.ctx.beginPath();
    u.ctx.moveTo(left, top + dpr);
    u.ctx.lineTo(left + width, top + dpr);
    u.ctx.stroke();
    u.ctx.font = `600 ${12 * dpr}px system-ui, sans-serif`;
    u.ctx.textAlign = "right";
    u.ctx.textBaseline = "top";
    u.ctx.fillText(`limit ${formatBytes(limit)}, far above ↑`, left + width - 6 * dpr, top + 6 * dpr);
    u.ctx.restore();
  };
}

const barPart = 0.4;
const widestBar = 90;

// A cross over what does not fit; of what was not tried there is no bar.
function markMisfits(points) {
  return (u) => {
    u.ctx.save();
    u.ctx.fillStyle = colour("--budget");
    u.ctx.textAlign = "center";
    u.ctx.font = `bold ${14 * devicePixelRatio}px system-ui, sans-serif`;
    // The middle of a bar, as peakChart has them: a part of their column, but no wider than that.
    const offset = Math.min(barPart * u.bbox.width / (points.length + 1), widestBar * devicePixelRatio) / 2;
    const mark = (i, bytes, side) =>
      u.ctx.fillText("✕", u.valToPos(i, "x", true) + side * offset, u.valToPos(bytes ?? 0, "y", true) - 5 * devicePixelRatio);
    points.forEach((point, i) => {
      if (!point.plain_fits) mark(i, point.plain_peak_bytes, -1);
      if (!point.planned_fits && !point.plain_estimated) mark(i, point.planned_peak_bytes, 1);
    });
    u.ctx.restore();
  };
}

function peakChart(data) {
  const points = data.batches;
  const most = largest(points.flatMap((point) => [point.plain_peak_bytes ?? 0, point.planned_peak_bytes ?? 0]));
  const near = data.limit_bytes <= 3 * most;
  const bar = (label, variable, align) => ({ label, variable, area: true, fill: () => colour(variable), stroke: () => colour(variable), width: 0,
    paths: hasCharts ? uPlot.paths.bars({ size: [barPart, widestBar], align, gap: 2 }) : null, points: { show: false } });
  const columns = batchColumns(points, (point) => point.plain_peak_bytes, (point) => point.planned_peak_bytes);
  const series = [{}, bar("plain", "--plain", -1), bar("planned", "--planned", 1)];
  if (near) {
    columns.push(columns[0].map(() => data.limit_bytes));
    series.push(line("limit", "--budget", { dash: [8, 5] }));
  }
  const top = 1.18 * Math.max(most, near ? data.limit_bytes : 0, 1);
  return [chart("Peak against batch size", { series, axes: [batchAxis(points), byteAxis],
    scales: { y: { range: [0, top] } },
    hooks: { draw: [markMisfits(points), ...(near ? [] : [markFarLimit(data.limit_bytes)])] } }, columns, { describe: batchTip(points) }),
    el("p", { class: "hint" }, `✕ does not fit into the limit${near ? "" : ` of ${formatBytes(data.limit_bytes)}`}.`),
    el("p", { class: "hint" }, "A plan was given half of what the plain step needs, or the limit where that is less, and its floor at least: " +
      "the column Budget in the table of batch sizes. Where no plan was found for that, it was given more, up to the limit."),
    ...points.filter((point) => point.fault).map((point) => el("p", { class: "hint" }, `Batch ${point.batch}: ${point.fault}.`))];
}

function batchLines(label, points, key, axis) {
  return chart(label, {
    series: [{}, line("plain", "--plain", { shape: "square", dash: [6, 4] }), line("planned", "--planned", { shape: "circle" })],
    axes: [batchAxis(points), axis], scales: { y: { range: (u, low, high) => [0, 1.1 * (high || 1)] } },
  }, batchColumns(points, (point) => point["plain_" + key], (point) => point["planned_" + key]),
  { describe: batchTip(points), height: 240 });
}

function frontierChart(data) {
  const points = data.frontier;
  const budgets = [...new Set(points.map((point) => point.budget_bytes))].sort((a, b) => a - b);
  const names = [...new Set(points.map((point) => point.strategy))];
  const at = new Map(points.map((point) => [point.strategy + " " + point.budget_bytes, point]));
  const ratio = (name, budget) => {
    const point = at.get(name + " " + budget);
    return point?.fits ? point.time_ratio : null;
  };
  const lines = names.map((name) => budgets.map((budget) => ratio(name, budget)));
  // One strategy that takes many times as long would press the others flat.
  const ends = lines.map((values) => largest(values.map((value) => value ?? 0))).filter((end) => end > 0).sort((a, b) => a - b);
  let most = ends.length ? ends[0] : 1;
  for (const end of ends) if (end <= 2 * most) most = end;
  const cut = ends.length > 0 && ends[ends.length - 1] > most;
  const least = Math.min(1, ...lines.flat().filter((value) => value !== null));
  const series = names.map((name) => line(name, strategyVariable(name), strategyLines[name] ?? { shape: "circle" }));
  const describe = (i) => [`Inside ${formatBytes(budgets[i])}`, ...names.map((name) => {
    const point = at.get(name + " " + budgets[i]);
    return `${name}: ` + (point?.fits ? formatChange(point.time_ratio, 1) : point ? "does not fit" : "not tried");
  })];
  return [chart("Time against budget", {
    series: [{}, ...series],
    axes: [{ values: (u, splits) => splits.map((value) => formatBytes(value)), incrs: byteSteps(), space: 90, label: "Budget",
      labelSize: 22, labelFont: "12px system-ui, sans-serif" }, { size: 80, values: (u, splits) => splits.map((value) => formatChange(value, 1)) }],
    scales: { y: { range: [least - 0.02, most + 0.06 * (most - least) + 0.01] } },
  }, [budgets, ...lines], { describe, height: 340 }),
  el("p", { class: "hint" }, "A curve ends where the strategy has no plan that fits." +
    (cut ? " What takes more than twice as long as the rest lies above the chart; the table has it." : ""))];
}

function batchTable(data) {
  const rate = (value) => value.toFixed(1);
  return dataTable("batches", [
    { key: "batch", title: "Batch", format: formatCount },
    { key: "plain_peak_bytes", title: "Plain peak", format: (bytes, row) => (row.plain_estimated ? "about " : "") + formatBytes(bytes), bar: true },
    { key: "plain_fits", title: "Fits", format: (fits, row) => whyNot(row, "plain") || "yes" },
    { key: "plain_step_ns", title: "Plain step", format: formatNs },
    { key: "plain_samples_per_second", title: "Samples/s", format: rate },
    { key: "floor_bytes", title: "Floor", format: formatBytes, help: "The least peak that a plan is known to reach" },
    { key: "planned_budget_bytes", title: "Budget", format: formatBytes, help: "What the plan was given" },
    { key: "planned_peak_bytes", title: "Planned peak", format: formatBytes, bar: true },
    { key: "planned_fits", title: "Fits", format: (fits, row) => whyNot(row, "planned") || "yes" },
    { key: "planned_step_ns", title: "Planned step", format: formatNs },
    { key: "planned_samples_per_second", title: "Samples/s", format: rate },
    { key: "recomputed_ops", title: "Run again", format: formatCount },
    { key: "fault", title: "Note", text: true },
  ], data.batches);
}

function frontierTable(data) {
  return dataTable("frontier", [
    { key: "strategy", title: "Strategy", text: true },
    { key: "budget_bytes", title: "Budget", format: formatBytes },
    { key: "fits", title: "Fits", format: (fits) => (fits ? "yes" : "no") },
    { key: "peak_bytes", title: "Peak", format: formatBytes, bar: true },
    { key: "step_ns", title: "Step", format: formatNs },
    { key: "time_ratio", title: "Over plain", format: (ratio) => formatChange(ratio, 1) },
    { key: "recomputed_ops", title: "Run again", format: formatCount },
  ], data.frontier);
}

pages.sweep = (data, main) => {
  const largest = (title, key) => {
    const batch = data[`largest_${key}_batch`];
    const estimated = data[`largest_${key}_estimated`];
    return [title, batch > 0 ? (estimated ? "≈ " : "") + formatCount(batch) : "none", !data.largest_searched ? "of those tried"
      : estimated ? "planned from the graphs of other sizes; remat fit proves it" : data.measured ? "it was run here" : "it was captured here", batch];
  };
  main.append(
    el("p", { class: "lead" }, data.measured
      ? `Measured: ${formatCount(data.steps)} real steps of each point, planned and plain by turns.`
      : "Planned: times are sums over the ops of a measured step, bytes those of the memory model. --measured runs the points.",
    data.interrupted ? " Interrupted: this is what there was by then." : ""),
    figures([
      largest("Largest batch, plain", "plain"),
      largest("Largest batch, planned", "planned"),
      // A share of a peak is not known before that.
      data.limit_bytes ? ["Limit", formatBytes(data.limit_bytes), data.limit_given ? "as given" : "what the machine has left", data.limit_bytes] : null,
    ]),
    data.next_reason ? el("p", { class: "lead" }, data.next_reason) : "");
  if (data.batches.length > 0) {
    main.append(
      section("Peak against batch size", ...peakChart(data)),
      section("Step time against batch size", batchLines("Step time against batch size", data.batches, "step_ns", { size: 70, ...timeAxis })),
      section("Samples per second against batch size",
        batchLines("Samples per second against batch size", data.batches, "samples_per_second", { size: 60 })),
      section("Batch sizes", batchTable(data)));
  }
  if (data.frontier.length > 0) {
    main.append(
      section(`Time against budget, batch ${data.frontier_batch}`,
        el("p", { class: "hint" }, `The plain step needs ${formatBytes(data.frontier_plain_peak_bytes)} and takes ` +
          `${formatNs(data.frontier_plain_step_ns)}.`), ...frontierChart(data)),
      section("Strategies and budgets", frontierTable(data)));
  }
};
