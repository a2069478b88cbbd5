// The timeline of a recording: rows of threads and channels, drawn as far as they are in view. Moved by mouse, finger and keyboard.
(() => {
  const source = document.getElementById("timeline-data");
  if (!source) return;
  const data = JSON.parse(source.textContent);
  const box = document.getElementById("timeline-view");
  const canvas = box.querySelector("canvas");
  const said = document.getElementById("timeline-said");
  const lines = document.getElementById("timeline-lines");
  const pen = canvas.getContext("2d");
  const LINE = 18;
  const unitOf = (ns) => (ns >= 1e9 ? ["s", 1e9] : ns >= 1e6 ? ["ms", 1e6] : ns >= 1e3 ? ["us", 1e3] : ["ns", 1]);
  const text = (ns) => {
    const [unit, by] = unitOf(ns);
    return Number((ns / by).toPrecision(4)) + " " + unit;
  };
  // A time on the axis, with as many digits as differ from one mark to the next.
  const mark = (ns, every) => {
    const [unit, by] = unitOf(ns);
    return (ns / by).toFixed(Math.max(0, Math.ceil(Math.log10(by / every) - 1e-9))) + " " + unit;
  };
  // Kernels and copies that ran, where the GPU's times are recorded.
  const gpu = data.gpu ? gpuTracks(data, text) : null;
  const rows = gpu ? gpu.rows : [];
  const rowOf = new Map();
  data.lanes.forEach((lane, n) => {
    // Its name, then a row for each kind of event that it has.
    rows.push({ lane: n, title: lane.name, bins: [], events: [], longest: 0 });
    data.kinds.forEach((kind, k) => {
      if (!lane.bins[k].length) return;
      rowOf.set(n * 16 + k, rows.length);
      rows.push({ lane: n, kind: k, label: kind, bins: lane.bins[k], events: [], longest: 0 });
    });
  });
  for (let i = 0; i < data.events.length; i += 5) {
    const [lane, kind, from, ns, name] = data.events.slice(i, i + 5);
    const row = rows[rowOf.get(lane * 16 + kind)];
    row.events.push({ row, from, ns, name: data.names[name], at: i });
    row.longest = Math.max(row.longest, ns);
  }
  gpu?.join((lane) => rows[rowOf.get(lane * 16)]);
  // What lost the most time comes first. Some of it may be too short to be among the events.
  const lost = data.lost.flatMap((one, n) => {
    const row = rows[rowOf.get(one.lane * 16 + one.kind)];
    if (!row) return [];
    let e = row.events.find((e) => e.from === one.from);
    if (!e) row.events.push((e = { row, from: one.from, ns: one.ns, name: data.names[one.name], at: 1e9 + n }));
    row.longest = Math.max(row.longest, e.ns);
    return [Object.assign(e, { lost: one.lost, lines: one.lines })];
  });
  for (const row of rows) row.events.sort((a, b) => a.from - b.from);
  // The longest first, as they come.
  const all = rows.flatMap((row) => row.events).sort((a, b) => b.ns - a.ns || a.at - b.at);
  let view = { from: 0, to: data.end }, found = null, at = -1, chosen = null, queued = false;

  const top = (n) => 24 + n * LINE;
  const gutter = () => 104;
  const x = (ns) => gutter() + ((ns - view.from) / (view.to - view.from)) * (canvas.clientWidth - gutter());
  const draw = () => {
    queued = false;
    const wide = canvas.clientWidth, high = top(rows.length) + 4, ratio = devicePixelRatio || 1;
    canvas.style.height = high + "px";
    if (canvas.width !== Math.round(wide * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(wide * ratio);
      canvas.height = Math.round(high * ratio);
    }
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    const style = getComputedStyle(document.documentElement);
    // Colours of the page: canvas knows no light-dark().
    const probe = document.createElement("span");
    box.append(probe);
    const known = new Map();
    const colour = (name) => {
      if (!known.has(name)) { probe.style.color = "var(--" + name + ")"; known.set(name, getComputedStyle(probe).color); }
      return known.get(name);
    };
    const [paper, ink, muted, line, fine, bad] = ["paper", "ink", "muted", "line", "fine", "bad"].map(colour);
    const of = [0, 1, 2, 5, 4, 3, 6, 0].map((n) => colour("c" + n));
    ["c3", "c6"].forEach(colour);
    probe.remove();
    pen.fillStyle = paper;
    pen.fillRect(0, 0, wide, high);
    pen.font = "11px " + style.fontFamily;
    pen.textBaseline = "middle";
    // Times.
    const span = view.to - view.from, step = 10 ** Math.floor(Math.log10(span / 3));
    const every = [1, 2, 5].map((n) => n * step).find((n) => ((wide - gutter()) * n) / span > 90) || step * 10;
    pen.fillStyle = muted;
    pen.strokeStyle = fine;
    for (let t = Math.ceil(view.from / every) * every; t <= view.to; t += every) {
      pen.beginPath(); pen.moveTo(x(t), 18); pen.lineTo(x(t), high); pen.stroke();
      pen.fillText(mark(t, every), Math.min(x(t) + 3, wide - 50), 9);
    }
    pen.save();
    pen.beginPath(); pen.rect(gutter(), 18, wide - gutter(), high); pen.clip();
    rows.forEach((row, n) => {
      const y = top(n), most = Math.max(1, ...row.bins.filter((_, i) => i % 2));
      pen.fillStyle = of[row.kind];
      // How much is there: a shade for each bin.
      for (let i = 0; i < row.bins.length; i += 2) {
        const from = x((row.bins[i] * data.end) / data.bins), to = x(((row.bins[i] + 1) * data.end) / data.bins);
        if (to < gutter() || from > wide) continue;
        pen.globalAlpha = 0.12 + 0.25 * (row.bins[i + 1] / most);
        pen.fillRect(from, y + 2, Math.max(1, to - from), LINE - 4);
      }
      if (row.busy) gpu.draw_busy(pen, row, x, y, LINE, wide, colour);
      for (let i = first(row); i < row.events.length && row.events[i].from <= view.to; i++) {
        const e = row.events[i], from = x(e.from), to = x(e.from + e.ns);
        if (to < gutter()) continue;
        const joined = chosen && (e === chosen.call || (e.call && e.call === chosen));
        pen.globalAlpha = found && !e.found && !joined && e !== chosen ? 0.25 : 0.9;
        pen.fillStyle = of[row.kind];
        if (e.kind) gpu.draw_bar(pen, e, x, y, LINE, colour);
        else pen.fillRect(from, y + 3, Math.max(1.5, to - from), LINE - 6);
        if (e === chosen || (found && e.found)) {
          pen.globalAlpha = 1;
          pen.strokeStyle = e === chosen ? ink : bad;
          pen.lineWidth = e === chosen ? 2 : 1;
          pen.strokeRect(from - 1, y + 2, Math.max(3, to - from + 2), LINE - 4);
        }
        if (to - from > 46) {
          pen.save();
          pen.globalAlpha = 1;
          pen.beginPath(); pen.rect(Math.max(from, gutter()), y, Math.min(to, wide) - Math.max(from, gutter()) - 2, LINE); pen.clip();
          if (e.start === 2) {
            // Letters on lines cannot be read.
            pen.fillStyle = paper;
            pen.fillRect(Math.max(from, gutter()) + 1, y + 3, pen.measureText(e.name).width + 4, LINE - 6);
          }
          pen.fillStyle = e.start === 2 ? ink : paper;
          pen.fillText(e.name, Math.max(from, gutter()) + 3, y + LINE / 2);
          pen.restore();
        }
      }
      pen.globalAlpha = 1;
    });
    if (gpu && chosen) gpu.arrows(pen, chosen, x, (row) => top(rows.indexOf(row)), LINE, wide, ink);
    pen.restore();
    // What the rows are of.
    rows.forEach((row, n) => {
      if (row.title && n) { pen.fillStyle = line; pen.fillRect(0, top(n), wide, 1); }
      pen.fillStyle = row.title ? ink : muted;
      pen.font = (row.title ? "600 " : "") + "11px " + style.fontFamily;
      pen.fillText(row.title || row.label, row.title ? 4 : 12, top(n) + LINE / 2 + 1);
    });
  };
  // The first event that may reach into view.
  const first = (row) => {
    let low = 0, high = row.events.length;
    while (low < high) { const m = (low + high) >> 1; if (row.events[m].from + row.longest < view.from) low = m + 1; else high = m; }
    return low;
  };
  const redraw = () => { if (!queued) { queued = true; requestAnimationFrame(draw); } };
  const show = (from, to) => {
    const span = Math.min(Math.max(to - from, 100), data.end);
    from = Math.min(Math.max((from + to - span) / 2, 0), data.end - span);
    view = { from, to: from + span };
    redraw();
  };
  const zoom = (by, around = (view.from + view.to) / 2) =>
    show(around - (around - view.from) * by, around + (view.to - around) * by);
  const move = (part) => { const by = (view.to - view.from) * part; show(view.from + by, view.to + by); };
  const rank = (e) => !e.lost ? "" : (e.row.kind ? "" : "; lost " + text(e.lost)) + "; number " + (lost.indexOf(e) + 1) + " of " + lost.length;
  const choose = (e, go) => {
    chosen = e;
    lines.replaceChildren(...(e?.lines || []).map(([depth, time, what]) => {
      const line = document.createElement("li"), b = document.createElement("b");
      line.className = "d" + depth; b.textContent = time;
      line.append(...(time ? [b, " "] : []), what);
      return line;
    }));
    lines.parentElement.scrollTop = 0;
    if (!e) { said.textContent = "Nothing is chosen."; return redraw(); }
    const took = e.ns ? ", took " + text(e.ns) : "";
    said.textContent = e.tells ? e.tells() : e.name + " (" + data.kinds[e.row.kind] + " of " + data.lanes[e.row.lane].name + ") at " + text(e.from) + took + (e.bars ? gpu.started(e.bars) : "") + rank(e);
    if (go) {
      const span = Math.max(e.ns * 3, e.lost ? 0 : Math.min(view.to - view.from, data.end / 20));
      show(e.from + e.ns / 2 - span / 2, e.from + e.ns / 2 + span / 2);
      const y = top(rows.indexOf(e.row));
      if (y < box.scrollTop || y > box.scrollTop + box.clientHeight - LINE) box.scrollTop = y - box.clientHeight / 2;
    }
    redraw();
  };
  const next = (by) => {
    const list = found || (lost.length ? lost : all);
    if (!list.length) return;
    at = (at + by + list.length) % list.length;
    choose(list[at], true);
  };
  // The kernel or copy that is the next longest after the chosen one, and from a call to what it started and back.
  const has = (kind) => gpu?.bars.some((e) => e.kind === kind);
  const longest = (kind) => () => {
    const list = all.filter((e) => e.kind === kind && (!found || e.found));
    if (list.length) choose(list[(list.indexOf(chosen) + 1) % list.length], true);
  };
  const follow = () => {
    const from = chosen, e = gpu?.other(from);
    if (!e) return;
    choose(e, true);
    // Both are in view, as long as that is.
    const [low, high] = [Math.min(e.from, from.from), Math.max(e.from + e.ns, from.from + from.ns)];
    show(low - (high - low) / 8, high + (high - low) / 8);
  };
  const button = (name, label, action) => {
    const b = document.createElement("button");
    b.type = "button"; b.textContent = name; b.setAttribute("aria-label", label); b.title = label;
    b.addEventListener("click", action);
    return b;
  };
  const search = document.createElement("input");
  search.type = "search"; search.placeholder = "Find events"; search.setAttribute("aria-label", "Find events by name");
  search.addEventListener("input", () => {
    const word = search.value.trim().toLowerCase();
    at = -1; found = word ? all.filter((e) => (e.found = (e.whole || e.name).toLowerCase().includes(word))) : null;
    if (found) said.textContent = found.length + " events found; Enter goes to the longest of them, then to the next";
    redraw();
  });
  search.addEventListener("keydown", (k) => { if (k.key === "Enter") { k.preventDefault(); next(k.shiftKey ? -1 : 1); } });
  const tools = document.getElementById("timeline-tools");
  tools.append(
    button("+", "Zoom in", () => zoom(0.5)), button("-", "Zoom out", () => zoom(2)),
    button("<", "Earlier", () => move(-0.25)), button(">", "Later", () => move(0.25)),
    button("All", "All of the recording", () => show(0, data.end)), button("Next", "Go to " + tools.dataset.next, () => next(1)), search);
  if (gpu) {
    if (has("kernel")) search.before(button("Kernel", "Next longest kernel", longest("kernel")));
    if (has("copy")) search.before(button("Copy", "Next longest copy", longest("copy")));
    search.before(button("Follow", "Follow a kernel or a copy to the call that started it, and back", follow));
  }
  tools.hidden = false; box.parentElement.hidden = false;
  canvas.addEventListener("keydown", (k) => {
    const keys = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), w: () => zoom(0.5), "-": () => zoom(2), s: () => zoom(2),
      ArrowLeft: () => move(-0.1), a: () => move(-0.1), ArrowRight: () => move(0.1), d: () => move(0.1),
      Home: () => show(0, data.end), n: () => next(1), p: () => next(-1), "/": () => search.focus(), Escape: () => choose(null),
    };
    if (gpu) Object.assign(keys, { k: longest("kernel"), c: longest("copy"), Enter: follow });
    if (keys[k.key] && !k.ctrlKey && !k.metaKey && !k.altKey) { k.preventDefault(); keys[k.key](); }
  });
  const ns = (px) => view.from + ((px - gutter()) / (canvas.clientWidth - gutter())) * (view.to - view.from);
  canvas.addEventListener("wheel", (w) => {
    // The page scrolls as ever; with Ctrl, and sideways, the timeline moves.
    if (w.ctrlKey || w.metaKey) { w.preventDefault(); zoom(w.deltaY > 0 ? 1.25 : 0.8, ns(w.offsetX)); }
    else if (Math.abs(w.deltaX) > Math.abs(w.deltaY)) { w.preventDefault(); move(w.deltaX / canvas.clientWidth); }
  }, { passive: false });
  let held = null;
  canvas.addEventListener("pointerdown", (p) => { held = { x: p.offsetX, from: view.from, to: view.to, moved: false }; canvas.setPointerCapture(p.pointerId); });
  canvas.addEventListener("pointermove", (p) => {
    if (!held) return;
    const by = ((held.x - p.offsetX) / (canvas.clientWidth - gutter())) * (held.to - held.from);
    held.moved ||= Math.abs(p.offsetX - held.x) > 3;
    if (held.moved) show(held.from + by, held.to + by);
  });
  canvas.addEventListener("pointerup", (p) => {
    if (held && !held.moved) {
      const row = rows[Math.floor((p.offsetY - 24) / LINE)], t = ns(p.offsetX), near = (view.to - view.from) / 200;
      const hit = row && row.events.filter((e) => t >= e.from - near && t <= e.from + e.ns + near);
      choose(hit && hit.sort((a, b) => a.ns - b.ns)[0] || null);
      if (row?.busy && p.offsetX > gutter()) said.textContent = gpu.tells_busy(row, t);
    }
    held = null;
  });
  canvas.addEventListener("pointercancel", () => { held = null; });
  new ResizeObserver(redraw).observe(box);
  new MutationObserver(redraw).observe(document.documentElement, { attributes: true });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  // It opens at what lost the most time, once it is as high as its rows.
  draw();
  if (lost.length) next(1);
})();
