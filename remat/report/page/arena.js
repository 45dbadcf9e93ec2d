// SPDX-License-Identifier: Apache-2.0
// The arena: time against address, every block a rectangle in the colour of its role.

function arenaChart(ops, arena, run) {
  const ends = (i) => run.start[i + 1] ?? run.end;
  const blocks = arena.offset.map((offset, i) => ({
    low: offset, high: offset + arena.bytes[i], from: run.start[arena.from[i]], to: ends(arena.to[i]),
    role: arena.roles[arena.role[i]], op: arena.op[i],
  }));
  const draw = (u) => {
    const { left, top, width, height } = u.bbox;
    const fills = Object.fromEntries(roles.map((role) => [role, roleColour(role)]));
    u.ctx.save();
    u.ctx.beginPath();
    u.ctx.rect(left, top, width, height);
    u.ctx.clip();
    u.ctx.strokeStyle = colour("--card");
    u.ctx.lineWidth = 1;
    for (const block of blocks) {
      const x = u.valToPos(block.from, "x", true);
      const w = u.valToPos(block.to, "x", true) - x;
      if (x > left + width || x + w < left) continue;
      const y = u.valToPos(block.high, "y", true);
      const h = u.valToPos(block.low, "y", true) - y;
      u.ctx.fillStyle = fills[block.role];
      u.ctx.fillRect(x, y, Math.max(w, 1), Math.max(h, 1));
      if (w > 3 && h > 3) u.ctx.strokeRect(x, y, w, h);
    }
    u.ctx.restore();
  };
  const times = timesOf(run);
  const top = Math.max(arena.arena_bytes, 1);
  // The i-th run is the one that the cursor is in, whose start must not become the end of the one before by rounding.
  const timeAt = (u, i) => Math.max(u.posToVal(Math.max(0, u.cursor.left), "x"), times[i] ?? 0);
  const blockAt = (time, address) =>
    blocks.find((each) => each.low <= address && address < each.high && each.from <= time && time < each.to);
  // To the middle of the next block above or below the cursor.
  const climb = (u, up, i) => {
    const time = timeAt(u, i);
    const address = u.cursor.top >= 0 ? u.posToVal(u.cursor.top, "y") : up ? -1 : top;
    const sign = up ? 1 : -1;
    const next = blocks.filter((each) => each.from <= time && time < each.to)
      .map((each) => (each.low + each.high) / 2).filter((middle) => sign * (middle - address) > top / 1e6)
      .sort((a, b) => sign * (a - b))[0];
    if (next !== undefined) u.setCursor({ left: u.valToPos(time, "x"), top: u.valToPos(next, "y") });
  };
  return chart("arena", {
    series: [{ label: "time" }, line("end of the arena", "--ink", { dash: [8, 5] })],
    scales: { y: { range: () => [0, 1.05 * top] } },
    axes: [timeAxis, byteAxis],
    hooks: { drawAxes: [draw] },
    cursor: { points: { show: false } },
  }, [times, times.map(() => arena.arena_bytes)], {
    height: 340, steps: true,
    climb,
    describe: (i, u) => {
      const address = u.posToVal(u.cursor.top, "y");
      const block = blockAt(timeAt(u, i), address);
      if (!block) return address > arena.arena_bytes ? [] : ["free", `at ${formatBytes(Math.max(0, Math.round(address)))}`];
      return [ops.name[block.op], `layer ${ops.layer[block.op]}`, block.role.replace("_", " "),
        `${formatBytes(block.high - block.low)} at ${formatBytes(block.low)}`,
        `from ${formatNs(block.from)} to ${formatNs(block.to)}`];
    },
  });
}
