// What the emulated machine did for an answer: the way of its tokens, and their time by cause.

import { draw, make, service, table } from "./dom.js";
import { share, time } from "./numbers.js";

const CAUSES = {
  compute: "computing",
  fabric: "fabric of a wafer",
  waiting: "waiting for a region",
  hop: "hops between wafers",
  cycle: "back to the begin",
};
const MOST_WAFERS = 6; // that are drawn; the others look like them
const HEIGHT = 100, GAP = 14, LABEL = 16;

const name = (stage) => {
  const [first, end] = stage.layers;
  if (stage.part !== "layers") return stage.part;
  return end - first === 1 ? `layer ${first}` : `layers ${first} to ${end - 1}`;
};

/** Draw the wafers with their regions, and the way of a token through them. */
export function way() {
  const { columns, rows, side, wafers, stages } = service.layout;
  const scale = HEIGHT / rows, width = columns * scale, drawn = Math.min(wafers, MOST_WAFERS);
  const left = (wafer) => wafer * (width + GAP);
  const parts = [], points = [];
  for (let wafer = 0; wafer < drawn; wafer++) {
    parts.push(draw("rect", { x: left(wafer), y: 0, width, height: HEIGHT, rx: 4, class: "wafer" }));
    parts.push(draw("text", { x: left(wafer), y: HEIGHT + LABEL - 3 }, `wafer ${wafer + 1}`));
  }
  for (const [index, stage] of stages.entries()) {
    for (const [wafer, column, row] of stage.regions) {
      if (wafer >= drawn) continue;
      const x = left(wafer) + column * scale, y = row * scale, size = 0.96 * side * scale;
      const shade = `region ${stage.part}${index % 2 ? " odd" : ""}`;
      parts.push(draw("rect", { x, y, width: size, height: size, class: shade },
        draw("title", {}, name(stage))));
      points.push(`${x + size / 2},${y + size / 2}`);
    }
  }
  const stroke = Math.min(0.12 * side * scale, 1.6);
  parts.push(draw("polyline", { points: points.join(" "), class: "way", "stroke-width": stroke }));
  const about = about_way();
  const box = `-1 -1 ${drawn * (width + GAP) - GAP + 2} ${HEIGHT + LABEL + 2}`;
  return make("figure", { class: "wafers" },
    draw("svg", { viewBox: box, role: "img", "aria-label": about }, ...parts),
    make("figcaption", {}, about));
}

function about_way() {
  const { side, wafers, stages, system } = service.layout;
  const layers = stages.at(-1).layers[1], regions = stages.flatMap((stage) => stage.regions).length;
  const all = wafers > MOST_WAFERS ? `, of which ${MOST_WAFERS} are drawn` : "";
  return `${layers} layers in ${regions} regions of ${side} x ${side} PEs on ${wafers} ${system}`
    + `${all}. Each token passes them in a row; the end feeds the begin.`;
}

const total = (causes) => Object.values(causes).reduce((sum, ps) => sum + ps, 0);

function bar(causes, most) {
  let x = 0;
  const parts = Object.entries(causes).map(([cause, ps]) => {
    const width = 100 * ps / (most || 1);
    x += width;
    return draw("rect", { x: x - width, y: 0, width, height: 8, class: `cause ${cause}` });
  });
  return draw("svg", {
    viewBox: "0 0 100 8", preserveAspectRatio: "none", class: "bar", "aria-hidden": "true",
  }, ...parts);
}

/** Draw the time of a prompt and of the tokens that follow, by cause, with a table of both. */
export function causes({ prompt, completion }) {
  const all = { prompt: total(prompt), completion: total(completion) };
  const most = Math.max(all.prompt, all.completion);
  const mark = (cause) => make("span", {},
    draw("svg", { viewBox: "0 0 8 8", class: "mark", "aria-hidden": "true" },
      draw("rect", { width: 8, height: 8, rx: 1.5, class: `cause ${cause}` })), CAUSES[cause] ?? cause);
  const both = (ps, of) => (ps ? `${time(ps)} (${share(ps, of)})` : "0");
  const rows = Object.keys(prompt).filter((cause) => prompt[cause] || completion[cause])
    .map((cause) => [mark(cause), both(prompt[cause], all.prompt), both(completion[cause], all.completion)]);
  rows.push(["all", time(all.prompt), time(all.completion)]);
  return make("div", { class: "causes" },
    make("div", { class: "bars" },
      make("span", {}, "prompt"), bar(prompt, most),
      make("span", {}, "completion"), bar(completion, most)),
    table(["emulated time", "prompt, to the first token", "tokens that follow"], rows));
}
