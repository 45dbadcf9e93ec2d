// SPDX-License-Identifier: Apache-2.0
// What a plan changes: bytes before and after, what is kept and what is made again, the arena. With what was
// measured, where the step ran.

const noBudget = 2 ** 62;

pages.plan = (data, main) => {
  const { ops } = data;
  const keepAll = readSchedule(ops, data.schedules.keep_all);
  const everyK = readSchedule(ops, data.schedules.every_k);
  const planned = readSchedule(ops, data.schedules.planned);
  const budget = data.budget_bytes < noBudget ? data.budget_bytes : null;
  const strategy = data.chosen_strategy ?? data.strategy;
  const top = Math.max(keepAll.peak_bytes, planned.peak_bytes, budget ?? 0);
  const axes = { top, end: Math.max(keepAll.end, planned.end), budget, sync: "roles", height: 240 };
  const again = planned.again.filter(Boolean).length;
  const moved = [...planned.moves.values()];
  const lost = data.arena.arena_bytes - data.arena.max_live_bytes;
  main.append(
    el("p", { class: "lead" }, `${formatCount(ops.name.length)} ops. ${data.feasible === false
      ? "No plan fits the budget: this is the best that was found." : `Planned by ${strategy}: the same values, bit for bit, in less memory.`}`),
    planFigures(data, { keepAll, planned, budget, again, moved }),
    section("Before and after", beforeAndAfter(ops, keepAll, planned, budget, top),
      el("p", { class: "hint" }, "Shaded: the phases of the planned step."),
      el("p", { class: "hint how" }, "Drag over a chart to zoom, double-click to see all of it again; or click on it and use the keys ← → + − 0.")),
    section("One step, played", el("p", {}, "Every dot is an op, in the column of its layer. It is filled while what the op made is in memory."),
      animation(ops, [
        { title: "Everything kept", note: "what the plain framework does", run: keepAll },
        { title: "√n segments", note: "the beginnings of segments kept", run: everyK },
        { title: "The plan", note: budget === null ? strategy : `${strategy}, inside ${formatBytes(budget)}`, run: planned },
      ], budget)),
    section("By role", el("h3", {}, "Everything kept"), stackedChart("everything kept, by role", ops, keepAll, axes),
      peakBar(keepAll, "At the peak, everything kept"),
      el("h3", {}, "Planned"), stackedChart("planned, by role", ops, planned, axes),
      peakBar(planned, "At the peak, planned")),
    layerSection(data),
    section("Values", el("p", { class: "hint how" }, "Click on a value, or press Enter on it, to see why."),
      dataTable("values", valueColumns(ops), rowsOf(data.values), { sort: "bytes", detail: (row) => row.reason })),
    section("The arena", el("p", {}, `Every value has its address in one block of ${formatBytes(data.arena.arena_bytes)}. At most ` +
      `${formatBytes(data.arena.max_live_bytes)} of it are taken at once; ${lost > 0 ? formatBytes(lost) + " are lost to gaps." : "nothing is lost to gaps."}`),
    arenaChart(ops, data.arena, planned), el("ul", { class: "key" }, roles.filter((role) => data.arena.role.includes(data.arena.roles.indexOf(role)))
      .map((role) => el("li", {}, el("i", { style: `background:var(${roleVariable(role)})` }), role.replace("_", " "))))),
    data.compared || data.eager_step_ns ? methodSection(data) : "");
};

function planFigures(data, { keepAll, planned, budget, again, moved }) {
  const predicted = planned.peak_bytes;
  const count = (kind, what) => {
    const times = moved.filter((each) => each === kind).length;
    return times ? `, ${formatCount(times)} values ${what}` : "";
  };
  return figures([
    budget === null ? null : ["Budget", formatBytes(budget), `${formatShare(budget, keepAll.peak_bytes)} of everything kept`, budget],
    ["Everything kept", formatBytes(keepAll.peak_bytes), `ops take ${formatNs(keepAll.time_ns)}`, keepAll.peak_bytes],
    ["Peak of the plan", formatBytes(predicted), `${formatShare(predicted, keepAll.peak_bytes)} of everything kept`, predicted],
    data.measured_peak_bytes ? ["Measured peak", formatBytes(data.measured_peak_bytes),
      data.measured_peak_bytes === predicted ? "as predicted, to the byte" : `predicted ${formatBytes(predicted)}`, data.measured_peak_bytes] : null,
    ["Time of the ops", formatChange(planned.time_ns, keepAll.time_ns), `${formatNs(planned.time_ns)}, ${formatCount(again)} ops run again` +
      count("pack", "packed") + count("offload", "on a disk"), planned.time_ns],
    data.time_ratio_to_eager ? ["Measured time", data.time_ratio_to_eager.toFixed(3) + "×", "of plain LibTorch's step"] : null,
    data.bit_identical ? ["Same bits", Object.values(data.bit_identical).every(Boolean) ? "yes" : "NO",
      Object.entries(data.bit_identical).map(([what, same]) => `${what} ${same ? "✓" : "✗"}`).join(" ")] : null,
    data.floor_bytes ? ["Floor", formatBytes(data.floor_bytes), data.floor_op ? "set by " + data.floor_op : "", data.floor_bytes] : null,
  ]);
}

// Of runs that start at the same time (they take none) only the one with most bytes is drawn.
function collapsed(run, column) {
  const x = [];
  const y = [];
  run.start.forEach((start, i) => {
    const value = column[i];
    if (x.length && x[x.length - 1] === start) y[y.length - 1] = Math.max(y[y.length - 1], value);
    else { x.push(start); y.push(value); }
  });
  if (x.length && x[x.length - 1] < run.end) { x.push(run.end); y.push(y[y.length - 1]); }
  return [x, y];
}

function beforeAndAfter(ops, keepAll, planned, budget, top) {
  const curve = (label, variable, more) => ({ ...line(label, variable), paths: stepped(), spanGaps: true, ...more });
  const tables = [collapsed(keepAll, keepAll.bytes), collapsed(planned, planned.bytes)];
  const series = [{ label: "time" },
    curve("everything kept", "--plain", { fill: () => colour("--plain") + "30" }),
    curve("planned", "--planned", { fill: () => colour("--planned") + "38", width: 2.5 })];
  if (planned.measured_bytes) {
    tables.push(collapsed(planned, planned.measured_bytes));
    series.push(curve("measured", "--measured", { dash: [3, 5], width: 1.5 }));
  }
  const data = hasCharts ? uPlot.join(tables) : tables[0];
  if (budget !== null) {
    data.push(data[0].map(() => budget));
    series.push(line("budget", "--budget", { dash: [10, 5] }));
  }
  const mark = (run, what) => (run.op.length ? [drawMark(run.start[run.peak_run], run.peak_bytes, `${what} ${formatBytes(run.peak_bytes)}`)] : []);
  const indexAt = (run, time) => (time > run.end ? -1 : lastAtMost(run.start, time));
  const phases = phaseRanges(ops, planned);
  const root = chart("before and after", {
    series, scales: { y: fromZero(top) }, axes: [timeAxis, byteAxis], padding: phasePadding,
    hooks: { drawClear: [drawPhases(phases)], draw: [...mark(keepAll, "kept:"), ...mark(planned, "planned:")] },
  }, data, {
    height: 320, steps: true,
    describe: (i) => {
      const time = data[0][i];
      const says = (what, run) => {
        const at = indexAt(run, time);
        return at < 0 ? [] : [`${what}: ${runName(ops, run, at)}, layer ${ops.layer[run.op[at]]}, ${formatBytes(run.bytes[at])}` +
          (run.measured_bytes ? `, measured ${formatBytes(run.measured_bytes[at])}` : "")];
      };
      return [`at ${formatNs(Math.round(time))}`, ...says("kept", keepAll), ...says("planned", planned)];
    },
  });
  root.phases = phases;
  return root;
}

const decisions = { keep: "kept", recompute: "made again", pack: "packed", offload: "on a disk" };

function valueColumns(ops) {
  return [
    { key: "storage", title: "Value", text: true },
    { key: "layer", title: "Layer", text: true },
    { key: "op", title: "Made by", text: true, format: (op) => ops.name[op] },
    { key: "bytes", title: "Bytes", format: formatBytes, bar: true },
    { key: "role", title: "Role", text: true },
    { key: "action", title: "Decision", text: true, format: (action) => decisions[action] },
    { key: "recomputes", title: "Times again", format: (count) => count || "" },
  ];
}

// Layers first; a click on one shows its values.
function layerSection(data) {
  const values = rowsOf(data.values);
  const count = (number) => (number ? formatCount(number) : "");
  const bytes = (number) => (number ? formatBytes(number) : "");
  return section("Layers: what is kept, what is made again, and why",
    el("p", { class: "hint how" }, "Click on a layer, or press Enter on it, to see its values and the reasons."),
    dataTable("layers", [
      { key: "layer", title: "Layer", text: true },
      { key: "kept_values", title: "Kept", format: count },
      { key: "kept_bytes", title: "Bytes kept", format: bytes, bar: true },
      { key: "recomputed_values", title: "Made again", format: count },
      { key: "recomputed_bytes", title: "Bytes won", format: bytes, bar: true },
      ...(data.layers.some((row) => row.packed_values) ? [{ key: "packed_values", title: "Packed", format: count },
        { key: "packed_bytes", title: "Bytes packed", format: bytes, bar: true }] : []),
      ...(data.layers.some((row) => row.offloaded_values) ? [{ key: "offloaded_values", title: "On a disk", format: count },
        { key: "offloaded_bytes", title: "Bytes there", format: bytes, bar: true }] : []),
      { key: "recomputed_ops", title: "Ops run again", format: count },
      { key: "extra_ns", title: "Extra time", format: (ns) => (ns ? formatNs(ns) : ""), bar: true },
    ], data.layers, {
      detail: (row) => {
        const inside = values.filter((value) => value.layer === row.layer);
        return el("ul", { class: "reasons" }, inside.map((value) =>
          el("li", {}, el("b", { class: value.action }, decisions[value.action]), " " + value.reason)));
      },
    }));
}

function methodSection(data) {
  const same = (bits) => (bits ? (Object.values(bits).every(Boolean) ? "yes" : "NO") : "");
  const rows = [
    { method: "plain LibTorch", measured_peak_bytes: data.eager_peak_bytes, step_ns: data.eager_step_ns, time_ratio_to_eager: 1 },
    { ...data, method: data.strategy }, ...(data.compared ?? []),
  ].map((row) => ({ ...row, same: row.feasible === false ? row.fault : same(row.bit_identical) }));
  return section("Beside plain LibTorch", dataTable("methods", [
    { key: "method", title: "Method", text: true },
    { key: "predicted_peak_bytes", title: "Predicted peak", format: formatBytes },
    { key: "measured_peak_bytes", title: "Measured peak", format: formatBytes, bar: true },
    { key: "reserved_bytes", title: "Reserved", format: formatBytes },
    { key: "step_ns", title: "Step", format: formatNs, bar: true },
    { key: "time_ratio_to_eager", title: "Time ratio", format: (ratio) => ratio.toFixed(3) },
    { key: "same", title: "Same bits", text: true },
  ], rows));
}
