// SPDX-License-Identifier: Apache-2.0
// A table that can be sorted and searched. However many rows there are, a few hundred are shown at once.

const rowsAtOnce = 100;

// columns: [{key, title, format, bar, text, help, screen}]. `rows` are objects. `text`: a column that the search
// looks at; the others are numbers, null where there is none. `bar`: a bar behind the number, its length
// by the largest. `screen`: a column that a sheet of paper has no room for. `sort`: the key to begin with, descending.
// `detail(row)`: an element below a row that is clicked on; by the keyboard, the first cells are buttons, of which one can be
// reached by Tab and the others from there by the arrow keys. `range`: {label, holds(row), onchange(f)} is a box that,
// ticked, leaves only the rows that hold; f is to be called when others do.
function dataTable(label, columns, rows, { sort = null, detail = null, range = null } = {}) {
  const classOf = (column) => [column.text && "text", column.screen && "screen"].filter(Boolean).join(" ") || null;
  let sorted = sort;
  let descending = true;
  let shown = rowsAtOnce;
  let found = rows;
  const most = Object.fromEntries(columns.filter((column) => column.bar)
    .map((column) => [column.key, largest(rows.map((row) => row[column.key] ?? 0))]));
  const searched = columns.filter((column) => column.text);

  const body = el("tbody");
  const count = el("span", { class: "count", role: "status" });
  const more = el("button", { type: "button", onclick: () => { shown += 5 * rowsAtOnce; draw(); } });
  const search = el("input", { type: "search", "aria-label": `Search ${label}`, placeholder: "Search", oninput: find });
  const only = el("input", { type: "checkbox", onchange: find });
  if (range) range.onchange(() => only.checked && find());
  const heads = columns.map((column) => {
    const button = el("button", { type: "button", title: column.help, onclick: () => sortBy(column) }, column.title);
    return el("th", { scope: "col", class: classOf(column) }, button);
  });
  const cutOff = el("p", { class: "cut-off" });  // on paper there is no button for more
  const root = el("div", { class: "table", "data-table": label },
    el("div", { class: "tools" }, search, range ? el("label", {}, only, " " + range.label) : null, count),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": label },
      el("table", {}, el("thead", {}, el("tr", {}, heads)), body)),
    cutOff, el("div", { class: "more" }, more));
  if (detail) body.addEventListener("keydown", goByKey);

  function cell(column, row) {
    const value = row[column.key];
    const text = value === null || value === undefined ? "" : column.format ? column.format(value, row) : value;
    const made = el("td", { class: classOf(column), "data-exact": column.text ? null : value }, text);
    if (column.bar && value > 0) {
      made.style.setProperty("--part", (100 * value / most[column.key]).toFixed(1) + "%");
      made.classList.add("bar");
    }
    return made;
  }
  function rowOf(row) {
    const made = el("tr", {}, columns.map((column) => cell(column, row)));
    if (!detail) return made;
    const first = made.cells[0];
    const button = el("button", { type: "button", class: "opens", "aria-expanded": "false", tabindex: -1 }, ...first.childNodes);
    first.replaceChildren(button);
    made.className = "opened-by-click";
    // A click on the button is one on its row.
    made.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") === "true";
      button.setAttribute("aria-expanded", String(!open));
      goTo(button);
      if (open) made.nextSibling.remove();
      else made.after(el("tr", { class: "detail" }, el("td", { colspan: columns.length }, detail(row))));
    });
    return made;
  }
  // The button that Tab comes to.
  function goTo(button) {
    for (const each of body.querySelectorAll("button.opens[tabindex='0']")) each.tabIndex = -1;
    if (button) button.tabIndex = 0;
  }
  function goByKey(event) {
    if (!event.target.matches("button.opens") || event.ctrlKey || event.metaKey || event.altKey) return;
    const buttons = [...body.querySelectorAll("button.opens")];
    const at = buttons.indexOf(event.target);
    const ways = { ArrowUp: at - 1, ArrowDown: at + 1, Home: 0, End: buttons.length - 1 };
    if (!(event.key in ways)) return;
    event.preventDefault();
    const to = buttons[Math.max(0, Math.min(buttons.length - 1, ways[event.key]))];
    goTo(to);
    to.focus();
  }
  function draw() {
    body.replaceChildren(...found.slice(0, shown).map(rowOf));
    goTo(body.querySelector("button.opens"));
    const all = found.length === rows.length ? "" : ` of ${formatCount(rows.length)}`;
    count.textContent = `${formatCount(found.length)}${all} row${found.length === 1 && !all ? "" : "s"}`;
    more.hidden = cutOff.hidden = found.length <= shown;
    cutOff.textContent = `The first ${formatCount(shown)} of ${formatCount(found.length)} rows.`;
    more.textContent = `Show more (${formatCount(Math.min(shown, found.length))} of ${formatCount(found.length)} shown)`;
  }
  function order() {
    if (sorted === null) return;
    const sign = descending ? -1 : 1;
    // What has no number comes last either way.
    found = [...found].sort((a, b) => {
      const x = a[sorted] ?? null;
      const y = b[sorted] ?? null;
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (x < y ? -1 : x > y ? 1 : 0);
    });
    columns.forEach((column, i) => {
      if (column.key === sorted) heads[i].setAttribute("aria-sort", descending ? "descending" : "ascending");
      else heads[i].removeAttribute("aria-sort");
    });
  }
  function sortBy(column) {
    descending = sorted === column.key ? !descending : !column.text;
    sorted = column.key;
    order();
    draw();
  }
  function find() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    found = rows.filter((row) => {
      if (only.checked && !range.holds(row)) return false;
      const text = searched.map((column) => (column.format ? column.format(row[column.key], row) : row[column.key]))
        .join("\n").toLowerCase();
      return words.every((word) => text.includes(word));
    });
    shown = rowsAtOnce;
    order();
    draw();
  }
  order();
  draw();
  return root;
}

// {a: [1, 2], b: [3, 4]} -> [{a: 1, b: 3}, {a: 2, b: 4}]
function rowsOf(table) {
  const keys = Object.keys(table);
  if (keys.length === 0) return [];
  return table[keys[0]].map((_, i) => Object.fromEntries(keys.map((key) => [key, table[key][i]])));
}
