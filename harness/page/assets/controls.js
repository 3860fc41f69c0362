// Controls: each holds a name of the address, and the body is drawn again when it changes.

function change(name, value) {
  choose({ [name]: value });
  drawBody();
}

function searchBox(name, label) {
  const input = make("input", { type: "search", id: `c-${name}`, placeholder: "any word", autocomplete: "off", spellcheck: "false", value: asked(name), oninput: () => change(name, input.value) });
  return make("label", { class: "field", for: `c-${name}` }, make("span", {}, label), input);
}

// A select; what is chosen there clears what hangs on it.
function selectBox(name, label, options, usual, clears = []) {
  const select = make("select", { id: `c-${name}`, onchange: () => {
    choose(Object.fromEntries(clears.map((other) => [other, null])));
    change(name, select.value === usual ? "" : select.value);
    drawControls();
  } });
  for (const [value, text] of options) select.append(make("option", { value }, text));
  select.value = options.some(([value]) => value === asked(name)) ? asked(name) : usual;
  return make("label", { class: "field", for: `c-${name}` }, make("span", {}, label), select);
}

function toggle(name, label, usual = false) {
  const input = make("input", { type: "checkbox", id: `c-${name}`, onchange: () => change(name, input.checked === usual ? "" : input.checked ? "1" : "0") });
  input.checked = isOn(name, usual);
  return make("label", { class: "check", for: `c-${name}` }, input, label);
}
const isOn = (name, usual = false) => (asked(name) === "" ? usual : asked(name) === "1");

// Chips: none pressed is all. options: [value, text, element or null].
function chips(name, label, options) {
  const pressed = new Set(askedList(name));
  const made = options.map(([value, text, mark]) => {
    const chip = button("", () => {
      if (pressed.has(value)) pressed.delete(value);
      else pressed.add(value);
      chip.setAttribute("aria-pressed", String(pressed.has(value)));
      change(name, options.map(([each]) => each).filter((each) => pressed.has(each)).join("~"));
      group.classList.toggle("some", pressed.size > 0);
    }, { class: "chip", "aria-pressed": String(pressed.has(value)), "data-value": value });
    chip.append(...[mark, isolated(text)].filter(Boolean));
    return chip;
  });
  const group = make("div", { class: `chips ${pressed.size ? "some" : ""}`, role: "group", "aria-label": label, "data-name": name }, make("span", { class: "legend" }, label), made);
  return group;
}

function familyChips(labels) {
  const there = familyOrder.filter((family) => labels.some((label) => named(label).family === family));
  return there.length < 2 ? null : chips("family", "Family", there.map((family) => [family, family, dot(data.families[family])]));
}

function dot(colour) {
  const made = draw("svg", { class: "swatch ink", viewBox: "0 0 10 10", width: 10, height: 10, "aria-hidden": "true" }, draw("circle", { class: "mark", cx: 5, cy: 5, r: 4 }));
  made.style.setProperty("--model", colour);
  return made;
}

const manyModels = 8;
// The models that get furthest, where a chart would not hold them all.
function foremost(own, labels = own.models) {
  const ranked = labels.filter((label) => isNumber(merit(own, label))).sort((a, b) => merit(own, b) - merit(own, a));
  return labels.length <= manyModels || !ranked.length ? labels : ranked.slice(0, manyModels).sort(byFamily);
}

// A phone has a narrow screen: filters lie in a drawer, and models are picked one by one.
const isNarrow = () => matchMedia("(max-width: 44rem)").matches;
let isDrawerOpen = false;

function drawer(controls) {
  const chosen = [...state.params.keys()].filter((name) => !["cell", "protocol", "name"].includes(name)).length;
  return make("details", { class: "drawer", open: isDrawerOpen, ontoggle: (event) => { isDrawerOpen = event.target.open; } }, make("summary", {}, chosen ? `Filters (${chosen})` : "Filters"), controls);
}

function modelPicker(labels) {
  const picked = askedList("models").filter((label) => labels.includes(label));
  const pick = (now) => {
    change("models", now.join("~"));
    drawControls();
  };
  const select = make("select", { id: "c-models", onchange: () => pick([...picked, select.value]) }, make("option", { value: "" }, "add a model"), labels.filter((label) => !picked.includes(label)).map((label) => make("option", { value: label }, titleOf(label))));
  const remove = picked.map((label) => button(`${titleOf(label)} ✕`, () => pick(picked.filter((one) => one !== label)), { class: "chip", "aria-label": `Remove ${titleOf(label)}` }));
  return [make("label", { class: "field", for: "c-models" }, make("span", {}, "Models"), select), ...remove];
}

const modelChips = (labels) => (isNarrow() ? modelPicker(labels) : chips("models", "Models", labels.map((label) => [label, titleOf(label), swatch(label)])));
const chosenOf = (name, all) => {
  const pressed = new Set(askedList(name));
  const kept = all.filter((each) => pressed.has(each));
  return kept.length ? kept : all;
};

// A slider over a list of stops; what it says is the stop's words.
function slider(name, label, stops, usual, words) {
  const at = stops.indexOf(Number(asked(name)));
  const input = make("input", { type: "range", id: `c-${name}`, min: 0, max: stops.length - 1, step: 1, value: at < 0 ? stops.indexOf(usual) : at });
  const said = make("output", { for: `c-${name}` });
  const tell = () => {
    said.textContent = words(stops[input.value]);
    input.setAttribute("aria-valuetext", said.textContent);
  };
  input.addEventListener("input", () => {
    tell();
    change(name, stops[input.value] === usual ? "" : stops[input.value]);
  });
  tell();
  return make("label", { class: "field slide", for: `c-${name}` }, make("span", {}, label), input, said);
}

function matcher(name) {
  const words = asked(name).toLowerCase().split(/\s+/).filter(Boolean);
  return (...texts) => !words.length || words.some((word) => texts.some((text) => text.toLowerCase().includes(word)));
}

function modelFilter() {
  const [isAsked, families] = [matcher("q"), new Set(askedList("family"))];
  return (label) => isAsked(label, titleOf(label)) && (!families.size || families.has(named(label).family));
}

const protocolOptions = () => protocols.map((own) => [own.label, own.label]);
const usualProtocol = () => protocols[data.ladders[0]?.protocol ?? 0].label;
const askedProtocol = (usual) => protocols.find((own) => own.label === asked("protocol", usual)) ?? protocols.find((own) => own.label === usual) ?? protocols[0];
const protocolSelect = (usual) => selectBox("protocol", "Protocol", protocolOptions(), usual, ["from", "to", "sort", "paper", "parameters", "state"]);

// A head of a column that sorts: the address keeps `sort`, with a minus for the way down.
function sortHead(key, content, { usual = "", attributes = {} } = {}) {
  const now = asked("sort", usual);
  const direction = now === key ? "ascending" : now === `-${key}` ? "descending" : "none";
  const next = direction === "descending" ? key : `-${key}`;
  return make("th", { scope: "col", "aria-sort": direction, ...attributes }, button("", () => change("sort", next === usual ? "" : next), { class: "sort", "data-key": `sort ${key}` }, ).appendChild(make("span", {}, content)).parentNode);
}

// Rows by what sort asks, those without a value last.
function sortedBy(rows, valueOf, usual) {
  const order = asked("sort", usual);
  const [key, sign] = order.startsWith("-") ? [order.slice(1), -1] : [order, 1];
  const values = new Map(rows.map((row) => [row, valueOf(row, key)]));
  return [...rows].sort((a, b) => {
    const [left, right] = [values.get(a), values.get(b)];
    const [isLeft, isRight] = [left === null || left === undefined, right === null || right === undefined];
    if (isLeft || isRight) return isLeft - isRight;
    return typeof left === "string" ? sign * left.localeCompare(right, "en") : sign * (left - right);
  });
}
