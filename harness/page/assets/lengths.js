// Accuracy by length: a panel a task, a line a model, the lengths of training shaded.

function lengthsShown() {
  const own = askedProtocol(usualProtocol());
  const all = [...own.models].sort(byFamily);
  const models = askedList("models").some((label) => all.includes(label)) ? chosenOf("models", all) : foremost(own, all);
  const tasks = chosenOf("tasks", own.tasks);
  const there = own.cells.flat().filter((at) => at !== null).map((at) => cells[at]);
  const stops = unique(there.flatMap((cell) => lengthsOf(cell).flatMap((bin) => [bin.low, bin.high]))).sort((a, b) => a - b);
  const from = Math.max(Number(asked("from")) || 0, stops[0] ?? 1);
  const to = Math.max(from, Math.min(Number(asked("to")) || Infinity, stops[stops.length - 1] ?? 1));
  const kept = (bin) => bin.high >= from && bin.low <= to;
  return { own, models, tasks, stops, from, to, binsOf: (cell) => lengthsOf(cell).filter(kept) };
}

views.lengths = {
  title: () => `Accuracy by length: ${lengthsShown().own.label}`,
  lead: () => [make("p", { class: "lead" }, "Trained on short strings, tested on longer ones. A line is the median over seeds at the learning rate chosen on validation, its shade lowest to highest; the dashed line is what length and position alone give away.")],
  controls() {
    const { own, stops } = lengthsShown();
    return [
      protocolSelect(usualProtocol()),
      stops.length > 1 ? slider("from", "From length", stops, stops[0], String) : null,
      stops.length > 1 ? slider("to", "To length", stops, stops[stops.length - 1], String) : null,
      modelChips([...own.models].sort(byFamily)),
      chips("tasks", "Tasks", own.tasks.map((task) => [task, task])),
    ];
  },
  body() {
    const shown = lengthsShown();
    const panels = shown.tasks.map((task) => lengthPanel(shown, task)).filter(Boolean);
    if (!panels.length) return [note("No run of these was scored by length.")];
    const rows = lengthLines(shown).map((row) => [titleOf(row[2]), row[1], row[3], rounded(row[4], 3), rounded(row[5], 3), rounded(row[6], 3), rounded(row[8], 3)]);
    const numbers = make("details", { class: "noexport" }, make("summary", {}, "Numbers"), plainTable("Accuracy by length", ["Model", "Task", "Length", "Median", "Lowest", "Highest", "Floor"], rows, { className: "left2" }));
    const few = shown.models.length < shown.own.models.length && !askedList("models").length ? note(`The ${shown.models.length} that get furthest of ${shown.own.models.length}; the chips show others.`) : null;
    return [few, keyOf(shown.models), make("div", { class: "panels" }, panels), numbers];
  },
  sheet: () => [["protocol", "task", "model", "length", "median", "lowest", "highest", "seeds", "floor"], ...lengthLines(lengthsShown())],
  models: () => lengthsShown().models,
};

function lengthCells({ own, models }, task) {
  return models.map((model) => cellAt(own.label, task, model)).filter(Boolean);
}

function lengthLines(shown) {
  return shown.tasks.flatMap((task) => lengthCells(shown, task).flatMap((cell) => shown.binsOf(cell).map((bin) => [shown.own.label, task, cell.modelLabel, bin.name, bin.median, Math.min(...bin.seeds), Math.max(...bin.seeds), bin.seeds.length, bin.floor])));
}

function lengthPanel(shown, task) {
  const found = lengthCells(shown, task).map((cell) => ({ cell, bins: shown.binsOf(cell) })).filter(({ bins }) => bins.length);
  if (!found.length) return null;
  const bins = found.flatMap((one) => one.bins);
  const lowest = Math.min(0, ...bins.flatMap((bin) => bin.seeds));
  const level = found[0].cell.level;
  const isAll = shown.from <= (shown.stops[0] ?? 0);
  const trained = found[0].cell.trained;
  const start = Math.max(1, isAll ? startOf(bins, trained) : shown.from);
  const svg = chart({
    label: `Accuracy by length on ${task}`,
    width: within(372),
    height: 216,
    x: { from: start, to: Math.max(start + 1, Math.min(shown.to, Math.max(...bins.map((bin) => bin.high)))), log: 2 },
    y: { from: Math.min(-0.12, lowest), to: 1, ticks: shares },
    xTitle: "length",
    paint: (scales) => {
      if (isAll) shadeTrained(scales, found[0].cell);
      const inside = (bin) => Math.min(Math.max(bin.middle, start), shown.to);
      const floors = found[0].bins.filter((bin) => isNumber(bin.floor));
      line(scales.svg, floors.map((bin) => [inside(bin), bin.floor]), "floor", scales);
      for (const { cell, bins: own } of found) {
        if (own.some((bin) => bin.seeds.length > 1)) band(scales.svg, cell.modelLabel, own.map((bin) => [inside(bin), Math.min(...bin.seeds), Math.max(...bin.seeds)]), scales);
      }
      for (const { cell, bins: own } of found) modelLine(scales.svg, cell.modelLabel, own.map((bin) => [inside(bin), bin.median]), scales, { radius: 3, said: ([, value]) => `${titleOf(cell.modelLabel)} ${rounded(value, 3)}` });
    },
  });
  const caption = make("figcaption", {}, badge(level), taskLink(task), found[0].cell.raw ? " raw" : "");
  const open = make("p", { class: "note noexport" }, found.flatMap(({ cell }, i) => [i ? " · " : "", button(titleOf(cell.modelLabel), () => openCell(cell.number), { class: "text", "data-cell": cell.number, "aria-label": `Open ${titleOf(cell.modelLabel)} on ${task}` })]));
  return make("figure", { class: classOf(level), "data-task": task }, caption, svg, open);
}
