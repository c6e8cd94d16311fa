// An answer on a page, while it comes and once it is complete.

import { Answer, ApiError, ask } from "./api.js";
import { announce, make, service } from "./dom.js";
import { causes, way } from "./machine.js";
import { count, rate } from "./numbers.js";

const ENDS = {
  length: "The answer ended at its limit of tokens, or at the end of the context.",
  tool_calls: "The model calls a tool.",
};

export class AnswerView {
  /** @param isOpen Whether the time by cause is shown at once. */
  constructor(isOpen = false) {
    this.answer = new Answer();
    this.error = null;
    this.isOpen = isOpen;
    this.shown = document.createTextNode("");
    this.body = make("div", { class: "text" }, this.shown);
    this.element = make("article", { class: "answer", "aria-label": "Answer" }, this.body);
  }

  /** Ask, and show what comes; afterwards the answer is complete, stopped, or has its error. */
  async ask(path, body, signal) {
    this.element.setAttribute("aria-busy", "true");
    announce("The answer is under way.");
    try {
      await ask(path, body, this.answer, signal, () => this.#show());
      this.#flush();
      this.#finish();
    } catch (error) {
      this.#flush();
      if (error.name === "AbortError") this.#note("Stopped.");
      else this.#fail(error);
    } finally {
      this.element.removeAttribute("aria-busy");
    }
  }

  /** Show what came with the next frame: a layout for each token would freeze a long answer. */
  #show() {
    this.frame ??= requestAnimationFrame(() => this.#flush());
  }

  #flush() {
    this.frame = null;
    this.shown.appendData(this.answer.text.slice(this.shown.length));
  }

  #finish() {
    const { reasoning, calls, reason, times, usage } = this.answer;
    if (reasoning) this.body.before(folded("Reasoning", make("div", { class: "text" }, reasoning)));
    for (const call of calls) {
      this.element.append(make("pre", { class: "call" }, `${call.name}(${call.arguments})`));
    }
    if (ENDS[reason]) this.#note(ENDS[reason]);
    else announce("The answer is complete.");
    if (times && usage) this.element.append(this.#costs());
  }

  #costs() {
    const { seed, times, usage } = this.answer;
    const tokens = usage.completion_tokens;
    const speed = (seconds, of, kind) => make("span", { class: kind },
      make("strong", {}, rate(tokens / seconds)), ` tokens/s ${of}`);
    const costs = folded("", way(), causes(times.attribution));
    costs.open = this.isOpen;
    costs.firstChild.append(
      speed(times.total_time, `emulated ${service.layout.system}`, "machine"), " ",
      speed(times.measured, "this host", "host"), " ",
      make("span", {}, `${count(usage.prompt_tokens)} + ${count(tokens)} tokens`), " ",
      make("span", {}, `seed ${seed}`));
    return costs;
  }

  #note(text) {
    announce(text);
    this.element.append(make("p", { class: "note" }, text));
  }

  #fail(error) {
    this.error = error instanceof ApiError ? error : new ApiError(0, { message: String(error) });
    announce("");
    this.element.append(make("p", { class: "fault", role: "alert" }, this.error.message));
  }
}

const folded = (title, ...parts) =>
  make("details", { class: "folded" }, make("summary", {}, title), ...parts);
