// The machine at work: what lies on a wafer, the tree between systems and MemoryX, what stalls.

const PIECES = { code: "faint", "kept for the backward pass": "blue", "working set": "orange", streams: "green" };

function drawWafer(wafer, point) {
  const [columns, rows] = wafer.used;
  const height = 250, side = height - 36, wide = side * wafer.columns / wafer.rows, x = 14;
  const used = [wide * columns / wafer.columns, side * rows / wafer.rows];
  const io = (at) => make("rect", { x: at, y: 18, width: 5, height: side, rx: 2, class: "fill-purple" });
  const parts = [
    label(x, 10, `${whole(wafer.columns)} × ${whole(wafer.rows)} PEs`),
    io(x - 9), io(x + wide + 4),
    make("rect", { x, y: 18, width: wide, height: side, rx: 3, class: "fill-light" }),
    make("rect", { x, y: 18, width: used[0], height: used[1], rx: 3, class: "fill-blue", opacity: 0.85 }),
    label(x, height - 3, `${wafer.layer} on ${percent(columns * rows / (wafer.columns * wafer.rows))} of them`),
  ];
  const left = x + wide + 42, bar = 30;
  const free = wafer.capacity_bytes - Object.values(wafer.pieces).reduce((sum, each) => sum + each, 0);
  const pieces = [...Object.entries(wafer.pieces), ["free", Math.max(0, free)]];
  const middles = [];
  let y = 18 + side;
  for (const [name, size] of pieces) {
    const tall = side * size / wafer.capacity_bytes;
    y -= tall;
    middles.push(y + tall / 2 + 4);
    parts.push(make("rect", { x: left, y, width: bar, height: tall, class: `fill-${PIECES[name] ?? "light"}` }, make("title", {}, `${name}: ${bytes(size)}`)));
  }
  const heights = apart(middles, 29, 30, height - 26);
  pieces.forEach(([name, size], index) => {
    parts.push(label(left + bar + 10, heights[index] - 4, name, { class: `text-${PIECES[name] ?? "faint"}` }),
      label(left + bar + 10, heights[index] + 10, bytes(size)));
  });
  parts.push(label(left, 10, `SRAM of ${bytes(wafer.capacity_bytes)}`));
  const again = wafer.recomputed ? `; ${whole(wafer.recomputed)} segments run twice, to keep less` : "";
  return [svg(420, height, `A wafer with the products of ${wafer.layer}, and its SRAM`, ...parts),
    make("p", { class: "note" }, `Micro-batches of ${whole(point.micro_batch)} samples, ${point.rounds === 1 ? "one round" : `${whole(point.rounds)} rounds`} a step${again}. The peak is at ${wafer.peak}.`)];
}

function drawTree(point) {
  const width = 420, height = 250, levels = [1, ...point.switches, point.systems];
  const step = (height - 46) / (levels.length - 1);
  const place = (level, index) => [width * (index + 0.5) / levels[level], 20 + level * step];
  const parts = [], thick = (share) => 0.8 + 5 * Math.min(1, share) / Math.sqrt(Math.max(1, point.systems / 8));
  for (let level = 1; level < levels.length; level++)
    for (let index = 0; index < levels[level]; index++) {
      const above = Math.floor(index * levels[level - 1] / levels[level]);
      const [x1, y1] = place(level - 1, above), [x2, y2] = place(level, index);
      const way = (dx, color, share) => make("line", { x1: x1 + dx, y1, x2: x2 + dx, y2, class: `stroke-${color}`, "stroke-width": thick(share), opacity: 0.55 });
      const gap = point.systems > 32 ? 0.4 : 1.6;
      parts.push(way(-gap, "orange", point.down), way(gap, "purple", point.up));
    }
  const node = Math.min(9, 0.8 * width / point.systems);
  levels.slice(1, -1).forEach((count, level) => {
    for (let index = 0; index < count; index++) {
      const [x, y] = place(level + 1, index);
      parts.push(make("circle", { cx: x, cy: y, r: Math.max(2, Math.min(6, 0.3 * width / count)), class: "fill-faint" }));
    }
  });
  for (let index = 0; index < point.systems; index++) {
    const [x, y] = place(levels.length - 1, index);
    parts.push(make("rect", { x: x - node / 2, y: y - node / 2, width: node, height: node, rx: node / 5, class: "fill-blue" }));
  }
  parts.push(make("rect", { x: width / 2 - 42, y: 4, width: 84, height: 24, rx: 6, class: "fill-ink" }),
    label(width / 2, 20, "MemoryX", { "text-anchor": "middle", class: "text-card" }),
    label(width / 2, height - 4, `${whole(point.systems)} ${point.systems === 1 ? "system" : "systems"}`, { "text-anchor": "middle" }));
  const legend = make("ul", { class: "legend" },
    make("li", {}, make("i", { class: "back-orange" }), "weights down ", make("b", {}, percent(point.down)), " of a link"),
    make("li", {}, make("i", { class: "back-purple" }), "gradients up ", make("b", {}, percent(point.up))));
  return [svg(width, height, `A tree of ${levels.length - 2} levels of switches`, ...parts), legend,
    make("p", { class: "note" }, `${whole(point.swarmx_nodes)} SwarmX nodes: each of a system's ports has a tree of its own.`)];
}

function drawStalls(stalls) {
  const most = Math.max(...stalls.map((each) => Math.max(each.stream_ps, each.compute_ps)));
  const bar = (ps, color) => make("div", { class: `back-${color}`, style: { width: `${Math.max(0.4, 100 * ps / most)}%` } });
  const failing = stalls.filter((each) => each.remedy);
  const rows = stalls.map((each) => make("tr", {},
    make("td", {}, each.layers), make("td", {}, each.phase), make("td", {}, whole(each.count)),
    make("td", { class: "bars" }, bar(each.stream_ps, "orange"), bar(each.compute_ps, "blue")),
    make("td", {}, time(each.stream_ps).join(" ")), make("td", {}, time(each.compute_ps).join(" ")),
    make("td", { class: each.remedy ? "no" : "yes" }, each.remedy ? `${each.bound} stalls` : "no"),
    ...(failing.length ? [make("td", { class: "text" }, each.remedy)] : [])));
  const names = ["layers", "pass", "count", "", "stream", "compute", "stall"];
  const head = make("tr", {}, ...names.map((name) => make("th", {}, name)), ...(failing.length ? [make("th", { class: "text" }, "enough would be")] : []));
  const count = failing.reduce((sum, each) => sum + each.count, 0);
  return [
    make("p", { class: "note" }, failing.length
      ? `${whole(count)} segments stream longer than they compute: weights or gradients come too late.`
      : "Nowhere: all weights and gradients stream in the time in which the wafer computes."),
    make("div", { class: "wide" }, make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows))),
    make("ul", { class: "legend" }, make("li", {}, make("i", { class: "back-orange" }), "streaming"), make("li", {}, make("i", { class: "back-blue" }), "computing one micro-batch")),
  ];
}
