// SPDX-License-Identifier: Apache-2.0
// Marks of lines and of their points, the same in a chart and in its legend. Who does not see the colours has
// the dashes and the shapes.

// Corners around (0, 0), for a mark about as large as a circle of radius 1.
const shapes = {
  square: [[-0.85, -0.85], [0.85, -0.85], [0.85, 0.85], [-0.85, 0.85]],
  diamond: [[0, -1.25], [1.25, 0], [0, 1.25], [-1.25, 0]],
  triangle: [[0, -1.15], [1.15, 0.9], [-1.15, 0.9]],
  wedge: [[0, 1.15], [1.15, -0.9], [-1.15, -0.9]],
  bar: [[-0.45, -1.3], [0.45, -1.3], [0.45, 1.3], [-0.45, 1.3]],
  beam: [[-1.3, -0.45], [1.3, -0.45], [1.3, 0.45], [-1.3, 0.45]],
  plus: [[-0.4, -1.2], [0.4, -1.2], [0.4, -0.4], [1.2, -0.4], [1.2, 0.4], [0.4, 0.4], [0.4, 1.2], [-0.4, 1.2], [-0.4, 0.4],
    [-1.2, 0.4], [-1.2, -0.4], [-0.4, -0.4]],
};

// As SVG has it, for a canvas too; a shape that is not in the list is a circle.
function shapeText(shape, x, y, radius) {
  const corners = shapes[shape];
  if (!corners) return `M${x - radius} ${y}a${radius} ${radius} 0 1 0 ${2 * radius} 0a${radius} ${radius} 0 1 0 ${-2 * radius} 0Z`;
  return "M" + corners.map(([dx, dy]) => `${x + radius * dx} ${y + radius * dy}`).join("L") + "Z";
}

// For uPlot, which draws circles itself.
function pointPaths(shape) {
  return (u, number, from, to, filtered) => {
    const { points } = u.series[number];
    const radius = points.size / 2 * devicePixelRatio;
    const path = new Path2D();
    const add = (i) => {
      const value = u.data[number][i];
      if (value === null || value === undefined) return;
      path.addPath(new Path2D(shapeText(shape, u.valToPos(u.data[0][i], "x", true), u.valToPos(value, "y", true), radius)));
    };
    if (filtered) filtered.forEach(add);
    else for (let i = from; i <= to; ++i) add(i);
    const clip = new Path2D();
    const { left, top, width, height } = u.bbox;
    clip.rect(left - 2 * radius, top - 2 * radius, width + 4 * radius, height + 4 * radius);
    return { stroke: path, fill: path, clip, flags: 3 };
  };
}

// A line of a chart, in the colour of a CSS variable: `dash` where two lines must be told apart without colour,
// `shape` for points on it.
function line(label, variable, { shape = null, size = 8, ...more } = {}) {
  const points = shape
    ? { show: true, size, width: 1.5, fill: () => colour("--card"), paths: pointPaths(shape) } : { show: false };
  return { label, variable, shape, stroke: () => colour(variable), width: 2, points, ...more };
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function lineMark({ variable, dash, shape, width }) {
  const style = `stroke:var(${variable});fill:var(--card)`;
  return svg("svg", { width: 34, height: 14, viewBox: "0 0 34 14", "aria-hidden": "true" },
    svg("path", { d: "M0 7H34", style, "stroke-width": width, "stroke-dasharray": (dash ?? []).join(" ") }),
    ...(shape ? [svg("path", { d: shapeText(shape, 17, 7, 4), style, "stroke-width": 1.5 })] : []));
}

// uPlot makes a legend of coloured boxes, once, whose rows take clicks only.
function finishLegend(plot) {
  const rows = [...plot.root.querySelectorAll(".u-legend .u-series")];
  rows.forEach((row, i) => {
    const series = plot.series[i + 1];
    const mark = row.querySelector(".u-marker");
    const head = row.querySelector("th");
    mark.removeAttribute("style");
    mark.classList.toggle("line", !series.area);
    if (series.area) mark.style.background = `var(${series.variable})`;
    else mark.replaceChildren(lineMark(series));
    head.tabIndex = 0;
    head.setAttribute("role", "button");
    head.setAttribute("aria-label", `Show or hide ${series.label}`);
    head.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      head.click();
    });
  });
}
