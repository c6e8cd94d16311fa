// The page of a key: what it may use, and what it has used.

import { get, key } from "./api.js";
import { byId, make, service, table } from "./dom.js";
import { keyForm } from "./key_dialog.js";
import { count, dollars } from "./numbers.js";

const note = (text) => make("p", { class: "note" }, text);

const fault = (text) => make("p", { class: "fault", role: "alert" }, text);

function showLimits(limits) {
  const rows = ["requests", "tokens"].flatMap((of) => Object.entries(limits[of]).map(([per, told]) => [
    `${of} per ${per}`,
    make("meter", { min: 0, max: told.limit, value: told.remaining, "aria-label": `${of} left of a ${per}` }),
    count(told.remaining), count(told.limit), `${count(Math.ceil(told.reset))} s`,
  ]));
  byId("limits").replaceChildren(rows.length
    ? table(["limit", "", "left", "of", "all back in"], rows) : note("There are no limits."));
}

function showUsage({ days, balance }) {
  const tokens = ["requests", "prompt_tokens", "cached_tokens", "completion_tokens"];
  const cost = (day) => dollars(day.nanodollars / 1e9);
  const rows = days.map((day) => [day.day, day.model, ...tokens.map((name) => count(day[name])), cost(day)]);
  const left = balance === null ? [] : [make("p", {}, `Balance: ${dollars(balance)}`)];
  byId("usage").replaceChildren(...left, rows.length
    ? table(["day (UTC)", "model", "requests", "prompt", "cached", "answers", "cost"], rows)
    : note(service.needs_key ? "Nothing was used yet." : "Nothing is counted without keys."));
}

function showKey(name) {
  const forget = () => {
    key.forget();
    update();
  };
  byId("key").replaceChildren(
    make("p", {}, "This tab asks with the key ", make("strong", {}, name), ". "),
    make("div", { class: "buttons" },
      make("button", { type: "button", onclick: forget }, "Forget it"),
      make("button", { type: "button", onclick: update }, "Update")));
}

function askForKey(why) {
  for (const part of ["limits", "usage"]) byId(part).replaceChildren(note("They are those of a key."));
  byId("key").replaceChildren(...(why ? [fault(why)] : []), keyForm(update));
}

async function update() {
  if (service.needs_key && !key.get()) return askForKey("");
  try {
    const [limits, usage] = await Promise.all([get("/v1/limits"), get("/v1/usage")]);
    if (service.needs_key) showKey(limits.key);
    else byId("key").replaceChildren(make("p", {}, "This service has no keys: it answers anybody on its host."),
      note("waferstream serve MODEL --accounts accounts.db asks for keys, which waferstream serve keys create NAME makes."));
    showLimits(limits);
    showUsage(usage);
  } catch (error) {
    if (!service.needs_key) return byId("key").replaceChildren(fault(error.message));
    if (error.isOfKey) key.forget();
    askForKey(error.message);
  }
}

update();
