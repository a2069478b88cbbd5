"use strict";
// Tools of tables: their data as a file, a filter and an order for long ones. Nothing here asks a network for anything.
(() => {
  const look = document.getElementById("look");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.look || (dark.matches ? "dark" : "light")) === "dark";
  const name = () => { look.textContent = isDark() ? "Light" : "Dark"; };
  look.hidden = false;
  look.addEventListener("click", () => {
    document.documentElement.dataset.look = isDark() ? "light" : "dark";
    name();
  });
  dark.addEventListener("change", name);
  name();

  const value = (cell) => cell.dataset.v ?? (cell.textContent === "-" ? "" : cell.textContent);
  const UNITS = { us: 1e3, ms: 1e6, s: 1e9, KiB: 2 ** 10, MiB: 2 ** 20, GiB: 2 ** 30 };
  // The first number of a text, in the smallest unit of its kind.
  const number = (text) => {
    const [, digits, unit] = text.match(/(-?\d[\d,.]*)\s*(\w*)/) || [];
    return digits ? Number(digits.replaceAll(",", "")) * (UNITS[unit] || 1) : NaN;
  };
  const quoted = (text) => {
    // A spreadsheet takes what begins like this for a formula.
    const safe = /^[=+@\t\r]|^-(?![\d.])/.test(text) ? "'" + text : text;
    return /[",\n]/.test(safe) ? '"' + safe.replaceAll('"', '""') + '"' : safe;
  };
  const csv = (table) => {
    const head = [...table.tHead.rows[0].cells].map((c) => c.textContent + (c.dataset.unit ? " (" + c.dataset.unit + ")" : ""));
    const rows = [...table.tBodies[0].rows].map((row) => [...row.cells].map(value));
    return [head, ...rows].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  };
  const button = (text, action) => {
    const b = document.createElement("button");
    b.type = "button";
    b.textContent = text;
    b.addEventListener("click", action);
    return b;
  };
  const save = (table) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(table)], { type: "text/csv" }));
    link.download = (table.dataset.name || "table") + ".csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const filter = (table) => {
    const input = document.createElement("input");
    input.type = "search";
    input.placeholder = "Filter rows";
    input.setAttribute("aria-label", "Filter rows of: " + table.caption.textContent);
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
      }
    });
    return input;
  };
  const order = (table, head, at) => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const key = (row) => {
      const cell = row.cells[at];
      const text = value(cell);
      return cell.classList.contains("n") ? number(text) : text;
    };
    const rows = [...table.tBodies[0].rows].map((row) => [key(row), row]);
    rows.sort(([a], [b]) => {
      const missing = Number(a !== a) - Number(b !== b);
      if (missing) return missing;
      const less = typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
      return down ? -less : less;
    });
    table.tBodies[0].append(...rows.map(([, row]) => row));
  };
  const equip = (table) => {
    const tools = document.createElement("div");
    tools.className = "tools";
    const save_button = button("Download CSV", () => save(table));
    save_button.setAttribute("aria-label", "Download CSV: " + table.caption.textContent);
    tools.append(save_button);
    if (table.dataset.many !== undefined) {
      tools.append(filter(table));
      [...table.tHead.rows[0].cells].forEach((head, at) => {
        const text = head.textContent;
        head.textContent = "";
        head.append(button(text, () => order(table, head, at)));
      });
    }
    const scroll = table.closest(".scroll");
    scroll.parentElement.insertBefore(tools, table.dataset.many === undefined ? scroll.nextSibling : scroll);
  };
  // Those that are folded get their tools when they are opened.
  for (const table of document.querySelectorAll("table")) {
    const folded = table.closest("details");
    if (folded && !folded.open) folded.addEventListener("toggle", () => equip(table), { once: true });
    else equip(table);
  }
})();
