// SPDX-License-Identifier: Apache-2.0
// Bytes over the step: stacked by role or as lines, with the phases shaded and the peak marked.

// A schedule as the data have it, with what follows from it: when each run starts, whether the op ran before.
// The last point of a chart is the end of the last run.
function readSchedule(ops, schedule) {
  // A graph without times: all ops take the same.
  const timed = ops.time_ns.some((time) => time > 0);
  const seen = new Uint8Array(ops.name.length);
  const start = [];
  const again = [];
  const moves = new Map(schedule.moves);  // run: "pack", "unpack", "offload" or "prefetch" what its op made
  let now = 0;
  schedule.op.forEach((op, i) => {
    // With moves, the data say when a run begins: transfers go on beside the ops.
    start.push(timed && schedule.start_ns ? schedule.start_ns[i] : now);
    again.push(!moves.has(i) && seen[op] === 1);
    if (!moves.has(i)) seen[op] = 1;
    now += timed ? ops.time_ns[op] : 1;
  });
  if (timed && schedule.start_ns) now = schedule.time_ns;
  // A role whose bytes never change is one number in the data.
  const by_role = Object.fromEntries(Object.entries(schedule.by_role ?? {}).map(([role, bytes]) =>
    [role, Array.isArray(bytes) ? bytes : new Array(schedule.bytes.length).fill(bytes)]));
  return { ...schedule, moves, by_role, start, again, end: now };
}

// A column with its last value once more, where the step ends.
const toTheEnd = (column) => (column.length ? [...column, column[column.length - 1]] : []);
const timesOf = (run) => (run.start.length ? [...run.start, run.end] : []);

// [{phase, from, to}]: neighbours of the same phase as one.
function phaseRanges(ops, run) {
  const ranges = [];
  const end = (i) => run.start[i + 1] ?? run.end;
  run.op.forEach((op, i) => {
    const last = ranges[ranges.length - 1];
    // A recomputed op of forward runs on behalf of backward; a move belongs to what goes on around it.
    const phase = run.moves.has(i) && last ? last.phase
      : run.again[i] && ops.phase[op] === "forward" ? "backward" : ops.phase[op];
    if (last && last.phase === phase) last.to = end(i);
    else ranges.push({ phase, from: run.start[i], to: end(i) });
  });
  return ranges;
}

const phaseNames = { forward: "forward", backward: "backward", optimizer: "update" };

// Their names stand above the chart, where no curve and no mark is: such a chart needs this padding.
const phasePadding = [22, null, null, null];

function drawPhases(ranges) {
  return (u) => {
    const { left, top, width, height } = u.bbox;
    const dpr = devicePixelRatio;
    u.ctx.save();
    u.ctx.font = `${12 * dpr}px system-ui, sans-serif`;
    u.ctx.textBaseline = "bottom";
    u.ctx.textAlign = "left";
    const named = new Set();  // once is enough: recomputing cuts a phase into many
    let free = left;
    for (const { phase, from, to } of ranges) {
      const x = Math.max(left, u.valToPos(from, "x", true));
      const end = Math.min(left + width, u.valToPos(to, "x", true));
      if (end <= x) continue;
      u.ctx.fillStyle = colour("--" + phase);
      u.ctx.fillRect(x, top, end - x, height);
      // Above its beginning; or, as for a short update, before the end of the chart.
      const wide = u.ctx.measureText(phaseNames[phase]).width;
      const at = Math.min(x, left + width - wide);
      if (named.has(phase) || at < free || (end - x < wide && at === x)) continue;
      named.add(phase);
      free = at + wide + 8 * dpr;
      u.ctx.fillStyle = colour("--faint");
      u.ctx.fillText(phaseNames[phase], at, top - 4 * dpr);
    }
    u.ctx.restore();
  };
}

// A ring at a point, with a few words above it.
function drawMark(x, y, text) {
  return (u) => {
    const px = u.valToPos(x, "x", true);
    const py = u.valToPos(y, "y", true);
    const { left, top, width } = u.bbox;
    if (px < left || px > left + width) return;
    const dpr = devicePixelRatio;
    u.ctx.save();
    u.ctx.setLineDash([]);
    u.ctx.strokeStyle = colour("--ink");
    u.ctx.fillStyle = colour("--card");
    u.ctx.lineWidth = 2 * dpr;
    u.ctx.beginPath();
    u.ctx.arc(px, py, 4.5 * dpr, 0, 7);
    u.ctx.fill();
    u.ctx.stroke();
    u.ctx.font = `600 ${12 * dpr}px system-ui, sans-serif`;
    // To the left, where the curve mostly rises.
    u.ctx.textAlign = px < left + width * 0.2 ? "left" : "right";
    u.ctx.textBaseline = py - top < 20 * dpr ? "top" : "bottom";
    const side = u.ctx.textAlign === "left" ? 6 : -6;
    u.ctx.lineWidth = 4 * dpr;
    u.ctx.strokeStyle = colour("--card");
    u.ctx.lineJoin = "round";
    const at = [px + side * dpr, py + (u.ctx.textBaseline === "top" ? 6 : -6) * dpr];
    u.ctx.strokeText(text, ...at);
    u.ctx.fillStyle = colour("--ink");
    u.ctx.fillText(text, ...at);
    u.ctx.restore();
  };
}

const stepped = () => (hasCharts ? uPlot.paths.stepped({ align: 1 }) : null);
// Room above the highest value, so that its mark can be read.
const fromZero = (top) => ({ range: (u, low, high) => [0, 1.14 * Math.max(top ?? high ?? 0, 1)] });

// "conv1", "conv1 (again)", "pack what conv1 made"
function runName(ops, run, i) {
  const name = ops.name[run.op[i]];
  return run.moves.has(i) ? `${run.moves.get(i)} what ${name} made` : name + (run.again[i] ? " (again)" : "");
}

function describeRun(ops, run, i) {
  const at = Math.min(i, run.op.length - 1);
  if (at < 0) return ["no op"];
  const op = run.op[at];
  const resident = `${formatBytes(run.bytes[at])} resident, at ${formatNs(run.start[at])}`;
  if (run.moves.has(at)) return [runName(ops, run, at), `layer ${ops.layer[op]}`, resident];
  return [
    runName(ops, run, at),
    `${ops.kind[op]}, ${phaseNames[ops.phase[op]]}`,
    `layer ${ops.layer[op]}`,
    `${resident}, takes ${formatNs(ops.time_ns[op])}`,
  ];
}

// The bytes of a schedule, stacked by role. `top`: the highest value of the axis, for charts side by side;
// `end`: that of the other axis; `budget`: a line.
function stackedChart(label, ops, run, { top = null, end = run.end, budget = null, sync = null, height = 300 } = {}) {
  // The highest is drawn first, the lower ones over it.
  const shown = roles.filter((role) => run.by_role[role]).reverse();
  // Each column is a role and all below it that are not hidden.
  const sums = (hidden) => {
    let below = run.bytes.map(() => 0);
    return shown.reduceRight((columns, role) => {
      if (!hidden(role)) below = run.by_role[role].map((bytes, i) => bytes + below[i]);
      return [[...toTheEnd(below), ...(end > run.end ? [null] : [])], ...columns];
    }, []);
  };
  const series = shown.map((role) => ({
    label: role.replace("_", " "), variable: roleVariable(role), area: true, fill: () => roleColour(role),
    stroke: () => colour("--card"), width: 0.5, points: { show: false }, paths: stepped(),
  }));
  const data = [[...timesOf(run), ...(end > run.end ? [end] : [])], ...sums(() => false)];
  if (budget !== null) {
    series.push(line("budget", "--budget", { dash: [8, 5], fill: undefined }));
    data.push(data[0].map(() => budget));
  }
  const marks = run.op.length ? [drawMark(run.start[run.peak_run], run.peak_bytes, `peak ${formatBytes(run.peak_bytes)}`)] : [];
  const phases = phaseRanges(ops, run);
  // What is hidden leaves its place to what was stacked on it.
  const stackAgain = (u, changed, { show }) => {
    if (show === undefined) return;
    const columns = sums((role) => !u.series[1 + shown.indexOf(role)].show);
    u.setData([u.data[0], ...columns, ...u.data.slice(1 + shown.length)], false);
  };
  const root = chart(label, {
    series: [{ label: "time" }, ...series],
    scales: { y: fromZero(top ?? Math.max(run.peak_bytes, budget ?? 0)) },
    axes: [timeAxis, byteAxis],
    padding: phasePadding,
    cursor: sync ? { sync: { key: sync, scales: ["x", null] } } : {},
    hooks: { drawClear: [drawPhases(phases)], draw: marks, setSeries: [stackAgain] },
  }, data, {
    height, steps: true,
    describe: (i) => {
      const at = Math.min(i, run.op.length - 1);
      if (at < 0) return ["no op"];
      return [...describeRun(ops, run, i), ...shown.filter((role) => run.by_role[role][at] > 0)
        .map((role) => `${role.replace("_", " ")} ${formatBytes(run.by_role[role][at])}`)];
    },
  });
  root.phases = phases;
  return root;
}

// The bar of what is resident at the peak of a schedule.
function peakBar(run, label) {
  const at = run.peak_run;
  return shareBar(label, Object.entries(run.by_role).sort(([a], [b]) => roles.indexOf(a) - roles.indexOf(b))
    .map(([role, bytes]) => ({ name: role, value: bytes[at] ?? 0, variable: roleVariable(role) })), run.peak_bytes, formatBytes);
}
