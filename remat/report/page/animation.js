// SPDX-License-Identifier: Apache-2.0
// One step, played: every op a dot in the column of its layer, forward above, backward and update below, filled
// while what it made is in memory. Several schedules side by side, on one clock.

const wholeStepSeconds = 20;
const firstShown = 0.62;
const mostColumns = 40;

// The columns of ops, by the longest beginnings of layers' names that give not too many.
function layerColumns(ops) {
  const cut = (layer, depth) => layer.split(".").slice(0, depth).join(".");
  let depth = 1;
  while (depth < 8 && new Set(ops.layer.map((layer) => cut(layer, depth + 1))).size <= mostColumns) ++depth;
  const columns = new Map();
  ops.layer.forEach((layer, op) => {
    const name = cut(layer, depth);
    if (!columns.has(name)) columns.set(name, { name, group: cut(layer, 1), forward: [], backward: [] });
    columns.get(name)[ops.phase[op] === "forward" ? "forward" : "backward"].push(op);
  });
  // Where even the first parts of names are many, neighbours share a column.
  const all = [...columns.values()];
  const together = Math.ceil(all.length / mostColumns);
  const merged = [];
  for (let i = 0; i < all.length; i += together) {
    const some = all.slice(i, i + together);
    merged.push({ ...some[0], forward: some.flatMap((column) => column.forward), backward: some.flatMap((column) => column.backward) });
  }
  return merged;
}

// Where each dot is: as far apart as there is room for. {x, y by op; pitch; middle; groups}
function layDots(columns, count, width, height) {
  const labels = 16;
  const most = (key) => largest(columns.map((column) => column[key].length));
  const share = Math.min(0.7, Math.max(0.3, most("forward") / Math.max(1, most("forward") + most("backward"))));
  const middle = Math.round((height - labels) * share);
  const place = (pitch) => {
    const gap = pitch > 4 ? 2 : pitch / 3;
    const up = Math.max(1, Math.floor((middle - 4) / pitch));
    const down = Math.max(1, Math.floor((height - labels - middle - 4) / pitch));
    const x = new Float32Array(count);
    const y = new Float32Array(count);
    const groups = [];
    let left = 0;
    for (const column of columns) {
      const wide = Math.max(1, Math.ceil(column.forward.length / up), Math.ceil(column.backward.length / down));
      column.forward.forEach((op, i) => {
        x[op] = left + (i % wide + 0.5) * pitch;
        y[op] = middle - 3 - (Math.floor(i / wide) + 0.5) * pitch;
      });
      // The first op of backward belongs to the last of forward: it lies nearest to the middle last.
      column.backward.forEach((op, i) => {
        const at = column.backward.length - 1 - i;
        x[op] = left + (at % wide + 0.5) * pitch;
        y[op] = middle + 3 + (Math.floor(at / wide) + 0.5) * pitch;
      });
      const right = left + wide * pitch;
      const group = groups[groups.length - 1];
      if (group && group.name === column.group) group.right = right;
      else groups.push({ name: column.group, left, right });
      left = right + gap;
    }
    return { x, y, pitch, middle, groups, width: left };
  };
  let pitch = 12;
  let placed = place(pitch);
  while (placed.width > width && pitch > 0.6) placed = place(pitch *= 0.93);
  const offset = Math.max(0, (width - placed.width) / 2);
  for (let op = 0; op < count; ++op) placed.x[op] += offset;
  for (const group of placed.groups) { group.left += offset; group.right += offset; }
  return placed;
}

// What is resident after so many runs; goes on from where it was if it can.
class Residency {
  constructor(run, count) {
    this.run = run;
    this.held = new Uint8Array(count);   // 0: nothing, 1: from its first run, 2: made again
    this.moved = new Uint8Array(count);  // 1: packed, 2: on a disk
    this.ran = new Uint8Array(count);
    this.done = 0;
    this.again = 0;
  }
  goTo(runs) {
    if (runs < this.done) {
      this.held.fill(0);
      this.moved.fill(0);
      this.ran.fill(0);
      this.done = this.again = 0;
    }
    for (; this.done < runs; ++this.done) {
      this.begin(this.done);
      for (const op of this.run.emptied[this.done]) {
        if (!this.held[op]) this.moved[op] = 0;
        this.held[op] = 0;
      }
    }
  }
  begin(i) {
    const op = this.run.op[i];
    const move = this.run.moves.get(i);
    this.moved[op] = { pack: 1, offload: 2 }[move] ?? 0;
    if (move === "pack" || move === "offload") return;
    this.held[op] = this.run.again[i] ? 2 : 1;
    this.ran[op] = 1;
    if (this.run.again[i]) ++this.again;
  }
}

// One schedule: its dots, the curve of its memory, its counters.
class Panel {
  constructor(title, note, ops, columns, run, { end, top, budget }) {
    this.ops = ops;
    this.columns = columns;
    this.run = run;
    this.residency = new Residency(run, ops.name.length);
    this.canvas = el("canvas", { role: "img", tabindex: 0,
      "aria-label": `Ops of ${title}: filled dots are in memory. Arrow keys go from dot to dot.` });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.pointed = -1;  // the op that the tip is about
    const counter = (label) => { const dd = el("dd"); return [el("div", {}, el("dt", {}, label), dd), dd]; };
    const [memory, memoryText] = counter("memory");
    const [peak, peakText] = counter("peak so far");
    const [time, timeText] = counter("time");
    const [again, againText] = counter("run again");
    Object.assign(this, { memoryText, peakText, timeText, againText });
    this.high = [];
    run.bytes.reduce((most, bytes, i) => (this.high[i] = Math.max(most, bytes)), 0);
    const data = [[...timesOf(run), ...(run.end < end ? [end] : [])],
      [...toTheEnd(run.bytes), ...(run.end < end ? [null] : [])]];
    if (budget !== null) data.push(data[0].map(() => budget));
    this.curve = chart(`memory of ${title}`, {
      series: [{}, { ...line("memory", "--planned"), width: 1.5, fill: () => colour("--planned") + "30", paths: stepped() },
        ...(budget !== null ? [line("budget", "--budget", { dash: [5, 4], width: 1.5 })] : [])],
      scales: { x: { range: () => [0, Math.max(end, 1)] }, y: { range: () => [0, 1.08 * Math.max(top, 1)] } },
      axes: [{ show: false }, { ...byteAxis, size: 62, space: 26 }],
      legend: { show: false },
      cursor: { y: false, drag: { x: false }, points: { show: false } },
    }, data, { height: 96, keys: false });
    this.root = el("div", { class: "panel" }, el("h3", {}, title), el("p", { class: "hint" }, note),
      el("div", { class: "dots" }, this.canvas, this.tip), this.curve,
      el("dl", { class: "counters" }, memory, peak, time, again));
    this.canvas.addEventListener("mousemove", (event) => this.pointAt(this.nearest(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("mouseleave", () => this.pointAt(-1));
    this.canvas.addEventListener("blur", () => this.pointAt(-1));
    this.canvas.addEventListener("keydown", (event) => this.pointByKey(event));
    new ResizeObserver(() => this.resize()).observe(this.canvas.parentElement);
    drawings.add(() => this.resize());
  }

  resize() {
    const { clientWidth: width, clientHeight: height } = this.canvas.parentElement;
    if (!width || !height) return;
    this.canvas.width = width * devicePixelRatio;
    this.canvas.height = height * devicePixelRatio;
    this.dots = layDots(this.columns, this.ops.name.length, width, height);
    this.draw();
  }

  // Shows the moment `now`, in ns from the start.
  show(now) {
    this.now = now;
    const { run } = this;
    const last = lastAtMost(run.start, now);
    const over = now >= run.end;
    this.current = over ? -1 : last;
    this.residency.goTo(over ? run.op.length : Math.max(0, last));
    const at = Math.max(0, last);
    const again = this.residency.again + (this.current >= 0 && run.again[this.current] ? 1 : 0);
    this.set(this.memoryText, run.bytes[at] ?? 0, formatBytes);
    this.set(this.peakText, this.high[at] ?? 0, formatBytes);
    this.set(this.timeText, Math.min(now, run.end), formatNs);
    this.set(this.againText, again, (count) => `${formatCount(count)} op${count === 1 ? "" : "s"}`);
    const { plot } = this.curve;
    if (plot) plot.setCursor({ left: plot.valToPos(Math.min(now, run.end), "x"), top: 1 }, false);
    this.draw();
  }
  set(element, value, format) {
    element.textContent = format(Math.round(value));
    element.dataset.exact = Math.round(value);
  }

  draw() {
    if (!this.dots) return;
    const { x, y, pitch, middle, groups } = this.dots;
    const context = this.canvas.getContext("2d");
    const { held, moved, ran } = this.residency;
    const running = this.current >= 0 ? this.run.op[this.current] : -1;
    const radius = Math.max(0.5, pitch * 0.38);
    const ink = { 1: colour("--planned"), 2: colour("--again"), ran: colour("--faint"), rule: colour("--rule") };
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.canvas.width, this.canvas.height);
    context.fillStyle = ink.rule;
    context.fillRect(0, middle - 0.5, this.canvas.clientWidth, 1);
    const small = pitch < 4;
    for (let op = 0; op < held.length; ++op) {
      const again = op === running ? this.run.again[this.current] : held[op] === 2;
      const full = held[op] || op === running;
      context.fillStyle = full ? ink[again ? 2 : 1] : ran[op] ? ink.ran : ink.rule;
      if (small) {
        if (full) context.fillRect(x[op] - pitch * 0.45, y[op] - pitch * 0.45, pitch * 0.9, pitch * 0.9);
        else context.fillRect(x[op] - pitch * 0.2, y[op] - pitch * 0.2, pitch * 0.4, pitch * 0.4);
      } else if (!full && moved[op]) {
        context.strokeStyle = ink[1];
        context.lineWidth = Math.max(1, radius * 0.4);
        context.beginPath();
        context.arc(x[op], y[op], radius * 0.7, 0, 7);
        context.stroke();
      } else if (full && again) {
        // Another shape as well as another colour.
        context.fillRect(x[op] - radius, y[op] - radius, 2 * radius, 2 * radius);
      } else {
        context.beginPath();
        context.arc(x[op], y[op], full ? radius : radius * 0.45, 0, 7);
        context.fill();
      }
    }
    for (const [op, variable] of [[running, "--ink"], [this.pointed, "--accent"]]) {
      if (op < 0) continue;
      context.strokeStyle = colour(variable);
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x[op], y[op], Math.max(5, radius + 2), 0, 7);
      context.stroke();
    }
    context.fillStyle = colour("--faint");
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    let free = 0;
    for (const group of groups) {
      const wide = context.measureText(group.name).width;
      const at = Math.max(wide / 2, (group.left + group.right) / 2);
      if (wide > group.right - group.left + 8 || at - wide / 2 < free) continue;
      context.fillText(group.name, at, this.canvas.clientHeight - 4);
      free = at + wide / 2 + 6;
    }
  }

  // The dot at a point; -1 where there is none near.
  nearest(left, top) {
    const { x, y, pitch } = this.dots;
    let best = -1;
    let near = Math.max(64, pitch * pitch);
    for (let op = 0; op < x.length; ++op) {
      const away = (x[op] - left) ** 2 + (y[op] - top) ** 2;
      if (away < near) [near, best] = [away, op];
    }
    return best;
  }

  // The next dot in the direction of an arrow; straight ahead counts for more.
  neighbour(from, [right, down]) {
    const { x, y } = this.dots;
    let best = from;
    let near = Infinity;
    for (let op = 0; op < x.length; ++op) {
      const ahead = (x[op] - x[from]) * right + (y[op] - y[from]) * down;
      const aside = Math.abs((x[op] - x[from]) * down) + Math.abs((y[op] - y[from]) * right);
      if (ahead > 0.01 && ahead + 3 * aside < near) [near, best] = [ahead + 3 * aside, op];
    }
    return best;
  }

  pointByKey(event) {
    const last = this.ops.name.length - 1;
    if (last < 0 || event.ctrlKey || event.metaKey) return;
    const from = this.pointed >= 0 ? this.pointed : this.current >= 0 ? this.run.op[this.current] : 0;
    const ways = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    const ends = { Home: 0, End: last, Escape: -1 };
    if (ways[event.key]) this.pointAt(this.neighbour(from, ways[event.key]));
    else if (event.key in ends) this.pointAt(ends[event.key]);
    else return;
    event.preventDefault();
  }

  pointAt(op) {
    const { x, y } = this.dots;
    this.pointed = op;
    this.tip.hidden = op < 0;
    this.draw();
    if (op < 0) return;
    const { held, moved } = this.residency;
    const state = held[op] === 2 ? "in memory, made again" : held[op] ? "in memory" : ["not in memory", "packed", "on a disk"][moved[op]];
    this.tip.replaceChildren(el("strong", {}, this.ops.name[op]), el("div", {}, `layer ${this.ops.layer[op]}`), el("div", {}, state));
    this.tip.style.top = `${y[op] + 12}px`;
    const flip = x[op] > this.canvas.clientWidth / 2;
    this.tip.style.left = flip ? "auto" : `${x[op] + 8}px`;
    this.tip.style.right = flip ? `${this.canvas.clientWidth - x[op] + 8}px` : "auto";
  }
}

// panels: [{title, note, run}]
function animation(ops, panels, budget) {
  const end = Math.max(1, largest(panels.map((panel) => panel.run.end)));
  const top = largest(panels.map((panel) => panel.run.peak_bytes));
  const columns = layerColumns(ops);
  const made = panels.map(({ title, note, run }) => new Panel(title, note, ops, columns, run, { end, top, budget }));
  let now = 0;
  let last = null;  // time of the frame before; none: not playing
  let untouched = true;
  const play = el("button", { type: "button", class: "play", "aria-pressed": "false", onclick: toggle });
  const slider = el("input", { type: "range", min: 0, max: end, step: end / 1000, value: 0, "aria-label": "Time in the step",
    oninput: () => { untouched = false; show(Number(slider.value)); } });
  const speed = el("select", { "aria-label": "Speed" }, [["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["4", "4×"]]
    .map(([value, text]) => el("option", { value, selected: value === "1" }, text)));
  const root = el("div", { class: "animation", onkeydown: onKey },
    el("div", { class: "controls" }, play, slider, speed),
    el("div", { class: "panels" }, made.map((panel) => panel.root)),
    el("ul", { class: "key" },
      el("li", {}, el("i", { class: "dot", style: "background:var(--planned)" }), "in memory"),
      el("li", {}, el("i", { style: "background:var(--again)" }), "in memory, made again"),
      panels.some(({ run }) => run.moves.size) ? el("li", {}, el("i", { class: "dot", style: "border:2px solid var(--planned);box-sizing:border-box" }), "packed, or on a disk") : "",
      el("li", {}, el("i", { class: "dot", style: "background:var(--faint);transform:scale(.5)" }), "forgotten, or not run yet"),
      el("li", {}, `forward above the line, backward ${ops.phase.includes("optimizer") ? "and update " : ""}below it`)));

  function show(time) {
    now = Math.max(0, Math.min(end, time));
    slider.value = now;
    slider.setAttribute("aria-valuetext", formatNs(Math.round(now)));
    root.dataset.now = now;
    for (const panel of made) panel.show(now);
  }
  function frame(time) {
    if (last === null) return;
    show(now + (time - last) / 1000 * (end / wholeStepSeconds) * Number(speed.value));
    last = time;
    if (now >= end) stop();
    else requestAnimationFrame(frame);
  }
  function stop() {
    last = null;
    play.textContent = "▶ Play";
    play.setAttribute("aria-pressed", "false");
  }
  function toggle() {
    if (last !== null) return stop();
    if (untouched || now >= end) show(0);
    untouched = false;
    last = performance.now();
    play.textContent = "❚❚ Pause";
    play.setAttribute("aria-pressed", "true");
    requestAnimationFrame(frame);
  }
  function onKey(event) {
    if (event.key !== " " || event.target.tagName === "BUTTON" || event.target.tagName === "SELECT") return;
    event.preventDefault();
    toggle();
  }
  stop();
  show(firstShown * end);  // who does not play it, or prints it, sees a moment at which something has happened
  root.show = show;
  root.end = end;
  root.panels = made;
  return root;
}
