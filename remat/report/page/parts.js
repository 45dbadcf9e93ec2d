// SPDX-License-Identifier: Apache-2.0
// What all pages are made of. The files of a page are one module: their names are seen by those below.

const pages = {};  // by name: (data, main) => fills the element `main`

// An element. Text goes in as text: nothing in a name is ever read as HTML.
function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

// As printf writes a number with up to two decimals: of two that are as near, the even one. toFixed takes the
// larger: 1152 B would be 1.13 KiB here and 1.12 KiB in the terminal.
function fixed(number, decimals) {
  const whole = Math.floor(number * 10 ** decimals);
  const between = number * 10 ** decimals - whole === 0.5 && Number.isInteger(number * 2 ** (decimals + 1));
  return between ? ((whole % 2 ? whole + 1 : whole) / 10 ** decimals).toFixed(decimals) : number.toFixed(decimals);
}

// As units.cc writes them, so that a page and the terminal say the same.
function withUnit(amount, units) {
  for (const [name, size] of units) {
    if (Math.abs(amount) >= size) {
      const count = amount / size;
      const digits = fixed(count, count >= 100 ? 0 : count >= 10 ? 1 : 2);
      return (digits.includes(".") ? digits.replace(/\.?0+$/, "") : digits) + "\u00a0" + name;
    }
  }
  return amount + "\u00a0" + units[units.length - 1][0];
}
const byteUnits = [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024], ["B", 1]];
const timeUnits = [["s", 1e9], ["ms", 1e6], ["us", 1e3], ["ns", 1]];
const formatBytes = (bytes) => withUnit(bytes, byteUnits);
const formatNs = (ns) => withUnit(ns, timeUnits);
const formatShare = (part, whole) => (whole ? (100 * part / whole).toFixed(1) : "0.0") + "\u00a0%";
const formatCount = (count) => count.toLocaleString("en");
function formatChange(after, before) {
  if (!before) return "0.0\u00a0%";
  const percent = 100 * (after - before) / before;
  return (percent < 0 ? "−" : "+") + Math.abs(percent).toFixed(1) + "\u00a0%";
}

// From below, as they are stacked: what lives through the step first.
const roles = ["param", "buffer", "input", "optimizer_state", "activation", "gradient", "temporary", "workspace"];
const roleVariable = (role) => "--" + role.replace("_", "-");
const roleColour = (role) => colour(roleVariable(role));
const colour = (variable) => getComputedStyle(document.documentElement).getPropertyValue(variable).trim();

function section(title, ...children) {
  const id = "s-" + title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
  return el("section", { "aria-labelledby": id }, el("h2", { id }, title), children);
}

// A row of large numbers: [label, number, note, the number in bytes or ns for whoever reads it by script].
function figures(rows) {
  return el("dl", { class: "figures" }, rows.filter(Boolean).map(([label, number, note, exact]) =>
    el("div", {}, el("dt", {}, label), el("dd", { "data-exact": exact }, number),
      note ? el("dd", { class: "note" }, note) : null)));
}

// One bar in parts, with its numbers: [{name, value, variable}].
function shareBar(label, parts, whole, format) {
  const list = parts.filter((part) => part.value > 0);
  const says = list.map((part) => `${part.name} ${format(part.value)}`).join(", ");
  return el("div", { class: "share" },
    el("div", { class: "share-bar", role: "img", "aria-label": `${label}: ${says}` }, list.map((part) =>
      el("span", {
        style: `flex:${part.value} 0 0;background:var(${part.variable})`,
        title: `${part.name}: ${format(part.value)}, ${formatShare(part.value, whole)}`,
      }))),
    el("ul", { class: "key" }, list.map((part) =>
      el("li", {}, el("i", { style: `background:var(${part.variable})` }), part.name.replace("_", " ") + " ",
        el("b", { "data-exact": part.value }, format(part.value)), " " + formatShare(part.value, whole)))));
}

// The largest of many numbers: Math.max(...values) ends at a hundred thousand of them.
const largest = (values) => values.reduce((most, value) => (value > most ? value : most), 0);

// In numbers that never fall, the place of the last one that is at most `limit`; -1 if there is none.
function lastAtMost(numbers, limit) {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (numbers[middle] <= limit) low = middle + 1; else high = middle;
  }
  return low - 1;
}
