// The page on which one request is tried with all its parameters.

import { AnswerView } from "./answer_view.js";
import { LANGUAGES } from "./code.js";
import { byId, make, service } from "./dom.js";
import { hasKey, replaceKey } from "./key_dialog.js";

/** A value that is no JSON or no number, at its field. */
class FieldError extends Error {
  constructor(param, message) {
    super(message);
    this.param = param;
  }
}

const value = (name) => byId(name).value;
let language = "Python", running = null;

function number(name) {
  const text = value(name).trim();
  if (!text) return undefined;
  if (!Number.isFinite(Number(text))) throw new FieldError(name, `${text} is no number`);
  return Number(text);
}

function whole(name) {
  const found = number(name);
  if (found !== undefined && !Number.isSafeInteger(found)) {
    throw new FieldError(name, `${value(name)} is no whole number below 2^53`);
  }
  return found;
}

function json(name) {
  if (!value(name).trim()) return undefined;
  try {
    return JSON.parse(value(name));
  } catch (error) {
    throw new FieldError(name, `This is no JSON: ${error.message}`);
  }
}

function stops() {
  const found = value("stop").split("\n").filter(Boolean);
  return found.length ? found : undefined;
}

function format() {
  const type = value("response_format");
  if (type === "text") return undefined;
  if (type === "json_object") return { type };
  return { type, json_schema: { name: "answer", strict: true, schema: json("schema") ?? {} } };
}

function chat() {
  const system = value("system") ? [{ role: "system", content: value("system") }] : [];
  return {
    messages: [...system, { role: "user", content: value("messages") }],
    max_completion_tokens: whole("max_completion_tokens"),
    response_format: format(),
    tools: json("tools"),
    tool_choice: value("tool_choice") || undefined,
  };
}

const completion = () => ({ prompt: value("messages"), max_tokens: whole("max_completion_tokens") });

/** Return the request that the fields describe; FieldError if they do not. */
function request() {
  const path = value("path");
  const body = {
    model: value("model"),
    ...(path === "/v1/completions" ? completion() : chat()),
    temperature: number("temperature"),
    top_p: number("top_p"),
    seed: whole("seed"),
    stop: stops(),
    stream: Boolean(value("stream")) || undefined,
  };
  return { path, body: JSON.parse(JSON.stringify(body)) };
}

// The fields of parameters that are called otherwise, and of errors that name none.
const FIELDS = { max_tokens: "max_completion_tokens", prompt: "messages" };
const FIELDS_OF_CODES = {
  "context-exceeded": "max_completion_tokens", "empty-request": "messages",
  "format-not-possible": "schema", "schema-too-large": "schema", "tools-not-known": "tools",
};

function fieldOf({ code, param }) {
  if (!param) return FIELDS_OF_CODES[code];
  if (param.startsWith("response_format.json_schema")) return "schema";
  const first = param.split(".")[0];
  return FIELDS[first] ?? first;
}

function clearFaults() {
  for (const fault of document.querySelectorAll("form .fault")) fault.hidden = true;
  for (const field of document.querySelectorAll("[aria-invalid]")) field.removeAttribute("aria-invalid");
}

/** Show an error at its field, or at the end of the form where it has none. */
function showFault(error) {
  const name = fieldOf(error), found = byId(name), field = found?.offsetParent ? found : null;
  const fault = (field && byId(`${name}-fault`)) ?? byId("fault");
  fault.textContent = error.message;
  fault.hidden = false;
  if (!field) return;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", fault.id);
  field.focus();
}

/** Show the parameters of a kind alone, and the code of the request. */
function update() {
  const isChat = value("path") === "/v1/chat/completions";
  for (const part of document.querySelectorAll(".of-chat")) part.hidden = !isChat;
  document.querySelector(".of-schema").hidden = !isChat || value("response_format") !== "json_schema";
  try {
    const place = { url: location.origin, needsKey: service.needs_key };
    byId("code").textContent = LANGUAGES[language](request(), place);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    byId("code").textContent = `# ${error.param}: ${error.message}`;
  }
}

function setRunning(controller) {
  running = controller;
  byId("stop-answer").hidden = !running;
  byId("send").disabled = Boolean(running);
}

async function run() {
  if (running) return;
  clearFaults();
  const controller = new AbortController();
  setRunning(controller);
  try {
    await answer(request(), controller.signal);
  } catch (error) {
    if (!(error instanceof FieldError)) throw error;
    showFault(error);
  } finally {
    setRunning(null);
  }
}

async function answer({ path, body }, signal) {
  if (!await hasKey()) return;
  const view = new AnswerView(true);
  byId("answer").replaceChildren(view.element);
  await view.ask(path, body, signal);
  if (view.error?.isOfKey) {
    if (await replaceKey(view.error)) await answer({ path, body }, signal);
  } else if (view.error && view.error.status && !view.answer.text) {
    showFault(view.error);
    byId("answer").replaceChildren(make("p", { class: "note" }, "The service has refused the request."));
  }
}

byId("languages").append(...Object.keys(LANGUAGES).map((name) => make("button", {
  type: "button", "aria-pressed": String(name === language), onclick: (event) => {
    language = name;
    for (const button of byId("languages").children) {
      button.setAttribute("aria-pressed", String(button === event.target));
    }
    update();
  },
}, name)));
byId("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(byId("code").textContent);
  byId("copy").textContent = "Copied";
});
byId("request").addEventListener("input", () => {
  byId("copy").textContent = "Copy";
  update();
});
byId("request").addEventListener("submit", (event) => {
  event.preventDefault();
  run();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") running?.abort();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
});
byId("stop-answer").addEventListener("click", () => running?.abort());
update();
