// The page of one job: its curves and its log, live.

const MOST_LOG = 200_000; // characters that are kept
const STEP = 0, LOSS = 1, RATE = 2, EMULATED = 3; // places in a point

const place = document.getElementById("curves").dataset.job;
const byId = (id) => document.getElementById(id);
const color = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`);
const short = (value) => (value == null ? "-" : Number(value.toPrecision(4)).toLocaleString("en"));

const FROM_ZERO = { range: (_, low, high) => [0, 1.1 * (high || 1)] };

let points = [];

/** Draw an empty chart of lines over steps. */
function chart(id, lines) {
  const axis = { stroke: color("faint"), grid: { stroke: color("line") }, ticks: { stroke: color("line") } };
  const options = {
    width: byId(id).clientWidth, height: 220,
    scales: { x: { time: false }, ...Object.fromEntries(lines.slice(1).map((line) => [line[2], FROM_ZERO])), ...(lines.length > 1 ? { y: FROM_ZERO } : {}) },
    axes: [axis, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
    series: [{ label: "step" }, ...lines.map(([label, name, scale]) => ({
      label, stroke: color(name), width: 1.5, scale, points: { size: 4 }, value: (_, value) => short(value),
    }))],
  };
  if (lines.length > 1) options.axes.push({ ...axis, side: 1, scale: lines[1][2], size: 64, grid: { show: false }, values: (_, ticks) => ticks.map(short) });
  return new uPlot(options, [[], ...lines.map(() => [])], byId(id));
}

const loss = chart("loss", [["loss", "blue", "y"]]);
const rate = chart("rate", [["emulated samples/s", "blue", "y"], ["this host, samples/s", "orange", "host"]]);

function draw() {
  const column = (at) => points.map((point) => point[at]);
  loss.setData([column(STEP), column(LOSS)]);
  rate.setData([column(STEP), column(EMULATED), column(RATE)]);
  const newest = points.at(-1);
  if (newest) {
    byId("newest").textContent = `Step ${newest[STEP].toLocaleString("en")}: loss ${short(newest[LOSS])}, `
      + `${short(newest[EMULATED])} samples/s emulated, ${short(newest[RATE])} on this host.`;
  }
}

/** Add a point; steps that run again count as they are the last time. */
function add(point) {
  while (points.length && points.at(-1)[STEP] >= point[STEP]) points.pop();
  points.push(point);
  draw();
}

/** Add to the log, and keep its end in sight if it was. */
function print(text) {
  const log = byId("log");
  const follows = log.scrollHeight - log.scrollTop - log.clientHeight < 20;
  log.append(text);
  if (log.textContent.length > MOST_LOG) log.textContent = log.textContent.slice(-MOST_LOG);
  if (follows) log.scrollTop = log.scrollHeight;
}

let isDue = false;

/** Let htmx read what has changed of the job, at most twice in a second. */
function changed() {
  if (isDue) return;
  isDue = true;
  setTimeout(() => {
    isDue = false;
    document.body.dispatchEvent(new Event("change-of-job"));
  }, 500);
}

function follow(after) {
  const news = new EventSource(`${place}/news?after=${after}`);
  news.addEventListener("open", () => byId("log").replaceChildren()); // its end comes anew
  news.addEventListener("point", ({ data }) => { add(JSON.parse(data)); changed(); });
  news.addEventListener("log", ({ data }) => print(JSON.parse(data)));
  news.addEventListener("change", changed);
  news.addEventListener("end", () => { news.close(); changed(); });
  news.addEventListener("fault", ({ data }) => { news.close(); byId("fault").textContent = JSON.parse(data); });
}

const found = await (await fetch(`${place}/curves`)).json();
points = found.points;
draw();
follow(found.after);
addEventListener("resize", () => {
  for (const [each, id] of [[loss, "loss"], [rate, "rate"]]) each.setSize({ width: byId(id).clientWidth, height: 220 });
});
