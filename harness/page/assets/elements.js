// Making elements and tables.

function put(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false));
  return made;
}

const make = (name, attributes = {}, ...children) => put(document.createElement(name), attributes, children);
const draw = (name, attributes = {}, ...children) => put(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
const isolated = (text) => make("bdi", {}, text);
const heading = (text) => make("h2", {}, text);
const small = (text) => make("h3", {}, text);
const note = (...children) => make("p", { class: "note" }, ...children);
const button = (text, onclick, attributes = {}) => make("button", { type: "button", onclick, ...attributes }, text);
const link = (view, params, text, attributes = {}) => make("a", { href: address(view, params), ...attributes }, text);
const taskLink = (label, text = label) => link("task", { name: taskName(label) }, breakable(text));
const submittedMark = (label) => (data.submitted[label] ? make("span", { class: "submitted", "data-word": data.submitted[label].word, title: `Submitted: ${data.submitted[label].cite}` }, data.submitted[label].word) : null);
const modelLink = (label) => link("model", { name: label }, [isolated(titleOf(label)), submittedMark(label)], { title: label });
const badge = (level) => make("span", { class: `badge ${classOf(level)}` }, className(level));

// A name may break after an underscore.
const breakable = (text) => make("bdi", {}, ...text.split(/(?<=_)/).flatMap((part, i) => (i ? [make("wbr"), part] : [part])));

// A table of { values, className }; the first value of a row is its head, a value may be an element.
function plainTable(caption, heads, rows, { className = "" } = {}) {
  const cell = (value, i) => make(i ? "td" : "th", { scope: i ? null : "row" }, value instanceof Node ? value : String(value ?? "–"));
  const head = make("tr", {}, heads.map((text) => make("th", { scope: "col" }, text)));
  const lines = rows.map((row) => make("tr", { class: row.className || null }, (Array.isArray(row) ? row : row.values).map(cell)));
  const table = make("table", { class: `numbers ${className}` }, make("caption", { class: "hidden-text" }, caption), make("thead", {}, head), make("tbody", {}, lines));
  return scroller(caption, table);
}

const scroller = (label, child) => make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": label }, child);

function definitions(pairs) {
  const kept = pairs.filter(([, value]) => value !== "" && value !== null && value !== undefined);
  return make("dl", {}, kept.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value instanceof Node ? value : isolated(String(value)))]));
}

function copyable(command) {
  const parts = command.split(/(?= --)/).flatMap((part, i) => [i ? make("wbr") : null, make("span", {}, part)]);
  const copy = button("Copy", async () => {
    copy.textContent = (await copied(command)) ? "Copied" : "Select it";
  }, { class: "quiet noexport", "aria-label": `Copy: ${command.slice(0, 80)}` });
  return make("div", { class: "command" }, make("pre", {}, ...parts), copy);
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
