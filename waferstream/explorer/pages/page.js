// The page: knobs, questions to the simulator (or to the answers that an exported page holds), and pictures.

const page = JSON.parse(byId("page-data").textContent);
const knobs = new Map(page.knobs.map((knob) => [knob.name, knob]));
const rest = Object.fromEntries(page.knobs.map((knob) => [knob.name, knob.value]));
const MOST_MOVED = 2;
let settings = { ...rest };
let order = []; // moved knobs but the systems, the first moved first

/** A setting as the key of its answer; any number of systems has the same one. */
const keyOf = (given) => page.knobs.filter(({ name, value }) => name !== "systems" && given[name] !== value)
  .map(({ name }) => `${name}=${given[name]}`).join("&");

const scaled = (knob, value) => digits(value / knob.scale, 6);

/** A knob whose stops have names: one of them is on. */
function makeSwitch(knob) {
  return make("fieldset", { class: "knob switch", id: `knob-${knob.name}`, title: knob.keys.join(", ") }, make("legend", {}, knob.label),
    ...knob.names.map((name, index) => make("label", {},
      make("input", { type: "radio", name: knob.name, id: `${knob.name}-${name}`, value: knob.stops[index], onchange: () => move(knob.name, knob.stops[index]) }), name)));
}

function makeKnob(knob) {
  if (knob.names.length) return makeSwitch(knob);
  const last = knob.stops.length - 1;
  const slider = make("input", { type: "range", id: `slider-${knob.name}`, min: 0, max: last, step: 1, "aria-label": knob.label,
    oninput: () => move(knob.name, knob.stops[slider.value]) });
  const number = make("input", { type: "text", id: knob.name, inputmode: "decimal", autocomplete: "off", spellcheck: "false",
    onchange: () => move(knob.name, typed(knob, number.value)) });
  number.readOnly = page.is_export;
  const mark = (100 * knob.stops.indexOf(knob.value)) / Math.max(1, last);
  return make("div", { class: "knob", id: `knob-${knob.name}` },
    make("div", { class: "line" }, make("label", { for: knob.name, title: knob.keys.join(", ") }, knob.label), number, make("span", { class: "unit" }, knob.unit)),
    make("div", { class: "track" }, make("span", { class: "rest", style: { left: `calc(9px + (100% - 18px) * ${mark / 100})` } }), slider));
}

/** What was typed, in the unit of the key; text that is no number goes as it is, and is refused with its rule. */
function typed(knob, text) {
  const value = Number(text.replaceAll(",", "")) * knob.scale;
  return Number.isFinite(value) && text.trim() ? (knob.is_whole ? Number(value.toPrecision(15)) : value) : text;
}

function showKnobs() {
  for (const knob of knobs.values()) {
    const value = settings[knob.name];
    byId(`knob-${knob.name}`).classList.toggle("moved", value !== knob.value);
    if (knob.names.length) {
      for (const [index, name] of knob.names.entries()) byId(`${knob.name}-${name}`).checked = knob.stops[index] === value;
      continue;
    }
    const nearest = typeof value === "number" ? knob.stops.reduce((best, stop, index) => (Math.abs(Math.log(stop / value)) < Math.abs(Math.log(knob.stops[best] / value)) ? index : best), 0) : 0;
    const slider = byId(`slider-${knob.name}`);
    slider.value = nearest;
    slider.style.setProperty("--at", `${(100 * nearest) / Math.max(1, knob.stops.length - 1)}%`);
    slider.setAttribute("aria-valuetext", `${typeof value === "number" ? scaled(knob, value) : value} ${knob.unit}`);
    byId(knob.name).value = typeof value === "number" ? scaled(knob, value) : value;
  }
  byId("reset").disabled = page.knobs.every(({ name, value }) => settings[name] === value);
}

function move(name, value) {
  const start = performance.now();
  settings = { ...settings, [name]: value };
  if (name !== "systems") order = [...order.filter((each) => each !== name), ...(value === rest[name] ? [] : [name])];
  byId("hint").textContent = "";
  if (page.is_export && order.length > MOST_MOVED) {
    const [back] = order.splice(0, 1);
    settings[back] = rest[back];
    byId("hint").textContent = `This page holds any two changes at a time: ${knobs.get(back).label} went back.`;
  }
  showKnobs();
  history.replaceState(null, "", `#${new URLSearchParams(page.knobs.filter(({ name: each, value: at }) => settings[each] !== at).map(({ name: each }) => [each, settings[each]]))}`);
  ask(start);
}

const isShown = (answer) => answer.error || [...answer.points, ...answer.refused].some((each) => each.systems === settings.systems);
const answers = new Map(Object.entries(page.answers));
let asking = false, waiting = null;

/** Show the answer to the settings; while one is on its way, only the newest question waits. */
async function ask(start) {
  const known = answers.get(keyOf(settings));
  if (known && isShown(known)) {
    waiting = null;
    return known.error ? showFault(known.error) : show(known, start);
  }
  if (asking) {
    waiting = start;
    return;
  }
  asking = true;
  const asked = settings;
  const patience = setTimeout(() => { byId("busy").textContent = "Simulating. The step of a new sequence length is recorded first: some seconds, once."; }, 700);
  try {
    const response = await fetch("answer", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(asked) });
    const said = await response.json();
    if (response.ok) answers.set(keyOf(asked), said);
    if (asked === settings) response.ok ? show(said, start) : showFault(said.error);
  } catch {
    if (asked === settings) showFault({ what: "the explorer does not answer", remedy: "start it again: waferstream explore FILE" });
  }
  clearTimeout(patience);
  byId("busy").textContent = "";
  asking = false;
  if (waiting !== null || asked !== settings) {
    const next = waiting ?? start;
    waiting = null;
    if (asked !== settings) ask(next);
  }
}

function showFault(error) {
  const names = ["where", "value", "rule", "remedy"].filter((name) => error[name]);
  byId("fault").replaceChildren(make("h2", {}, error.what),
    make("dl", {}, ...names.flatMap((name) => [make("dt", {}, name), make("dd", {}, error[name])])));
  byId("fault").hidden = false;
  byId("answer").classList.add("stale");
  for (const knob of knobs.values()) {
    const isIt = knob.keys.some((key) => error.where?.includes(key.replace("machine.", "")));
    byId(knob.name)?.setAttribute("aria-invalid", String(isIt));
  }
}

function tile(name, value, unit, below) {
  return make("div", {}, make("p", {}, name), make("strong", {}, value, make("small", {}, ` ${unit}`)), make("p", {}, below));
}

function showTiles(point) {
  const unit = point.tokens_per_s === null ? "samples" : "tokens";
  byId("tiles").replaceChildren(
    tile("Throughput", short(rateOf(point)), `${unit}/s`, point.band ? `half of runs within ${within(point.band[0])}` : "no interval known"),
    tile("Step", ...time(point.step_ps), `${digits(point.samples_per_s, 4)} samples/s`),
    tile("Of ideal scaling", percent(point.efficiency, 3), "", `${percent(point.utilisation)} of the wafers' peak`),
    tile("Energy", digits(point.kwh_per_million, 3), `kWh`, `per million ${unit}; ${digits(point.kw, 3)} kW`));
}

/** A text of the answer for another number of systems: nothing else in it depends on that. */
const forSystems = (text) => text.replace(/(num_csx[ :]+)\d+/, `$1${settings.systems}`);

function show(answer, start) {
  const point = answer.points.find((each) => each.systems === settings.systems);
  byId("curve").replaceChildren(drawCurve(answer, page.answers[""], settings.systems, (count) => move("systems", count)));
  byId("band-note").textContent = answer.band_note || "Bands hold half, and nine of ten, of measured runs.";
  byId("command").textContent = forSystems(answer.command);
  byId("yaml").textContent = forSystems(answer.yaml);
  if (!point) {
    const refused = answer.refused.find((each) => each.systems === settings.systems);
    return showFault({ what: refused.what, where: "num_csx", value: String(refused.systems), remedy: "fewer systems, a larger batch or smaller micro-batches" });
  }
  byId("fault").hidden = true;
  byId("answer").classList.remove("stale");
  for (const name of knobs.keys()) byId(name)?.removeAttribute("aria-invalid");
  for (const [name, value] of Object.entries(answer.at_rest)) {
    if (knobs.has(name) && settings[name] === rest[name]) byId(name).value = scaled(knobs.get(name), value);
  }
  if (answer.system !== page.answers[""].system) byId("title").textContent = `${page.label} on ${answer.system}`;
  else byId("title").textContent = page.title;
  showTiles(point);
  byId("causes").replaceChildren(...drawCauses(point));
  byId("wafer").replaceChildren(...drawWafer(answer.wafers[point.micro_batch], point));
  byId("tree").replaceChildren(...drawTree(point));
  byId("stalls").replaceChildren(...drawStalls(answer.stalls[point.micro_batch]));
  byId("gpus").replaceChildren(...drawGpus(answer, point, answer.system));
  requestAnimationFrame(() => setTimeout(() => {
    const ms = performance.now() - start;
    byId("time").textContent = `Answered in ${whole(ms)} ms.`;
    byId("time").dataset.ms = ms;
  }));
}

/** Copy a text; where the browser does not allow that, select it for the reader to copy. */
async function copy(button, name) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(byId(name).textContent);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(byId(name));
    button.textContent = "Selected";
  }
  setTimeout(() => { button.textContent = before; }, 1200);
}

function fromAddress() {
  for (const [name, text] of new URLSearchParams(location.hash.slice(1))) {
    if (!knobs.has(name)) continue;
    const value = Number(text);
    if (page.is_export && !knobs.get(name).stops.includes(value)) continue;
    settings[name] = Number.isFinite(value) ? value : text;
    if (name !== "systems") order.push(name);
  }
}

byId("sliders").replaceChildren(...page.knobs.map(makeKnob));
byId("knobs").onsubmit = (event) => event.preventDefault();
byId("reset").onclick = () => { settings = { ...rest }; order = []; move("systems", rest.systems); };
byId("copy-command").onclick = (event) => copy(event.target, "command");
byId("copy-yaml").onclick = (event) => copy(event.target, "yaml");
addEventListener("resize", () => ask(performance.now()));
show(page.answers[""], performance.now()); // there is a picture before a setting of the address is answered
fromAddress();
showKnobs();
ask(performance.now());
