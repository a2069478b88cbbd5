"use strict";
// Any of the words may be in a section. Sections with more of them come first; a rare word counts more than a common one, a word of a heading more than
// one of the text, and source files and blocks of code less.
const box = document.getElementById("search"), list = document.getElementById("found");
const MOST = 20, EXCERPT = 180;
// Words that are in every section. They count where there are no others.
const COMMON = new Set("a an and are at be by can do does for from how i in is it its me my of on or that the this to was what when with you".split(" "));

const wordsOf = (text) => text.toLowerCase().match(/[\p{L}\p{N}_]+/gu) || [];
const counted = (text) => wordsOf(text).reduce((all, word) => all.set(word, (all.get(word) || 0) + 1), new Map());
// `launch` is in `launches`, and `launches` in `launch`. Words of one or two letters are exact.
const matches = (asked, word) =>
  asked === word || (asked.length > 2 && (word.startsWith(asked) || (word.length > 3 && asked.startsWith(word) && asked.length - word.length < 4)));

function askedIn(query) {
  const typed = [...new Set(wordsOf(query))], rarer = typed.filter((word) => !COMMON.has(word));
  return rarer.length ? rarer : typed;
}

let known;
function sections() {
  return known ||= SECTIONS.map((one) => ({
    one, title: counted(one.page), head: counted(one.head), text: counted(one.text), code: counted(one.code), all: (one.head + " " + one.text).toLowerCase(),
  }));
}

function found(query) {
  const words = askedIn(query), all = sections();
  const times = (counts, asked) => { let n = 0; for (const [word, count] of counts) if (matches(asked, word)) n += count; return n; };
  const rows = all.map(() => ({ weight: 0, score: 0 }));
  let most = 0;
  for (const asked of words) {
    const here = all.map((s) => [times(s.title, asked), times(s.head, asked), times(s.text, asked), times(s.code, asked)]);
    const rare = Math.log(1 + all.length / (1 + here.filter((n) => n.some(Boolean)).length));
    most += rare;
    here.forEach(([title, head, text, code], i) => {
      if (!(title || head || text || code)) return;
      rows[i].weight += rare;
      rows[i].score += rare * (3 * Math.min(title, 1) + 3 * Math.min(head, 1) + Math.min(text, 4) / 2 + Math.min(code, 2) / 4);
    });
  }
  const phrase = wordsOf(query).join(" ");
  const total = ({ weight, score }, { one, all }) =>
    score * (weight / most) ** 2 * (one.source ? 0.2 : 1) * (words.length > 1 && all.includes(phrase) ? 1.5 : 1) * (words.length === 1 && one.page.startsWith("Glossary") ? 1.5 : 1);
  return rows.map((row, i) => [row.weight ? total(row, all[i]) : 0, all[i].one]).filter(([score]) => score > 0)
    .sort((a, b) => b[0] - a[0]).slice(0, MOST).map(([, one]) => one);
}

// The part of a text with the most of the words, which are bold.
function excerpt(text, query) {
  const asked = askedIn(query), places = [];
  for (const match of text.matchAll(/[\p{L}\p{N}_]+/gu)) {
    const word = asked.find((a) => matches(a, match[0].toLowerCase()));
    if (word) places.push({ from: match.index, to: match.index + match[0].length, word });
  }
  const variety = (first) => new Set(places.filter((p) => p.from >= first.from && p.to < first.from + EXCERPT).map((p) => p.word)).size;
  const best = places.reduce((best, p) => (best && variety(best) >= variety(p) ? best : p), null);
  let at = Math.max(0, (best ? best.from : 0) - 20);
  if (at) at = text.indexOf(" ", at) + 1;
  let end = text.length > at + EXCERPT ? text.lastIndexOf(" ", at + EXCERPT) : text.length;
  const small = document.createElement("small");
  small.append(at ? "... " : "");
  for (const place of places.filter((p) => p.from >= at && p.to <= end)) {
    const bold = document.createElement("b");
    bold.textContent = text.slice(place.from, place.to);
    small.append(text.slice(at, place.from), bold);
    at = place.to;
  }
  small.append(text.slice(at, end), end < text.length ? " ..." : "");
  return small;
}

function show() {
  const query = box.value.trim(), all = query ? found(query) : [];
  list.replaceChildren();
  list.hidden = !query;
  for (const one of all) {
    const item = document.createElement("li"), link = document.createElement("a");
    link.href = ROOT + one.url;
    link.textContent = one.page === one.head ? one.page : one.page + " - " + one.head;
    link.append(excerpt(one.text, query));
    item.append(link);
    list.append(item);
  }
  if (query && !all.length) list.append(Object.assign(document.createElement("li"), { textContent: "No section has any of these words." }));
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
