// The GPU's tracks of a timeline: how busy each stream or channel was, bars of its kernels or copies in lanes, and arrows from calls to what they started.
const gpuTracks = (data, text) => {
  const gpu = data.gpu, of_call = new Map();
  const colours = { kernel: "c6", copy: "c3" }, many = { kernel: "kernels", copy: "copies" };
  const starts = ["the stream was idle", "right after the kernel before it", "", "the GPU stored its start"];
  // As `show --gpu-times` prints it.
  const at = (ns) => (ns / 1e9).toFixed(6) + " s";
  const extent = (e) => e.from + e.ns;
  // A title, the share of time in each bin, then a row for each lane.
  const rows = gpu.tracks.flatMap((track, n) => [
    { track: n, title: track.title, bins: [], events: [], longest: 0 },
    { track: n, label: "busy", kind_of_bars: gpu.kinds[track.kind], busy: track.busy, bins: [], events: [], longest: 0 },
    ...Array.from({ length: track.lanes }, (_, lane) => ({ track: n, label: lane ? "" : many[gpu.kinds[track.kind]], lane, bins: [], events: [], longest: 0 })),
  ]);
  const lanes = new Map(rows.filter((row) => row.lane !== undefined).map((row) => [row.track * 64 + row.lane, row]));
  const bars = [];
  let last = 0;
  for (let i = 0; i < gpu.bars.length; i += 11) {
    const [track, lane, kind, later, ns, name, start, earlier, queued, grid, call] = gpu.bars.slice(i, i + 11);
    last += later;
    const [short, whole] = gpu.names[name], row = lanes.get(track * 64 + lane);
    const bar = {
      row, from: last, ns, name: short, at: i, kind: gpu.kinds[kind], whole: whole || short, start: start & 3, in_graph: start > 3,
      earlier, queued, grid: gpu.grids[grid], number: call,
    };
    bar.tells = () => tells(bar);
    row.events.push(bar);
    // What is before a bounded bar is drawn, too.
    row.longest = Math.max(row.longest, ns);
    bars.push(bar);
  }
  // Joins calls with what they launched. Calls that are no events yet become some.
  const join = (row_of) => {
    const calls = [];
    for (let i = 0; i < gpu.calls.length; i += 4) {
      const [lane, from, ns, name] = gpu.calls.slice(i, i + 4), row = row_of(lane);
      if (!of_call.has(row)) of_call.set(row, new Map(row.events.map((e) => [e.from, e])));
      let call = of_call.get(row).get(from);
      if (!call) {
        call = { row, from, ns, name: data.names[name], at: data.events.length + i };
        row.events.push(call);
        row.longest = Math.max(row.longest, ns);
      }
      call.bars = [];
      calls.push(call);
    }
    for (const bar of bars) {
      if (bar.number < 0) continue;
      bar.call = calls[bar.number];
      bar.call?.bars.push(bar);
    }
  };
  const tells = (bar) => {
    const bounded = bar.start === 2;
    const start = !bounded ? starts[bar.start]
      : bar.earlier ? "its start is bounded: from " + text(bar.earlier) + " before this time to its end" : "its start is bounded: at this time or later";
    const verb = bar.kind === "copy" ? "made" : "launched";
    const call = bar.call
      ? verb + " by " + bar.call.name + " of " + data.lanes[bar.call.row.lane].name + " at " + at(bar.call.from)
      : "no call " + verb + " it that is recorded";
    return bar.whole + " (" + bar.kind + (bar.in_graph ? " of a graph" : "") + ") at " + at(bar.from) + ", took " + (bounded ? "at most " : "") + text(bar.ns) +
      "; " + start + "; queued " + text(bar.queued) + "; " + bar.grid + "; " + call;
  };
  // A pattern of lines, so that a bounded start is told without its colour.
  let hatched = null;
  const hatch = (pen, colour) => {
    if (hatched?.colour === colour) return hatched.pattern;
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const t = tile.getContext("2d");
    t.strokeStyle = colour; t.lineWidth = 1.4;
    for (const at of [-6, 0, 6]) { t.beginPath(); t.moveTo(at, 6); t.lineTo(at + 6, 0); t.stroke(); }
    hatched = { colour, pattern: pen.createPattern(tile, "repeat") };
    return hatched.pattern;
  };
  const draw_bar = (pen, bar, x, y, high, colour) => {
    const from = x(bar.from), wide = Math.max(1.5, x(extent(bar)) - from), shade = colour(colours[bar.kind] || "c6");
    pen.fillStyle = shade;
    if (bar.start !== 2) return pen.fillRect(from, y + 3, wide, high - 6);
    const before = x(bar.from - bar.earlier);
    pen.fillRect(before, y + high / 2 - 1, from - before, 2);
    pen.fillStyle = wide > 4 ? hatch(pen, shade) : shade;
    pen.fillRect(from, y + 3, wide, high - 6);
    pen.strokeStyle = shade; pen.lineWidth = 1;
    if (wide > 4) pen.strokeRect(from + 0.5, y + 3.5, wide - 1, high - 7);
  };
  const draw_busy = (pen, row, x, y, high, wide, colour) => {
    pen.fillStyle = colour(colours[row.kind_of_bars]);
    pen.globalAlpha = 0.65;
    for (let i = 0; i < row.busy.length; i += 2) {
      const from = x((row.busy[i] * data.end) / gpu.bins), to = x(((row.busy[i] + 1) * data.end) / gpu.bins);
      if (to < 0 || from > wide) continue;
      const up = Math.max(1, (row.busy[i + 1] / 1000) * (high - 4));
      pen.fillRect(from, y + high - 2 - up, Math.max(1, to - from), up);
    }
    pen.globalAlpha = 1;
  };
  // From the doorbell within the call to the start of each bar.
  const arrows = (pen, chosen, x, y_of, high, wide, ink) => {
    const pairs = chosen.call ? [[chosen.call, chosen]] : (chosen.bars || []).map((bar) => [chosen, bar]);
    pen.strokeStyle = pen.fillStyle = ink;
    pen.lineWidth = 1.2;
    for (const [call, bar] of pairs.slice(0, 400)) {
      const rung = Math.min(Math.max(bar.from - bar.queued, call.from), extent(call));
      const [a, b] = [x(rung), x(bar.from)], up = y_of(bar.row) < y_of(call.row);
      if (Math.max(a, b) < 0 || Math.min(a, b) > wide) continue;
      const [from, to] = [y_of(call.row) + (up ? 2 : high - 2), y_of(bar.row) + (up ? high - 2 : 2)], way = up ? 1 : -1;
      pen.beginPath(); pen.moveTo(a, from);
      pen.bezierCurveTo(a, (from + to) / 2, b, (from + to) / 2, b, to + 6 * way); pen.stroke();
      pen.beginPath(); pen.moveTo(b, to); pen.lineTo(b - 3.5, to + 7 * way); pen.lineTo(b + 3.5, to + 7 * way); pen.fill();
    }
  };
  const tells_busy = (row, t) => {
    const bin = Math.floor((t * gpu.bins) / data.end), at = row.busy.findIndex((n, i) => i % 2 === 0 && n === bin);
    const share = at < 0 ? 0 : row.busy[at + 1] / 10, edge = (n) => text((n * data.end) / gpu.bins);
    return "A " + row.kind_of_bars + " ran for " + share.toFixed(1) + " % of the time from " + edge(bin) + " to " + edge(bin + 1) + " (" + gpu.tracks[row.track].title.split(": busy")[0] + ")";
  };
  // The call of a bar, the first bar of a call.
  const other = (e) => e?.call || e?.bars?.[0];
  // What of a call is drawn.
  const started = (bars) => gpu.kinds.map((kind) => {
    const n = bars.filter((bar) => bar.kind === kind).length, verb = kind === "copy" ? "made" : "launched";
    return !n ? "" : n > 1 ? "; " + n + " of the " + many[kind] + " that it " + verb + " are drawn" : "; a " + kind + " that it " + verb + " is drawn";
  }).join("");
  return { rows, bars, join, draw_bar, draw_busy, arrows, tells_busy, other, started };
};
