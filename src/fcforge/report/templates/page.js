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
  const place = (text, at) => {
    tip.textContent = text;
    tip.hidden = false;
    const size = tip.getBoundingClientRect();
    const left = Math.min(at.left + at.width / 2 - size.width / 2, innerWidth - size.width - 8);
    const above = at.top - size.height - 8;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above < 4 ? at.bottom + 8 : above}px`;
  };
  const show = (element) => place(element.dataset.tip, element.getBoundingClientRect());
  const near = (event) => event.target.closest && event.target.closest("[data-tip]");
  const enter = (event) => { const element = near(event); if (element) show(element); };
  const leave = () => { tip.hidden = true; };
  document.addEventListener("pointerover", enter);
  document.addEventListener("pointerout", leave);
  document.addEventListener("focusin", enter);
  document.addEventListener("focusout", leave);
  document.addEventListener("scroll", leave, { passive: true });

  // Cells of a figure: the value below the pointer, from numbers of 16 bits.
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer;
  const cellText = (cells, x, y) => {
    const index = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
    if (cells.texts) {
      const row = cells.texts[index(y, cells.texts.length)];
      return row[index(x, row.length)];
    }
    if (!cells.numbers) cells.numbers = new Int16Array(bytes(cells.values));
    const column = index(x, cells.n), row = index(y, cells.rows.length);
    const named = cells.columns.length > 0;
    const value = (r) => {
      const steps = cells.numbers[r * cells.n + column];
      if (steps === -32768) return "n/a";
      return (steps * cells.unit).toFixed(cells.digits).replace(/^-(?=0?\.?0*$)/, "").replace("-", "\u2212");
    };
    const name = named ? cells.columns[column] : `volume ${column + cells.first}`;
    if (cells.every) return `${name}: ${cells.rows.map((r, k) => `${r} ${value(k)}`).join(", ")}`;
    return `${cells.rows[row]}${named ? " \u2013 " : ", "}${name}: ${value(row)}`;
  };
  for (const element of document.querySelectorAll("[data-cells]")) {
    const cells = JSON.parse(element.dataset.cells);
    const move = (event) => {
      const box = element.getBoundingClientRect();
      const x = (event.clientX - box.left) / box.width, y = (event.clientY - box.top) / box.height;
      const at = { left: event.clientX, width: 0, top: event.clientY - 6, bottom: event.clientY + 14 };
      const text = cellText(cells, x, y);
      if (text) place(text, at); else leave();
    };
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerdown", move);
    element.addEventListener("pointerleave", leave);
  }

  // Pointing at an ROI fades the edges that do not end there.
  for (const drawing of document.querySelectorAll(".linked")) {
    const edges = drawing.querySelectorAll("[data-ends]");
    const rois = drawing.dataset.rois ? JSON.parse(drawing.dataset.rois) : {};
    for (const dot of drawing.querySelectorAll("[data-roi]:not([data-tip])")) {
      dot.dataset.tip = rois[dot.dataset.roi];
    }
    const pick = (event) => {
      const roi = event.target.dataset && event.target.dataset.roi;
      drawing.classList.toggle("picked", roi !== undefined);
      for (const edge of edges) {
        edge.classList.toggle("on", roi !== undefined && edge.dataset.ends.split(" ").includes(roi));
      }
    };
    drawing.addEventListener("pointerover", pick);
    drawing.addEventListener("pointerleave", pick);
  }

  // Pointing at a subject marks it in all distributions.
  for (const group of document.querySelectorAll(".strips")) {
    const dots = group.querySelectorAll("a[href]");
    const mark = (event) => {
      const dot = event.target.closest && event.target.closest("a[href]");
      const page = dot && event.type !== "pointerleave" && dot.getAttribute("href");
      for (const other of dots) other.classList.toggle("same", other.getAttribute("href") === page);
    };
    group.addEventListener("pointerover", mark);
    group.addEventListener("pointerleave", mark);
    group.addEventListener("focusin", mark);
  }

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
