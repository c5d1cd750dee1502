"use strict";
// Sorts the scoreboard. The page is readable without it.

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

for (const table of document.querySelectorAll("table.sortable")) {
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
// Print everything, because paper cannot unfold.
window.addEventListener("beforeprint", () => {
  for (const details of document.querySelectorAll("details")) details.open = true;
});
