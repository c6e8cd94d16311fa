// Elements of the page, and charts with two logarithmic axes.

const byId = (id) => document.getElementById(id);

/** Return an element with attributes and children; functions are listeners. */
function make(name, given = {}, ...children) {
  const node = SVG_NAMES.has(name) ? document.createElementNS("http://www.w3.org/2000/svg", name) : document.createElement(name);
  for (const [key, value] of Object.entries(given)) {
    if (typeof value === "function") node[key] = value;
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}
const SVG_NAMES = new Set(["svg", "g", "rect", "circle", "line", "path", "polygon", "polyline", "text", "title"]);

const svg = (width, height, about, ...parts) =>
  make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": about }, ...parts);

const label = (x, y, text, given = {}) => make("text", { x, y, ...given }, text);

const ways = (points) => points.map(([x, y]) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" ");

const line = (points, kind) => make("polyline", { points: ways(points), class: `line ${kind}` });

const area = (points, kind) => make("polygon", { points: ways(points), class: kind });

/** Round numbers from low to high, 1, 2, 5, 10, ..., or powers of ten alone where they are many. */
function ticks(low, high) {
  const found = [];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++)
    for (const factor of [1, 2, 5]) found.push(factor * 10 ** power);
  const inside = found.filter((each) => each >= low * 0.999 && each <= high * 1.001);
  const tens = inside.filter((each) => Math.abs(Math.log10(each) % 1) < 1e-9);
  return inside.length > 7 && tens.length > 1 ? tens : inside;
}

/** The nearest of 1, 2, 5, 10, ... below and above, so that an axis rests while a curve moves. */
const below = (value) => ticks(value / 10, value).at(-1);
const above = (value) => ticks(value, value * 10)[0];

/** A chart whose axes are logarithmic: where a value lies, and its axes. */
class Chart {
  constructor(width, height, xs, ys) {
    Object.assign(this, { width, height, left: 56, right: width - 96, top: 12, bottom: height - 42 });
    this.x = [Math.min(...xs), Math.max(...xs)];
    this.y = [below(Math.min(...ys)), above(Math.max(...ys))];
    if (this.y[0] === this.y[1]) this.y[1] *= 2;
  }

  place([x, y]) {
    const part = (value, [low, high]) => (high > low ? Math.log(value / low) / Math.log(high / low) : 0.5);
    return [this.left + part(x, this.x) * (this.right - this.left), this.bottom - part(y, this.y) * (this.bottom - this.top)];
  }

  axes(marks, name) {
    const rows = ticks(...this.y).map((value) => {
      const [, y] = this.place([this.x[0], value]);
      return make("g", {}, make("line", { x1: this.left, x2: this.right, y1: y, y2: y, class: "grid" }),
        label(this.left - 8, y + 4, short(value), { "text-anchor": "end" }));
    });
    const columns = marks.map((value) => {
      const [x] = this.place([value, this.y[0]]);
      return label(x, this.bottom + 18, whole(value), { "text-anchor": "middle" });
    });
    return [...rows, ...columns, label((this.left + this.right) / 2, this.bottom + 37, name, { "text-anchor": "middle" })];
  }
}

/** Heights moved apart until labels do not overlap: down from the first, then up from the lowest place. */
function apart(heights, distance, least = -Infinity, most = Infinity) {
  const order = heights.map((_, index) => index).sort((a, b) => heights[a] - heights[b]);
  const placed = order.map((index) => heights[index]);
  for (let rank = 0; rank < placed.length; rank++) placed[rank] = Math.max(placed[rank], rank ? placed[rank - 1] + distance : least);
  for (let rank = placed.length - 1, room = most; rank >= 0; rank--, room -= distance) placed[rank] = Math.min(placed[rank], room);
  return heights.map((_, index) => placed[order.indexOf(index)]);
}
