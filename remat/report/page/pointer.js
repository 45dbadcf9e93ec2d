// SPDX-License-Identifier: Apache-2.0
// Where the cursor of a chart is, and how keys move it and zoom.

// The point that the cursor of a chart is at. Keys go from point to point, several of which may lie at one place: the
// one that they have come to is kept, until the cursor is moved in another way.
class Pointer {
  constructor(x, steps) {
    this.x = x;
    this.steps = steps;
    this.kept = null;
  }
  at(plot) {
    const { left, idx } = plot.cursor;
    if (!(left >= 0) || this.x.length === 0) return null;
    const here = plot.posToVal(left, "x");
    const rounding = 1e-6 * (plot.scales.x.max - plot.scales.x.min);
    if (this.kept !== null && Math.abs(here - this.x[this.kept]) <= rounding) return this.kept;
    return this.steps ? Math.max(0, lastAtMost(this.x, here + rounding)) : idx ?? null;
  }
  // Shows the range that is as wide as before around a point that lies outside.
  goTo(plot, i, top = plot.over.clientHeight / 2) {
    if (this.x.length === 0) return;
    this.kept = Math.max(0, Math.min(this.x.length - 1, i));
    const at = this.x[this.kept];
    const { min, max } = plot.scales.x;
    if (at < min || at > max) this.zoomTo(plot, at - (max - min) / 2, at + (max - min) / 2);
    const left = Math.max(0, Math.min(plot.over.clientWidth, plot.valToPos(at, "x")));
    plot.setCursor({ left, top });
  }
  // The range that is as wide, and within the points. Once it is drawn the cursor can be placed.
  zoomTo(plot, low, high) {
    const first = this.x[0];
    const last = this.x[this.x.length - 1];
    const wide = Math.min(high - low, last - first);
    const min = Math.max(first, Math.min(low, last - wide));
    if (wide > 0) plot.batch(() => plot.setScale("x", { min, max: min + wide }));
  }
}

function moveByKey(plot, pointer, climb, event) {
  const { x } = pointer;
  const { min, max } = plot.scales.x;
  const at = pointer.at(plot) ?? plot.valToIdx((min + max) / 2);
  const go = (i) => pointer.goTo(plot, i, climb && plot.cursor.top >= 0 ? plot.cursor.top : undefined);
  // The point at the cursor stays where it is on the screen, as far as there are points on both sides.
  const show = (low, high) => {
    pointer.zoomTo(plot, low, high);
    if (pointer.kept === at) go(at);
  };
  const zoom = (factor) => {
    const middle = Math.max(min, Math.min(max, x[at]));
    show(middle - (middle - min) * factor, middle + (max - middle) * factor);
  };
  const showAll = () => show(x[0], x[x.length - 1]);
  const step = event.shiftKey ? 10 : 1;
  const actions = {
    ArrowLeft: () => go(at - step), ArrowRight: () => go(at + step), Home: () => go(0), End: () => go(x.length - 1),
    "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: showAll, Escape: showAll,
    ...(climb ? { ArrowUp: () => climb(plot, true, at), ArrowDown: () => climb(plot, false, at) } : {}),
  };
  if (!actions[event.key] || event.ctrlKey || event.metaKey || x.length === 0) return;
  event.preventDefault();
  actions[event.key]();
}
