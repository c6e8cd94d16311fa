// Elements of a page. Texts become text nodes: nothing that a model writes is ever read as HTML.

export const byId = (name) => document.getElementById(name);

export const service = JSON.parse(byId("service").textContent);

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Make an element of HTML; an attribute such as onclick is a function. */
export const make = (name, attributes = {}, ...children) =>
  fill(document.createElement(name), attributes, children);

/** Make an element of SVG. */
export const draw = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);

/** Make a table of rows of texts or elements under a header. */
export function table(header, rows) {
  const line = (kind, cells) => make("tr", {}, ...cells.map((cell) => make(kind, {}, cell)));
  return make("div", { class: "wide" }, make("table", {},
    make("thead", {}, line("th", header)),
    make("tbody", {}, ...rows.map((cells) => line("td", cells)))));
}

/** Say something to those who do not see the page. */
export const announce = (text) => { byId("status").textContent = text; };
