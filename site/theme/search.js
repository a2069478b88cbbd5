"use strict";
// All words must be in a section. A word in a heading, the words as they were typed and the glossary count more, source files less.
const box = document.getElementById("search"), list = document.getElementById("found");

function found(query) {
  const words = query.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const scored = [];
  for (const one of SECTIONS) {
    const head = (one.page + " " + one.head).toLowerCase(), text = one.text.toLowerCase();
    let score = 0;
    for (const word of words) {
      const here = (head.includes(word) ? 20 : 0) + Math.min(5, text.split(word).length - 1);
      if (!here) { score = 0; break; }
      score += here;
    }
    if (score && words.length > 1 && (head + " " + text).includes(words.join(" "))) score += 40;
    if (score && words.length === 1 && one.page.startsWith("Glossary")) score += 15;
    if (score) scored.push([one.source ? score / 10 : score, one]);
  }
  return scored.sort((a, b) => b[0] - a[0]).slice(0, 20).map(([, one]) => one);
}

function show() {
  const query = box.value.trim(), all = found(query);
  list.replaceChildren();
  list.hidden = !query;
  for (const one of all) {
    const item = document.createElement("li"), link = document.createElement("a"), small = document.createElement("small");
    const at = Math.max(0, one.text.toLowerCase().indexOf(query.toLowerCase().split(/\s+/)[0]) - 60);
    link.href = ROOT + one.url;
    link.textContent = one.page === one.head ? one.page : one.page + ": " + one.head;
    small.textContent = one.text.slice(at, at + 180);
    link.append(small);
    item.append(link);
    list.append(item);
  }
  if (query && !all.length) list.append(Object.assign(document.createElement("li"), { textContent: "No section has all of these words." }));
}

box.addEventListener("input", show);
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== box) { event.preventDefault(); box.focus(); }
  if (event.key === "Escape") { box.value = ""; show(); box.blur(); }
  if (event.key === "Enter" && document.activeElement === box) { const first = list.querySelector("a"); if (first) location.href = first.href; }
});
document.addEventListener("click", (event) => { if (!list.contains(event.target) && event.target !== box) list.hidden = true; });
// A wide screen shows the pages of the part; a phone shows them on demand.
if (matchMedia("(max-width: 50rem)").matches) document.querySelector(".pages").open = false;
