"use strict";
// Sorts and searches the scoreboard, selects its columns, compares its rows, and filters the test images by label.
// The page is readable without it.

function sortBy(table, heading) {
  const numeric = heading.classList.contains("number");
  const value = (row) => {
    const text = row.cells[heading.dataset.column].innerText.trim();
    return numeric ? parseFloat(text.replaceAll(",", "")) : text;
  };
  // Numbers start with the largest, text with A. A second click reverses the order.
  const orders = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
  const order = orders[Number(heading.getAttribute("aria-sort") === orders[0])];
  const sign = order === "ascending" ? 1 : -1;
  const compare = (one, other) => {
    const [a, b] = [value(one), value(other)];
    if (!numeric) return sign * a.localeCompare(b, "en", { numeric: true });
    // Rows without the number stay at the end in either order.
    return isNaN(a) || isNaN(b) ? isNaN(a) - isNaN(b) : sign * (a - b);
  };
  table.tBodies[0].append(...Array.from(table.tBodies[0].rows).sort(compare));
  for (const other of table.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  heading.setAttribute("aria-sort", order);
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Rows match if they contain every word.
function search(table, text, count) {
  const words = text.toLowerCase().split(/\s+/);
  const rows = Array.from(table.tBodies).flatMap((body) => Array.from(body.rows));
  for (const row of rows) {
    const content = row.textContent.toLowerCase();
    row.hidden = !words.every((word) => content.includes(word));
  }
  count.textContent = text.trim() ? `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows` : "";
}

function columnChoice(table, heading, onchange) {
  const checked = !heading.classList.contains("hidden");
  const box = element("input", { type: "checkbox", checked });
  box.addEventListener("change", () => {
    for (const row of table.rows) row.cells[heading.dataset.column].classList.toggle("hidden", !box.checked);
    onchange();
  });
  return element("label", {}, box, heading.textContent);
}

function addToolbar(table) {
  const count = element("output", {});
  const field = element("input", { type: "search", placeholder: "Search rows", ariaLabel: "Search rows" });
  field.addEventListener("input", () => search(table, field.value, count));
  const headings = Array.from(table.querySelectorAll("th[data-column]"));
  const more = element("span", {});
  const onchange = () => {
    const hidden = headings.filter((heading) => heading.classList.contains("hidden")).map((heading) => heading.textContent);
    more.textContent = hidden.length ? `More columns: ${hidden.slice(0, 3).join(", ")}${hidden.length > 3 ? " …" : ""}` : "";
  };
  onchange();
  const choices = headings.map((heading) => columnChoice(table, heading, onchange));
  const columns = element("details", {}, element("summary", { textContent: "Columns" }), ...choices);
  table.closest(".scroll").before(element("div", { className: "toolbar" }, field, columns, more, count));
}

for (const table of document.querySelectorAll("table.sortable")) {
  addToolbar(table);
  for (const heading of table.querySelectorAll("th[data-column]")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    heading.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => sortBy(table, heading));
  }
}

for (const box of document.querySelectorAll(".pictures:has(li[data-actual])")) {
  const images = Array.from(box.querySelectorAll("li[data-actual]"));
  const count = element("output", {});
  const choices = ["actual", "predicted"].map((name) => {
    const labels = [...new Set(images.map((image) => image.dataset[name]))].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    return element("select", { name }, new Option("any", ""), ...labels.map((label) => new Option(label)));
  });
  const onchange = () => {
    for (const image of images) image.hidden = choices.some(({ name, value }) => value && value !== image.dataset[name]);
    count.textContent = `${images.filter((image) => !image.hidden).length} of ${images.length} examples`;
  };
  const labels = choices.map((choice) => element("label", {}, `${choice.name} label `, choice));
  box.prepend(element("div", { className: "toolbar", onchange }, ...labels, count));
}

// Comparison of two to four rows of the scoreboard, from the data of the page.
const LETTERS = "ABCD";
const section = document.querySelector("section[aria-labelledby=compare]");
const data = JSON.parse(document.getElementById("compare-data")?.textContent ?? "null");

function shape(name, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function tableOf(label, titles, rows) {
  const cell = (text, index, scope) =>
    element(scope || index === 0 ? "th" : "td", { ...(scope || index === 0 ? { scope: scope || "row" } : {}) }, text);
  const head = element("tr", {}, ...titles.map((title, index) => cell(title, index, "col")));
  const lines = rows.map((row) => element("tr", {}, ...row.map((text, index) => cell(text, index))));
  const table = element("table", {}, element("caption", {}, label), element("thead", {}, head), element("tbody", {}, ...lines));
  return element("div", { className: "scroll", tabIndex: 0, role: "group", ariaLabel: label }, table);
}

function number(value, decimals) {
  return value.toLocaleString("en", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
}

// The indices of the examples that only the first or only the second row gets right, null if they are unknown.
function onlyOneRight(a, b) {
  if (a.test === null || a.test !== b.test) return null;
  const test = data.tests[a.test];
  const [x, y] = [a, b].map((row) => atob(test.bits[row.id]));
  const right = (bytes, index) => (bytes.charCodeAt(index >> 3) >> (7 - (index & 7))) & 1;
  const indices = test.keys.map((_, index) => index);
  return [indices.filter((i) => right(x, i) > right(y, i)), indices.filter((i) => right(y, i) > right(x, i))];
}

// Whether two rows differ in a metric by more than noise, as judged in pipeline/report/sections/compare.py.
function verdict(a, b, metric) {
  const [first, second] = [a, b].map((row) => data.rows.indexOf(row)).sort((x, y) => x - y);
  return data.verdicts[data.rows[second].judged[metric]?.[first]] ?? "";
}

function panel(title, rows, columns) {
  const lines = rows.flatMap((row, run) => columns.map((column, index) => ({
    name: LETTERS[run] + (index ? ", training" : ""), color: `var(--run-${run + 1})`, isDashed: index > 0,
    points: row.curves[0].map((epoch, place) => [epoch, row.curves[column][place]]).filter((point) => point[1] !== null),
  }))).filter((line) => line.points.length);
  if (!lines.length) return "";
  const xs = lines.flatMap((line) => line.points.map((point) => point[0]));
  const ys = lines.flatMap((line) => line.points.map((point) => point[1]));
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  const scale = title === "Loss" && low > 0 && high > 10 * low ? Math.log : Number;
  const show = (value) => (title === "Loss" ? String(Number(value.toPrecision(4))) : `${number(100 * value, 2)}%`);
  const place = ([x, y]) => [
    48 + (270 * (x - left)) / (right - left || 1), 185 - (155 * (scale(y) - scale(low))) / (scale(high) - scale(low) || 1),
  ];
  const text = (x, y, content, attributes) => shape("text", { x, y, "font-size": 8, fill: "currentColor", ...attributes }, content);
  let labelY = -Infinity;
  const drawn = lines.sort((a, b) => place(a.points.at(-1))[1] - place(b.points.at(-1))[1]).flatMap(({ name, color, isDashed, points }) => {
    const [endX, endY] = place(points.at(-1));
    if (!isDashed) labelY = Math.max(endY + 3, labelY + 9);
    const path = { points: points.map((point) => place(point).join()).join(" "), fill: "none", stroke: color };
    return [
      shape("polyline", { ...path, "stroke-width": isDashed ? 1.2 : 2, "stroke-dasharray": isDashed ? "4 3" : "none" }),
      ...(isDashed ? [] : [text(endX + 6, labelY, name, { fill: color, "font-weight": "bold" })]),
      ...points.map((point) => shape("circle", { cx: place(point)[0], cy: place(point)[1], r: 5, fill: "transparent" },
        shape("title", {}, `${name}, epoch ${point[0]}: ${show(point[1])}`))),
    ];
  });
  return shape("svg", { viewBox: "0 0 340 215", "aria-hidden": "true" }, text(48, 12, title, { "font-weight": "bold" }),
    text(42, 188, show(low), { "text-anchor": "end" }), text(42, 33, show(high), { "text-anchor": "end" }),
    text(48, 203, `epoch ${left}`), text(318, 203, `epoch ${right}`, { "text-anchor": "end" }), ...drawn);
}

function comparison(rows) {
  const titles = rows.map((_, index) => LETTERS[index]);
  const others = rows.slice(1).map((row, index) => [row, LETTERS[index + 1]]);
  const settings = Object.keys(rows[0].settings).filter((name) => new Set(rows.map((row) => row.settings[name])).size > 1);
  const metrics = data.metrics.map(([title, factor, decimals, unit], metric) => [title, ...rows.map((row) => {
    const [a, b] = [rows[0].means[metric], row.means[metric]];
    if (row === rows[0] || a === null || b === null) return row.texts[metric];
    const change = number(factor * (b - a), decimals).replace("-", "−");
    const judged = verdict(rows[0], row, metric);
    return `${row.texts[metric]} (${b > a ? "+" : ""}${change}${unit === "%" ? " points" : unit}${judged && `, ${judged}`})`;
  })]).filter((cells) => cells.slice(1).some((text) => text !== "–"));
  const range = (values) => Math.max(...values) - Math.min(...values);
  const labels = Object.keys(rows[0].recalls).filter((name) => rows.every((row) => name in row.recalls))
    .map((name) => [name, rows.map((row) => row.recalls[name])]).filter((label) => range(label[1])).sort((a, b) => range(b[1]) - range(a[1])).slice(0, 10);
  const examples = others.flatMap(([row, letter]) => (onlyOneRight(rows[0], row) ?? []).map((indices, index) => {
    const names = indices.slice(0, 20).map((i) => `${data.tests[row.test].keys[i]} (${data.tests[row.test].labels[i]})`);
    const pair = index ? `${letter}, not A` : `A, not ${letter}`;
    return [pair, number(indices.length, 0), names.join(", ") + (indices.length > 20 ? ", …" : "")];
  }));
  const isComparable = rows.every((row) => row.data !== null && String(row.data) === String(rows[0].data));
  return [
    element("dl", { className: "facts" }, ...rows.map((row, index) => element("div", {}, element("dt", {}, titles[index]), element("dd", {}, row.name)))),
    ...(isComparable ? [] : [element("p", { className: "finding" }, "The rows have different or unknown test data, so their metrics are not comparable.")]),
    ...(settings.length ? [tableOf("Different settings", ["setting", ...titles], settings.map((name) => [name, ...rows.map((row) => row.settings[name])]))] : []),
    tableOf("Metrics, with the difference from A", ["metric", ...titles], metrics),
    element("p", { className: "note" }, data.notes[Number(rows.some((row) => row.seeds > 1))]),
    ...(rows.some((row) => row.curves[0].length > 1) ? [element("div", { className: "panels", role: "img", ariaLabel: "Accuracy and loss by epoch, test solid, training dashed" },
      panel("Accuracy", rows, [1, 2]), panel("Loss", rows, [3, 4]))] : []),
    ...(labels.length ? [tableOf("Recall of the labels that differ most", ["label", ...titles], labels.map(([name, recalls]) => [name, ...recalls.map((recall) => `${number(100 * recall, 1)}%`)]))] : []),
    ...(examples.length ? [tableOf("Test examples that only one row gets right", ["right", "examples", "names"], examples)] : []),
  ];
}

if (data && section) {
  const [heading, note, ...initial] = section.children;
  const entries = new Map(data.rows.map((row) => [`#${row.id}`, row]));
  // The oldest rows may be missing from the data.
  const shown = data.shown.map((id) => entries.get(`#${id}`));
  if (shown.every(Boolean)) initial.splice(0, Infinity, ...comparison(shown));
  const hint = element("p", { className: "note", textContent: "Tick two to four rows of the scoreboard to compare them." });
  const jump = element("a", { href: "#compare" });
  document.querySelector(".toolbar")?.append(jump);
  const links = Array.from(document.querySelectorAll(".scoreboard a[href^='#run-']")).filter((link) => entries.has(link.hash));
  const boxes = links.map((link) => element("input", { type: "checkbox", ariaLabel: `Compare ${link.textContent}` }));
  const update = () => {
    const rows = links.filter((_, index) => boxes[index].checked).map((link) => entries.get(link.hash));
    jump.textContent = `Compare ${rows.length} rows`;
    jump.hidden = rows.length < 2;
    for (const box of boxes) box.disabled = !box.checked && rows.length === LETTERS.length;
    section.replaceChildren(heading, hint, ...(rows.length > 1 ? comparison(rows) : [note, ...initial]));
  };
  links.forEach((link, index) => link.closest("tr").cells[0].prepend(boxes[index]));
  for (const box of boxes) box.addEventListener("change", update);
  update();
}

document.documentElement.classList.add("scripted");
// Folded entries open when a link leads to them.
function unfold() {
  const target = document.getElementById(location.hash.slice(1));
  for (let box = target; box; box = box.parentElement) if (box.tagName === "DETAILS") box.open = true;
  target?.scrollIntoView();
}
window.addEventListener("hashchange", unfold);
unfold();
for (const command of document.querySelectorAll("pre.command")) {
  const button = element("button", { type: "button", textContent: "Copy" });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      // The clipboard is not available. The reader copies the selection.
      getSelection().selectAllChildren(command);
    }
  });
  command.after(button);
}
// Print everything, because paper cannot unfold.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
// A page that tensorcraft report --serve serves reloads when it changes.
if (["127.0.0.1", "localhost"].includes(location.hostname)) {
  setInterval(async () => {
    const answer = await fetch(location.pathname, { method: "HEAD", cache: "no-store" }).catch(() => null);
    const changed = answer?.ok && Date.parse(answer.headers.get("Last-Modified"));
    if (changed > Date.parse(document.lastModified)) location.reload();
  }, 1000);
}
