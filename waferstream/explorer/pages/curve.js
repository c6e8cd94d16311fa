// Throughput over systems with its band, and the files' own curve behind it.

const rateOf = (point) => point.tokens_per_s ?? point.samples_per_s;
const CURVE_WIDTH = 760;

function drawCurve(answer, rest, systems, choose) {
  const points = answer.points.map((point) => [point.systems, rateOf(point)]);
  const others = rest.points.map((point) => [point.systems, rateOf(point)]);
  const banded = answer.points.filter((point) => point.band);
  const edge = (place, sign) => banded.map((point) => [point.systems, rateOf(point) * point.band[place] ** sign]);
  const band = (place) => [...edge(place, 1), ...edge(place, -1).reverse()];
  const per = points[0][1] / points[0][0];
  const ideal = points.map(([count]) => [count, per * count]);
  const counts = [...points.map(([count]) => count), ...answer.refused.map((each) => each.systems)];
  const narrow = innerWidth < 560;
  const width = narrow ? 400 : CURVE_WIDTH;
  const chart = new Chart(width, narrow ? 300 : 340, [...counts, ...others.map(([count]) => count)],
    [...points, ...others, ...band(1), ...ideal].map(([, rate]) => rate));
  const at = (each) => each.map((point) => chart.place(point));
  const same = JSON.stringify(points) === JSON.stringify(others);
  const chosen = answer.points.find((point) => point.systems === systems);
  const ends = [["ideal", ideal, "faint"], ["this setting", points, "blue"], ...(same ? [] : [["the files", others, "faint"]])];
  const heights = apart(ends.map(([, each]) => chart.place(each.at(-1))[1] + 4), 15);
  const parts = [
    ...chart.axes(counts, "systems"),
    area(at(band(1)), "fill-blue nine"), area(at(band(0)), "fill-blue half"),
    line(at(ideal), "stroke-faint thin dashed"),
    ...(same ? [] : [line(at(others), "stroke-faint thin")]),
    line(at(points), "stroke-blue"),
    ...ends.map(([name, each, color], index) => label(chart.place(each.at(-1))[0] + 9, heights[index],
      same && name === "this setting" ? "these files" : name, { class: `text-${color}` })),
    ...answer.refused.map((each) => {
      const [x] = chart.place([each.systems, chart.y[0]]);
      return make("g", {}, make("title", {}, each.what), make("path", {
        d: `M${x - 4},${chart.bottom - 12}l8,8m0,-8l-8,8`, class: "stroke-vermilion line",
      }));
    }),
    ...points.map((point) => {
      const [x, y] = chart.place(point);
      return make("g", {}, make("title", {}, `${whole(point[0])} systems: ${short(point[1])}/s`),
        make("circle", { cx: x, cy: y, r: 3.5, class: "dot" }),
        make("rect", { x: x - 22, y: chart.top, width: 44, height: chart.bottom - chart.top, class: "hit", onclick: () => choose(point[0]) }));
    }),
  ];
  if (chosen) {
    const [x, y] = chart.place([systems, rateOf(chosen)]);
    parts.push(make("line", { x1: x, x2: x, y1: y + 8, y2: chart.bottom, class: "stroke-blue", opacity: 0.4 }),
      make("circle", { cx: x, cy: y, r: 8, class: "chosen" }));
  }
  const unit = answer.points[0].tokens_per_s === null ? "samples" : "tokens";
  return svg(width, chart.height, `Predicted ${unit} per second on ${counts[0]} to ${counts.at(-1)} systems`, ...parts);
}

const CAUSES = {
  compute: ["blue", "computing"], overhead: ["sky", "starting segments and kernels"],
  straggler: ["vermilion", "waiting for the slowest system"], weights: ["orange", "waiting for weights"],
  activations: ["ink", "waiting for activations"], input: ["green", "waiting for samples"],
  reduce: ["purple", "waiting for sums and updates"], idle: ["light", "no micro-batch left"],
};

function drawCauses(point) {
  const causes = Object.entries(CAUSES).filter(([cause]) => point.causes[cause] >= 0.0005);
  const strip = make("div", { class: "strip", "aria-hidden": "true" }, ...causes.map(([cause, [color]]) =>
    make("span", { class: `back-${color}`, style: { width: `${100 * point.causes[cause]}%` } })));
  const legend = make("ul", { class: "legend" }, ...causes.map(([cause, [color, name]]) =>
    make("li", {}, make("i", { class: `back-${color}` }), `${name} `, make("b", {}, percent(point.causes[cause])))));
  return [strip, legend];
}
