"use strict";
// Sort a table by a column: click a heading, click again to turn the order round.
for (const table of document.querySelectorAll("table.results")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, k) => {
    const button = head.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const text = head.dataset.kind === "text";
      const down = now ? now === "ascending" : !text;
      const sign = down ? -1 : 1;
      const value = (row) => row.cells[k].dataset.value ?? row.cells[k].textContent.trim();
      const rows = [...body.rows].sort((a, b) => {
        const x = value(a), y = value(b);
        if (text) return sign * x.localeCompare(y);
        // An undefined number goes last whichever way the column is sorted.
        if (x === "" || y === "") return (x === "") - (y === "");
        return sign * (Number(x) - Number(y));
      });
      heads.forEach((h) => h.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    });
  });
}
// Paper cannot be opened: show all that is folded away.
window.addEventListener("beforeprint", () => {
  for (const d of document.querySelectorAll("details")) d.open = true;
});
