// The page of a chat.

import { AnswerView } from "./answer_view.js";
import { byId, make, service } from "./dom.js";
import { hasKey, replaceKey } from "./key_dialog.js";

const log = byId("log"), question = byId("question"), welcome = log.firstElementChild;
const TEMPERATURE = 0.7; // small models ramble at 1, which is the service's
let turns = []; // questions with the views of their answers
let running = null; // what stops the answer under way
let knowsChats = true; // until the model has said that it has no template of chats

/** Return the request for the answer to the last question. */
function request() {
  const given = turns.filter((turn) => turn.view.answer.text || turn === turns.at(-1));
  const common = { model: service.model, stream: true, temperature: TEMPERATURE };
  if (!knowsChats) {
    const texts = given.flatMap(({ text, view }) => [text, view.answer.text]);
    const most = { max_tokens: 256 };
    return ["/v1/completions", { ...common, ...most, prompt: texts.filter(Boolean).join("\n") }];
  }
  const messages = given.flatMap(({ text, view }) => [
    { role: "user", content: text },
    ...(view.answer.text ? [{ role: "assistant", content: view.answer.text }] : []),
  ]);
  return ["/v1/chat/completions", { ...common, messages }];
}

function setRunning(controller) {
  running = controller;
  byId("stop").hidden = !running;
  byId("send").disabled = Boolean(running);
}

const stop = () => running?.abort();

/** Answer the last question, once more if it had an answer. */
async function answer() {
  if (running) return;
  const controller = new AbortController(), turn = turns.at(-1);
  setRunning(controller);
  try {
    await answerTurn(turn, controller.signal);
  } finally {
    if (running === controller) setRunning(null);
  }
}

async function answerTurn(turn, signal) {
  if (!await hasKey()) return;
  show(turn, new AnswerView());
  await turn.view.ask(...request(), signal);
  const { error } = turn.view;
  if (error?.code === "no-chat-template") {
    knowsChats = false;
    log.append(make("p", { class: "note" },
      "This model has no template of chats: it continues the text of the messages instead."));
    await answerTurn(turn, signal);
  } else if (error?.isOfKey && await replaceKey(error)) {
    await answerTurn(turn, signal);
  } else if (turns.includes(turn)) {
    turn.view.element.append(make("div", { class: "buttons" },
      make("button", { type: "button", class: "again", onclick: answer }, error ? "Try again" : "Regenerate")));
    follow();
  }
}

/** Show a view in the place of the one that a turn had. */
function show(turn, view) {
  turn.view.element.remove();
  turn.view = view;
  for (const button of log.querySelectorAll(".again")) button.parentElement.remove();
  log.append(view.element);
  new MutationObserver(follow).observe(view.body, { characterData: true, subtree: true });
  log.scrollTop = log.scrollHeight;
}

/** Keep the end of the log in sight for those who look at it. */
function follow() {
  if (log.scrollHeight - log.scrollTop - log.clientHeight < 160) log.scrollTop = log.scrollHeight;
}

function send() {
  const text = question.value;
  if (running || !text.trim()) return;
  question.value = "";
  welcome.remove();
  log.append(make("article", { class: "question", "aria-label": "Question" }, make("div", { class: "text" }, text)));
  turns.push({ text, view: new AnswerView() });
  answer();
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape") stop(); });
byId("stop").addEventListener("click", stop);
byId("new").addEventListener("click", () => {
  stop();
  setRunning(null);
  turns = [];
  log.replaceChildren(welcome);
  question.focus();
});
