// SPDX-License-Identifier: Apache-2.0
// Where memory and time of a step go.

pages.profile = (data, main) => {
  const { ops } = data;
  const run = readSchedule(ops, {
    ...data.timeline, op: ops.name.map((_, i) => i), peak_bytes: data.keep_all_peak_bytes, time_ns: data.op_time_ns,
  });
  const saved = ops.saved_bytes.reduce((sum, bytes) => sum + bytes, 0);
  const zoomHint = el("p", { class: "hint how" },
    "Drag over the chart to zoom, double-click to see all of it again; or click on it and use the keys ← → + − 0.");
  const chartOfStep = stackedChart("memory over the step", ops, run);
  main.append(
    el("p", { class: "lead" }, `One training step as the plain framework runs it, everything kept: ` +
      `${formatCount(data.op_count)} ops, ${formatCount(data.storage_count)} storages.`),
    figures([
      ["Peak", formatBytes(data.keep_all_peak_bytes), data.peak_op ? "set by " + data.peak_op : "", data.keep_all_peak_bytes],
      ["Saved for backward", formatBytes(saved), `${formatShare(saved, data.keep_all_peak_bytes)} of the peak`, saved],
      ["Time of the ops", formatNs(data.op_time_ns), data.step_ns ? `the whole step ${formatNs(data.step_ns)}` : "", data.op_time_ns],
      data.eager_peak_bytes ? ["Counted in plain LibTorch", formatBytes(data.eager_peak_bytes),
        `${formatChange(data.eager_peak_bytes, data.keep_all_peak_bytes)} of what is predicted`, data.eager_peak_bytes] : null,
    ]),
    section("Memory over the step", chartOfStep, zoomHint),
    section("At the peak", peakBar(run, "At the peak")),
    layerTable(data),
    opTable(data, run, chartOfStep),
    section("Kinds of ops", dataTable("kinds", [
      { key: "name", title: "Kind", text: true },
      { key: "time_ns", title: "Time", format: formatNs, bar: true },
      { key: "ops", title: "Ops", format: formatCount, bar: true },
      { key: "peak_bytes", title: "At the peak", format: formatBytes, bar: true },
    ], data.by_kind.map(withTime), { sort: "time_ns" })));
};

// What an op or a layer makes costs so much; the uses are numbers of ops.
function costColumns(ops) {
  const use = (op) => ops.name[op];
  return [
    { key: "created_bytes", title: "Created", format: formatBytes, bar: true, help: "Bytes that it creates" },
    { key: "saved_bytes", title: "Saved", format: formatBytes, bar: true, help: "Bytes made in forward and needed after it" },
    { key: "idle_ns", title: "Idle", format: formatNs, help: "The longest time between the last use in forward and the first after it" },
    { key: "remake_ns", title: "To make again", format: formatNs, help: "Time that making the saved bytes again takes" },
    { key: "saved_bytes_per_ms", title: "Won per ms", format: formatBytes, bar: true,
      help: "Bytes that could be freed for each millisecond of making them again" },
    { key: "first_forward_use", title: "First use forward", format: use, screen: true },
    { key: "last_forward_use", title: "Last use forward", format: use, screen: true },
    { key: "first_backward_use", title: "First use backward", format: use, screen: true },
    { key: "last_backward_use", title: "Last use backward", format: use, screen: true },
  ];
}
const nothingAsEmpty = (row) => ({ ...row, saved_bytes: row.saved_bytes || null, created_bytes: row.created_bytes || null,
  idle_ns: row.idle_ns || null, remake_ns: row.remake_ns || null });

const withTime = (row) => ({ ...row, time_ns: row.forward_ns + row.backward_ns + row.optimizer_ns });

function layerTable(data) {
  const rows = data.by_layer.map((row) => withTime(nothingAsEmpty(row)));
  const updates = data.by_layer.some((row) => row.optimizer_ns > 0);
  return section("Layers", dataTable("layers", [
    { key: "name", title: "Layer", text: true },
    { key: "peak_bytes", title: "At the peak", format: formatBytes, bar: true },
    { key: "time_ns", title: "Time", format: formatNs, bar: true },
    { key: "forward_ns", title: "Forward", format: formatNs },
    { key: "backward_ns", title: "Backward", format: formatNs },
    ...(updates ? [{ key: "optimizer_ns", title: "Update", format: formatNs }] : []),
    { key: "ops", title: "Ops", format: formatCount },
    ...costColumns(data.ops),
  ], rows, { sort: "peak_bytes" }));
}

function opTable(data, run, chartOfStep) {
  const rows = rowsOf(data.ops).map((row, i) => ({ ...nothingAsEmpty(row), number: i, resident_bytes: run.bytes[i] }));
  const table = dataTable("ops", [
    { key: "number", title: "#", help: "In the order in which they run" },
    { key: "name", title: "Op", text: true },
    { key: "kind", title: "Kind", text: true },
    { key: "layer", title: "Layer", text: true },
    { key: "phase", title: "Phase", text: true },
    { key: "time_ns", title: "Time", format: formatNs, bar: true },
    { key: "resident_bytes", title: "Resident", format: formatBytes, bar: true, help: "All bytes that are resident while it runs" },
    { key: "workspace_bytes", title: "Workspace", format: (bytes) => (bytes ? formatBytes(bytes) : "") },
    ...costColumns(data.ops),
  ], rows, { sort: "time_ns", range: chartOfStep.plot ? {
    label: "Only what the chart shows", onchange: (changed) => chartOfStep.addEventListener("zoom", changed),
    holds: (row) => run.start[row.number] + row.time_ns >= chartOfStep.dataset.from && run.start[row.number] <= chartOfStep.dataset.to,
  } : null });
  return section("Ops", table);
}
