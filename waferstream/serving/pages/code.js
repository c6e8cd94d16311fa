// The code of a request in several languages, which runs as it stands.

const KEY = "WAFERSTREAM_API_KEY";

const indented = (text, spaces) => text.replaceAll("\n", `\n${" ".repeat(spaces)}`);

/** Write a value of JSON in Python. */
function python(value, depth = 0) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const items = Array.isArray(value) ? value.map((item) => python(item, depth + 1))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${python(item, depth + 1)}`);
  const line = open + items.join(", ") + close;
  if (line.length < 72 && !line.includes("\n")) return line;
  const space = "    ".repeat(depth + 1);
  return `${open}\n${items.map((item) => `${space}${item},\n`).join("")}${"    ".repeat(depth)}${close}`;
}

const isChat = ({ path }) => path === "/v1/chat/completions";

function pythonCode(request, { url, needsKey }) {
  const { body } = request;
  const key = needsKey ? `os.environ["${KEY}"]` : '"none"';
  const made = isChat(request) ? "chat.completions" : "completions";
  const given = Object.entries(body).map(([name, value]) => `    ${name}=${python(value, 1)},\n`);
  const part = isChat(request) ? (body.stream ? "delta.content" : "message.content") : "text";
  const calls = part.replace("content", "tool_calls");
  const told = body.tools ? `choice.${part} or choice.${calls}` : `choice.${part}`;
  const show = body.stream
    ? ["for chunk in answer:", "    for choice in chunk.choices:",
      `        print(${told} or "", end="", flush=True)`]
    : ["for choice in answer.choices:", `    print(${told})`];
  return [
    ...(needsKey ? ["import os", ""] : []), "from openai import OpenAI", "",
    `client = OpenAI(\n    base_url="${url}/v1",\n    api_key=${key},\n)`,
    `answer = client.${made}.create(\n${given.join("")})`, ...show,
  ].join("\n");
}

function javascriptCode(request, { url, needsKey }) {
  const { path, body } = request;
  const key = needsKey ? `\n    authorization: \`Bearer \${process.env.${KEY}}\`,` : "";
  const part = isChat(request) ? (body.stream ? "delta?.content" : "message.content") : "text";
  const calls = part.replace("content", "tool_calls");
  const told = (choice) => (body.tools ? `${choice}.${part} ?? ${choice}.${calls}` : `${choice}.${part}`);
  const show = body.stream
    ? `let text = "";
for (const line of (await response.text()).split("\\n")) {
  if (!line.startsWith("data: {")) continue;
  for (const choice of JSON.parse(line.slice(6)).choices) text += ${told("choice")} ?? "";
}
console.log(text);`
    : `const answer = await response.json();\nconsole.log(${told("answer.choices[0]")});`;
  return `const response = await fetch(${JSON.stringify(url + path)}, {
  method: "POST",
  headers: {${key}
    "content-type": "application/json",
  },
  body: JSON.stringify(${indented(JSON.stringify(body, null, 2), 2)}),
});
${show}`;
}

function curlCode({ path, body }, { url, needsKey }) {
  const key = needsKey ? ` \\\n  -H "authorization: Bearer $${KEY}"` : "";
  const quoted = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
  return `curl -sSN ${url}${path} \\\n  -H "content-type: application/json"${key} \\\n  -d '${quoted}'`;
}

/** What writes the code of a request, by language. */
export const LANGUAGES = { Python: pythonCode, JavaScript: javascriptCode, curl: curlCode };
