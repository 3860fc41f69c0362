// The matrix: every model on every task of a protocol, beside a paper's values if asked.

const matrixPaper = (own) => own.papers.find((paper) => paper.name === asked("paper")) ?? null;
const sizeStops = (values) => unique(values.filter(isNumber)).sort((a, b) => a - b);
const modelSize = (own, row, sizeOf) => {
  const found = own.cells[row].filter((at) => at !== null).map((at) => sizeOf(cells[at])).filter(isNumber);
  return found.length ? Math.max(...found) : null;
};

function matrixShown() {
  const own = askedProtocol(usualProtocol());
  const [keep, isTask, levels] = [modelFilter(), matcher("tasks"), new Set(askedList("class"))];
  const most = { parameters: Number(asked("parameters")) || Infinity, state: Number(asked("state")) || Infinity };
  const columns = own.tasks.map((task, i) => i).filter((i) => isTask(own.tasks[i]) && (!levels.size || levels.has(own.levels[i])));
  const all = own.models.map((model, i) => ({ model, row: i, parameters: modelSize(own, i, parametersOf), state: modelSize(own, i, stateOf) }));
  const rows = all.filter((one) => keep(one.model) && !(one.parameters > most.parameters) && !(one.state > most.state));
  return { own, columns, all, rows: sortedBy(rows, (one, key) => sortValue(own, one, key), "model") };
}

function sortValue(own, one, key) {
  if (key === "parameters" || key === "state") return one[key];
  const column = own.tasks.indexOf(key);
  if (column < 0) return titleOf(one.model);
  const at = own.cells[one.row][column];
  return at === null ? null : cells[at].median;
}

views.matrix = {
  title: () => `Every model on every task: ${askedProtocol(usualProtocol()).label}`,
  lead() {
    const own = askedProtocol(usualProtocol());
    const source = own.source ? `${own.source[0].toUpperCase()}${own.source.slice(1)}. ` : "";
    return [
      make("p", { class: "lead" }, "Test accuracy scaled so that 0 is chance and 1 perfect, at the learning rate chosen on validation: the median over seeds, its range, and how many of the runs solved the task."),
      make("p", { class: "note" }, `${source}${own.changes ? `Deviates from it in (${own.changes}). ` : ""}Solved: ${own.solved}. ${own.facts.Runs}; learning rates ${own.rates.join(", ")}.`),
      own.warning ? make("p", { class: "warning" }, own.warning) : null,
    ];
  },
  controls() {
    const { own, all } = matrixShown();
    const parameters = sizeStops(all.map((one) => one.parameters));
    const states = sizeStops(all.map((one) => one.state));
    return [
      protocolSelect(usualProtocol()),
      searchBox("q", "Models"),
      searchBox("tasks", "Tasks"),
      parameters.length > 1 ? slider("parameters", "Parameters up to", parameters, parameters[parameters.length - 1], short) : null,
      states.length > 1 ? slider("state", "State up to", states, states[states.length - 1], (value) => `${short(value)}B`) : null,
      own.papers.length ? selectBox("paper", "Beside the paper", [["", "no"], ...own.papers.map((paper) => [paper.name, paper.source])], "") : null,
      toggle("floors", "Floors", true),
      toggle("range", "Ranges", true),
      familyChips(own.models),
      chips("class", "Class", unique(own.levels).map((level) => [level, className(level)])),
    ];
  },
  body() {
    const shown = matrixShown();
    if (!shown.rows.length || !shown.columns.length) return [note("Nothing of this protocol passes the filter.")];
    const count = shown.rows.length < shown.all.length || shown.columns.length < shown.own.tasks.length ? [note(`${shown.rows.length} of ${shown.all.length} models, ${shown.columns.length} of ${shown.own.tasks.length} tasks.`)] : [];
    const paper = matrixPaper(shown.own);
    const said = paper ? [note(`Below ours the paper's, ${paper.source}, which reports the ${paper.reports} over seeds, ${paper.measure}. Then what ours has more: agrees or differs by more than a few hundredths, undecided with so few seeds, or floor: neither is above it. Its budget is another one.`)] : [];
    return [...count, matrixTable(shown, paper), ...said, ...bitsTable(shown)];
  },
  sheet() {
    const { own, columns, rows } = matrixShown();
    const paper = matrixPaper(own);
    const heads = ["protocol", "task", "class", "model", "lr", "median", "lowest", "highest", "solved", "runs", "scaled", "best_constant", "content_free", "parameters", "state_bytes", "paper", "paper_value", "paper_spread", "ours_more", "agreement"];
    const lines = rows.flatMap((one) => columns.map((column) => {
      const at = own.cells[one.row][column];
      const cell = at === null ? null : cells[at];
      const beside = paper?.values[`${one.row} ${column}`] ?? [];
      if (!cell && !beside.length) return null;
      const ours = cell ? [cell.lr, cell.median, ...(cell.range ?? ["", ""]), ...cell.solved, !cell.raw, ...cell.floors] : Array(9).fill("");
      return [own.label, own.tasks[column], own.levels[column], one.model, ...ours, one.parameters, one.state, beside.length ? paper.name : "", ...[0, 1, 2, 3].map((i) => beside[i] ?? "")];
    })).filter(Boolean);
    return [heads, ...lines];
  },
  models: () => matrixShown().rows.map((one) => one.model),
  papers: () => (matrixPaper(matrixShown().own) ? [matrixPaper(matrixShown().own)] : []),
};

function matrixTable({ own, columns, rows }, paper) {
  const bands = bandsOf(columns.map((column) => own.levels[column]));
  const firsts = new Set(columns.filter((column, i) => i === 0 || own.levels[columns[i - 1]] !== own.levels[column]));
  const classAt = (column) => `${classOf(own.levels[column])}${firsts.has(column) ? " first" : ""}`;
  const raw = new Set(own.cells.flat().filter((at) => at !== null && cells[at].raw).map((at) => cells[at].taskLabel));
  const top = make("tr", {},
    sortHead("model", "Model", { usual: "model", attributes: { rowspan: 2, class: "corner" } }),
    bands.map((one) => make("th", { scope: "colgroup", colspan: one.count, class: `band first ${classOf(one.level)}` }, className(one.level))),
    make("th", { scope: "colgroup", colspan: 2, class: "band first none" }, "size"));
  const heads = make("tr", {},
    columns.map((column) => sortHead(own.tasks[column], [breakable(own.tasks[column]), raw.has(own.tasks[column]) ? make("small", {}, "raw") : ""].filter(Boolean)[0], { usual: "model", attributes: { class: classAt(column), "data-task": own.tasks[column] } })),
    sortHead("parameters", "weights", { usual: "model", attributes: { class: "first none" } }),
    sortHead("state", "state, bytes", { usual: "model", attributes: { class: "none" } }));
  const lines = rows.map((one) => make("tr", { "data-model": one.model },
    make("th", { scope: "row" }, swatch(one.model), modelLink(one.model)),
    columns.map((column) => matrixCell(own, one, column, classAt(column), paper)),
    make("td", { class: "first none plainly" }, short(one.parameters)),
    make("td", { class: "none plainly" }, short(one.state))));
  const caption = make("caption", { class: "hidden-text" }, `Test accuracy under ${own.label}: models by tasks`);
  const parts = [caption, make("thead", {}, top, heads), make("tbody", {}, lines)];
  if (isOn("floors", true)) parts.push(make("tbody", { class: "floors" }, ["best constant", "content free"].map((floor, i) => floorLine(own, columns, classAt, floor, i))));
  return scroller(`Test accuracy under ${own.label}`, make("table", { class: "grid" }, parts));
}

function floorLine(own, columns, classAt, floor, which) {
  const valueOf = (column) => own.cells.map((line) => line[column]).filter((at) => at !== null).map((at) => cells[at].floors[which]).find(isNumber);
  return make("tr", {}, make("th", { scope: "row" }, `floor: ${floor}`), columns.map((column) => make("td", { class: classAt(column) }, rounded(valueOf(column)))), make("td", { class: "first" }), make("td"));
}

function matrixCell(own, one, column, className, paper) {
  const at = own.cells[one.row][column];
  const beside = paper?.values[`${one.row} ${column}`];
  const theirs = beside ? [make("small", { class: "paper" }, `paper ${rounded(beside[0])}${isNumber(beside[1]) ? ` ± ${rounded(beside[1])}` : ""}`), isNumber(beside[2]) ? make("small", { class: "paper" }, `${beside[2] < 0 ? "" : "+"}${rounded(beside[2])} ${beside[3]}`) : null] : [];
  if (at === null) return make("td", { class: className }, make("span", { class: "cell unmeasured" }, make("span", { "aria-hidden": "true" }, "–"), make("span", { class: "hidden-text" }, "not measured"), theirs));
  const cell = cells[at];
  const [diverged, failed] = cell.lost;
  const fates = [diverged ? `${diverged} diverged` : "", failed ? `${failed} failed` : ""].filter(Boolean);
  const share = [`${cell.solved[0]}/${cell.solved[1]}`, ...fates].join(", ");
  const spread = cell.range && isOn("range", true) ? rangeText(cell.range) : "";
  const inside = isNumber(cell.median)
    ? [make("span", {}, rounded(cell.median)), make("small", {}, spread ? `${spread} ${share}` : share)]
    : [make("small", {}, `none of ${cell.chosen.length} finished`)];
  const made = make("td", { class: className }, cellButton(cell, [inside, theirs]));
  made.style.setProperty("--heat", String(isNumber(cell.median) ? Math.round(34 * Math.min(Math.max(cell.median, 0), 1)) : 0));
  return made;
}

// Of protocols that are one but for the bits of their weights, the cells of which some were rounded.
function bitsTable({ own, rows, columns }) {
  const alike = protocols.filter((one) => one.unrounded === own.unrounded).sort((a, b) => (a.bits || 99) - (b.bits || 99)).reverse();
  if (alike.length < 2) return [];
  const [models, tasks] = [new Set(rows.map((one) => one.model)), new Set(columns.map((column) => own.tasks[column]))];
  const places = unique(alike.filter((one) => one.bits).flatMap((one) => cells.filter((cell) => cell.own === one).map((cell) => `${cell.taskLabel}|${cell.modelLabel}`))).sort();
  const lines = places.map((place) => place.split("|")).filter(([task, model]) => tasks.has(task) && models.has(model)).map(([task, model]) => [
    make("span", { class: "who" }, swatch(model), modelLink(model)),
    breakable(task),
    ...alike.map((one) => {
      const cell = cellAt(one.label, task, model);
      return cell ? cellButton(cell, [`${rounded(cell.median)} ${cell.solved[0]}/${cell.solved[1]}`], { class: "text" }) : "–";
    }),
  ]);
  if (!lines.length) return [];
  const heads = ["Model", "Task", ...alike.map((one) => (one.bits ? `${one.bits} bits` : "not rounded"))];
  return [heading("By the bits of the weights"), note("Trained and scored with weight matrices rounded to so few bits; activations and states are whole."), plainTable("Accuracy by the bits of the weights", heads, lines, { className: "bits left2" })];
}
