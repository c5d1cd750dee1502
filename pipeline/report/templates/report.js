"use strict";
// Sorts and searches the scoreboard, and selects its columns. The page is readable without it.

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

function columnChoice(table, heading) {
  const checked = !heading.classList.contains("hidden");
  const box = element("input", { type: "checkbox", checked });
  box.addEventListener("change", () => {
    for (const row of table.rows) row.cells[heading.dataset.column].classList.toggle("hidden", !box.checked);
  });
  return element("label", {}, box, heading.textContent);
}

function addToolbar(table) {
  const count = element("output", {});
  const field = element("input", { type: "search", placeholder: "Search rows", ariaLabel: "Search rows" });
  field.addEventListener("input", () => search(table, field.value, count));
  const choices = Array.from(table.querySelectorAll("th[data-column]"), (heading) => columnChoice(table, heading));
  const columns = element("details", {}, element("summary", { textContent: "Columns" }), ...choices);
  table.closest(".scroll").before(element("div", { className: "toolbar" }, field, columns, count));
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
