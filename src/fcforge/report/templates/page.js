"use strict";
// Sort tables by a click on a heading, show values at the pointer, mark the section in view.
(() => {
  const number = (text) => {
    const match = text.replace(/\u2212/g, "-").match(/-?\d+(\.\d+)?/);
    return match ? parseFloat(match[0]) : NaN;
  };
  const compare = (a, b) => {
    const x = number(a), y = number(b);
    if (isNaN(x) && isNaN(y)) return a.localeCompare(b);
    if (isNaN(x) || isNaN(y)) return isNaN(x) ? 1 : -1; // missing values last
    return x - y;
  };
  const text = (row, column) => {
    const cell = row.children[column];
    return (cell.dataset.sort || (cell.querySelector("span") || cell).textContent).trim();
  };

  // References (quiet rows) stay above the learners.
  const sort = (table, heading) => {
    const column = heading.cellIndex;
    const words = heading.classList.contains("words");
    const before = heading.getAttribute("aria-sort");
    const first = words ? "ascending" : "descending";
    const second = words ? "descending" : "ascending";
    const order = before === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    const body = table.tBodies[0];
    const key = (row) => text(row, column);
    const missing = (value) => !words && isNaN(number(value));
    const rows = [...body.rows].sort((a, b) => {
      const quiet = b.classList.contains("quiet") - a.classList.contains("quiet");
      if (quiet) return quiet;
      if (missing(key(a)) !== missing(key(b))) return missing(key(a)) - missing(key(b));
      return sign * (words ? key(a).localeCompare(key(b)) : compare(key(a), key(b)));
    });
    table.querySelectorAll("[aria-sort]").forEach((h) => h.removeAttribute("aria-sort"));
    heading.setAttribute("aria-sort", order);
    rows.forEach((row) => body.appendChild(row));
  };
  for (const table of document.querySelectorAll("table.results")) {
    if (table.tBodies[0].rows.length < 2) continue;
    for (const heading of table.tHead.rows[0].cells) {
      heading.classList.add("sortable");
      heading.tabIndex = 0;
      heading.addEventListener("click", () => sort(table, heading));
      heading.addEventListener("keydown", (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        sort(table, heading);
      });
    }
  }

  // One tooltip for all; a title becomes one, so that it also shows on touch and on focus.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.setAttribute("role", "tooltip");
  tip.hidden = true;
  document.body.appendChild(tip);
  for (const element of document.querySelectorAll("[title]")) {
    element.dataset.tip = element.title;
    element.setAttribute("aria-description", element.title);
    element.removeAttribute("title");
  }
  const show = (element) => {
    tip.textContent = element.dataset.tip;
    tip.hidden = false;
    const at = element.getBoundingClientRect(), size = tip.getBoundingClientRect();
    const left = Math.min(at.left + at.width / 2 - size.width / 2, innerWidth - size.width - 8);
    const above = at.top - size.height - 8;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above < 4 ? at.bottom + 8 : above}px`;
  };
  const near = (event) => event.target.closest && event.target.closest("[data-tip]");
  const enter = (event) => { const element = near(event); if (element) show(element); };
  const leave = () => { tip.hidden = true; };
  document.addEventListener("pointerover", enter);
  document.addEventListener("pointerout", leave);
  document.addEventListener("focusin", enter);
  document.addEventListener("focusout", leave);
  document.addEventListener("scroll", leave, { passive: true });

  const links = new Map();
  for (const link of document.querySelectorAll("nav.toc a")) {
    const section = document.getElementById(link.hash.slice(1));
    if (section) links.set(section, link);
  }
  const visible = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) {
      if (entry.isIntersecting) visible.add(entry.target); else visible.delete(entry.target);
    }
    const current = [...links.keys()].find((section) => visible.has(section));
    for (const [section, link] of links) {
      if (section === current) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-60px 0px -40% 0px" });
  links.forEach((_, section) => observer.observe(section));
})();
