// Requests to the service, in the name of the key that this tab holds.

const KEY = "waferstream-key";

export const key = {
  get: () => sessionStorage.getItem(KEY),
  set: (secret) => sessionStorage.setItem(KEY, secret),
  forget: () => sessionStorage.removeItem(KEY),
};

/** An error that the service has answered, or that it did not answer (status 0). */
export class ApiError extends Error {
  constructor(status, { message, code = null, param = null }) {
    super(message);
    Object.assign(this, { status, code, param });
  }

  /** Whether another key is needed. */
  get isOfKey() { return this.status === 401 || this.status === 403; }
}

const broken = () => new ApiError(0, {
  message: "The answer broke off: the service or the way to it is gone.", code: "broken-off",
});

async function send(path, options = {}) {
  const headers = { ...options.headers };
  if (key.get()) headers.authorization = `Bearer ${key.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, { message: "The service cannot be reached.", code: "not-reached" });
  }
  if (response.ok) return response;
  const body = await response.json().catch(() => null);
  const message = `The service answered with status ${response.status}.`;
  throw new ApiError(response.status, body?.error ?? { message });
}

/** Get an object. */
export const get = async (path) => (await send(path)).json();

/** What an answer is, as it grows. */
export class Answer {
  text = "";
  reasoning = "";
  calls = [];
  usage = null;
  times = null;
  seed = null;
  reason = null;

  /** Take a chunk, or the whole. */
  take(data) {
    const [choice] = data.choices;
    this.usage = data.usage ?? this.usage;
    this.times = data.time_info ?? this.times;
    this.seed = data.seed ?? this.seed;
    if (!choice) return;
    this.reason = choice.finish_reason ?? this.reason;
    const said = choice.delta ?? choice.message ?? { content: choice.text };
    this.reasoning += said.reasoning ?? "";
    for (const [place, call] of (said.tool_calls ?? []).entries()) this.#takeCall(call, place);
    this.text += said.content ?? "";
  }

  #takeCall({ index, function: { name, arguments: given } }, place) {
    const call = this.calls[index ?? place] ??= { name: "", arguments: "" };
    call.name += name ?? "";
    call.arguments += given ?? "";
  }
}

/**
 * Ask for an answer.
 * @param body The request; a stream tells its usage in any case.
 * @param answer Takes what comes, also of an answer that fails.
 * @param heard Is called when the answer has grown.
 */
export async function ask(path, body, answer, signal, heard) {
  const options = body.stream ? { stream_options: { include_usage: true } } : {};
  const response = await send(path, {
    method: "POST", signal, body: JSON.stringify({ ...body, ...options }),
    headers: { "content-type": "application/json" },
  });
  for await (const data of body.stream ? events(response) : [await response.json()]) {
    answer.take(data);
    heard();
  }
}

async function* events(response) {
  for await (const line of lines(response)) {
    if (line === "data: [DONE]") return;
    if (!line.startsWith("data: ")) continue;
    const data = JSON.parse(line.slice(6));
    if (data.error) throw new ApiError(data.status_code ?? 500, data.error);
    yield data;
  }
  throw broken();
}

async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read().catch((error) => {
      throw error.name === "AbortError" ? error : broken();
    });
    if (done) return;
    const found = (rest + value).split("\n");
    rest = found.pop();
    yield* found;
  }
}
