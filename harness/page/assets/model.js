// The models, and a view of each: its equation, its paper, its card on the ladder, what it costs, all its cells.

const allModels = unique([...Object.keys(data.listed.models), ...cells.map((cell) => cell.modelLabel)]).sort(byFamily);
const listedOf = (label) => data.listed.models[named(label).name] ?? null;
const cellsOfModel = (label) => cells.filter((cell) => cell.modelLabel === label);
const ladderRowsOf = (label) => data.ladders.map((ladder) => ({ ladder, row: ladder.rows.find((row) => row.model === label) })).filter(({ row }) => row);

function paperLink(paper) {
  if (!/^\d{4}\.\d{4,5}$/.test(paper)) return isolated(paper);
  return make("a", { href: `https://arxiv.org/abs/${paper}`, rel: "noopener noreferrer" }, `arXiv:${paper}`);
}

// The first indented block of a module's words: its equation.
const equationOf = (doc) => (/(?:^|\n\n)((?: {4}.*(?:\n|$))+)/.exec(doc ?? "")?.[1] ?? "").replace(/^ {4}/gm, "").trimEnd();

const modelsShown = () => allModels.filter(modelFilter());

views.models = {
  title: () => "The models",
  lead: () => [make("p", { class: "lead" }, "Every model is one file. A family shares a colour; a model has its own shade and marker in every figure.")],
  controls: () => [searchBox("q", "Models"), familyChips(allModels)],
  body() {
    const shown = modelsShown();
    if (!shown.length) return [note("No model passes the filter.")];
    return unique(shown.map((label) => named(label).family)).map((family) => {
      const rows = shown.filter((label) => named(label).family === family).map((label) => {
        const model = listedOf(label);
        const [climb] = ladderRowsOf(label);
        const whole = cellsOfModel(label).length;
        return [make("span", { class: "who" }, swatch(label), modelLink(label)), model ? String(model.year) : "", model ? paperLink(model.paper) : "", make("span", { class: "said" }, model?.about ?? ""), climb ? `${climb.row.held}/${climb.ladder.rungs.length}` : "–", whole ? String(whole) : "–"];
      });
      return make("section", {}, heading(family), plainTable(`Models, ${family}`, ["Model", "Year", "Paper", "What it is", "Rungs", "Cells"], rows, { className: "words" }));
    });
  },
  sheet: () => [["model", "title", "family", "year", "paper", "about", "parameters", "state_bytes_at_length_256", "cost"], ...modelsShown().map((label) => {
    const model = listedOf(label) ?? {};
    return [label, titleOf(label), named(label).family, model.year, model.paper, model.about, model.parameters, model.state_bytes_at_length_256, model.cost];
  })],
  models: modelsShown,
};

const modelNow = () => (allModels.includes(asked("name")) ? asked("name") : allModels[0]);

views.model = {
  title: () => titleOf(modelNow()),
  lead() {
    const label = modelNow();
    const model = listedOf(label);
    const where = model ? [`${named(label).family}, ${model.year}, `, paperLink(model.paper)] : [named(label).family];
    return [make("p", { class: "note who" }, swatch(label), make("span", {}, where), label !== titleOf(label) ? make("code", {}, isolated(label)) : null, submittedMark(label)), data.submitted[label] ? note("Submitted by others. To cite: ", isolated(data.submitted[label].cite)) : null, make("p", { class: "lead" }, model?.about ?? "A model of these records that the listing does not know.")];
  },
  controls: () => [selectBox("name", "Model", allModels.map((label) => [label, titleOf(label)]), allModels[0])],
  body() {
    const label = modelNow();
    const model = listedOf(label);
    const equation = equationOf(model?.doc);
    return [equation ? make("pre", { class: "equation", role: "math", "aria-label": "Equation" }, equation) : null, modelCard(label), modelCost(label, model), modelCells(label), modelTheory(model), model ? [heading("In its own words"), make("pre", { class: "doc" }, model.doc), copyable(`ladder describe ${named(label).name}`)] : null].flat(2).filter(Boolean);
  },
  sheet: () => [["model", "protocol", "task", "class", "lr", "median", "lowest", "highest", "solved", "runs"], ...cellsOfModel(modelNow()).map((cell) => [cell.modelLabel, cell.own.label, cell.taskLabel, cell.level, cell.lr, cell.median, ...(cell.range ?? ["", ""]), ...cell.solved])],
  models: () => [modelNow()],
};

function modelCard(label) {
  return ladderRowsOf(label).map(({ ladder, row }) => {
    const lines = [...row.steps.keys()].reverse().map((i) => {
      const [step, rung] = [row.steps[i], ladder.rungs[i]];
      const cell = step.cell === null ? null : cells[step.cell];
      const bins = cell ? lengthsOf(cell) : [];
      const at = (name) => rounded(bins.find((bin) => bin.name === name)?.median);
      const inside = cell ? rounded(median(cell.done.map((run) => scaled(cell, run.in_distribution)))) : "–";
      const further = bins.filter((bin) => bin.low === bin.high).pop();
      const mark = cell ? cellButton(cell, [box(step)], { "aria-label": `Open ${titleOf(label)} on ${rung.name}: ${step.held} of ${step.n} seeds` }) : box(step);
      return { className: disagreements[step.meeting] ?? "", values: [link("task", { name: rung.task }, rung.name), rung.asks, mark, inside, at(ladder.where), further ? `${rounded(further.median)} at ${further.name}` : "–", isNumber(step.learnt) ? spaced(step.learnt) : "", make("span", { class: "said" }, `${step.sign} ${step.theory}: ${step.why}`)] };
    });
    return [heading(`${row.held} of ${ladder.rungs.length} rungs`), note(`Its state moves: ${data.theory.transitions[row.transition] ?? (row.transition || "not declared")}. From the highest rung down; accuracy is the median over seeds.`), plainTable(`Card of ${titleOf(label)}`, ["Rung", "Asks", "Holds", "In training", ladder.where, "Longest", "Learnt at", "Theory"], lines, { className: "card" })];
  }).flat();
}

function modelCost(label, model) {
  const axes = Object.keys(costAxes).map((axis) => [costAxes[axis][0], costOf(label, axis)?.value]).filter(([, value]) => isNumber(value));
  const speeds = cellsOfModel(label).flatMap((cell) => cell.chosen.map(speedOf)).filter(isNumber);
  const pairs = [...axes.map(([title, value]) => [title, short(value)]), ["training in the runs here, tokens a second", speeds.length ? short(median(speeds)) : ""]];
  if (model) {
    const grows = model.state_growth === "length" ? " and growing" : "";
    const state = isNumber(model.state_bytes_at_length_256) ? `${spaced(model.state_bytes_at_length_256)} bytes at length 256${grows}` : "no step form";
    pairs.push(["parameters at usual settings", spaced(model.parameters)], ["state at usual settings", state], ["cost in the length", model.cost], ["kernels", (model.kernels ?? []).join(", ")]);
  }
  const where = axes.length ? note(`Measured on ${benchNow().device}, models at equal ${matchNow()}: `, link("cost", {}, "what it costs"), ".") : null;
  return [heading("What it costs"), where, definitions(pairs)];
}

function modelCells(label) {
  const found = cellsOfModel(label);
  if (!found.length) return [heading("Results"), note("It has not been run here.")];
  const rows = found.map((cell) => [isolated(cell.own.label), taskLink(cell.taskLabel), className(cell.level), cellButton(cell, [isNumber(cell.median) ? rounded(cell.median) : "none finished"], { class: "text", "aria-label": `Open ${cell.taskLabel} under ${cell.own.label}` }), cell.range ? rangeText(cell.range) : "", `${cell.solved[0]}/${cell.solved[1]}`]);
  return [heading("Results"), plainTable(`Results of ${titleOf(label)}`, ["Protocol", "Task", "Class", "Median", "Range", "Solved"], rows, { className: "left3" })];
}

function modelTheory(model) {
  const found = model?.transition ? data.theory.verdicts[model.transition] : null;
  if (!found) return [];
  const rows = Object.entries(found).map(([demand, [word, why]]) => [demand, make("span", { class: "said" }, data.theory.demands[demand]), make("span", { class: `word ${word}` }, `${signs[word]} ${word}`), make("span", { class: "said" }, `${why}.`)]);
  return [heading("Theory"), note("Of its usual settings, at every length."), plainTable("Theory", ["Demand", "", "", "Why"], rows, { className: "words" })];
}
