// How many GPUs train as fast, by the model of GPU clusters.

const GPU_COLORS = ["green", "purple", "orange", "sky"];

/** GPUs with this throughput, between counts on a straight line in logarithms; null if none have. */
function equalTo(rate, points) {
  const next = points.findIndex(([, each]) => each >= rate);
  if (next < 0) return null;
  if (next === 0) return points[0][0];
  const [[a, low], [b, high]] = [points[next - 1], points[next]];
  return a * (b / a) ** (Math.log(rate / low) / Math.log(high / low));
}

function drawGpus(answer, point, system) {
  if (!answer.gpus.length) return [make("p", { class: "note" }, answer.gpu_note)];
  const rate = rateOf(point), narrow = innerWidth < 560, width = narrow ? 400 : 760;
  const all = answer.gpus.flatMap((gpu) => gpu.points);
  const chart = new Chart(width, narrow ? 270 : 280, all.map(([count]) => count), [rate, ...all.map(([, each]) => each)]);
  const at = (each) => each.map(([count, value]) => chart.place([count, value]));
  const equal = answer.gpus.map((gpu) => equalTo(rate, gpu.points));
  const marks = [...new Set(all.map(([count]) => count))].sort((a, b) => a - b).filter((_, index) => !narrow || index % 2 === 0);
  const [, y] = chart.place([1, rate]);
  const heights = apart(answer.gpus.map((gpu) => at(gpu.points).at(-1)[1] + 4), 15);
  const parts = [...chart.axes(marks, "GPUs")];
  answer.gpus.forEach((gpu, index) => {
    const color = GPU_COLORS[index % GPU_COLORS.length];
    const known = gpu.points.filter(([, , factor]) => factor);
    const edge = (sign) => known.map(([count, each, factor]) => chart.place([count, Math.max(chart.y[0], Math.min(chart.y[1], each * factor ** sign))]));
    parts.push(area([...edge(1), ...edge(-1).reverse()], `fill-${color} nine`), line(at(gpu.points), `stroke-${color} thin`),
      label(at(gpu.points).at(-1)[0] + 9, heights[index], gpu.name, { class: `text-${color}` }));
    if (equal[index]) {
      const [x] = chart.place([equal[index], rate]);
      parts.push(make("circle", { cx: x, cy: y, r: 5, class: `fill-${color} stroke-card`, "stroke-width": 2 }));
    }
  });
  parts.push(make("line", { x1: chart.left, x2: chart.right, y1: y, y2: y, class: "stroke-blue", "stroke-width": 2 }),
    label(chart.left + 6, y - 7, `${whole(point.systems)} × ${system}`, { class: "text-blue halo" }));
  const most = Math.max(...all.map(([count]) => count));
  const words = answer.gpus.map((gpu, index) => (equal[index] ? `${whole(Math.max(1, equal[index]))} ${gpu.name}` : `more than ${whole(gpu.points.at(-1)[0])} ${gpu.name}`));
  const list = words.length > 1 ? `${words.slice(0, -1).join(", ")} or ${words.at(-1)}` : words[0];
  return [make("p", {}, `${whole(point.systems)} × ${system} ${point.systems === 1 ? "trains" : "train"} as fast as about ${list}, at the same batch.`),
    svg(width, chart.height, `Modelled throughput of 1 to ${most} GPUs`, ...parts), make("p", { class: "note" }, answer.gpu_note)];
}
