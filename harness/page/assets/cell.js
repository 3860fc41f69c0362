// The panel of a cell: seeds, rates, accuracy by length, learning curves, floors, provenance, commands.

const panel = byId("panel");
let opener = null;

byId("close").addEventListener("click", () => panel.close());
panel.addEventListener("click", (event) => {
  if (event.target === panel) panel.close();
});
panel.addEventListener("close", () => {
  choose({ cell: null });
  if (opener !== null) document.querySelector(`[data-cell="${opener}"]`)?.focus();
});

function openCell(number) {
  opener = number;
  state.params.set("cell", addressOf(cells[number]));
  history.pushState(null, "", address());
  showCell(cells[number]);
}

function showAskedCell() {
  const [protocol, task, model] = asked("cell").split("|");
  const cell = asked("cell") ? cellAt(protocol, task, model) : null;
  if (cell) {
    opener = cell.number;
    showCell(cell);
  } else if (panel.open) panel.close();
}

const cellButton = (cell, children, attributes = {}) => put(button("", () => openCell(cell.number), { class: "cell", "data-cell": cell.number, "aria-haspopup": "dialog", ...attributes }), {}, [children]);

function showCell(cell) {
  panel.className = classOf(cell.level);
  byId("panel-names").replaceChildren(
    badge(cell.level),
    make("h2", { id: "panel-title" }, modelLink(cell.modelLabel), " on ", taskLink(cell.taskLabel)),
    make("p", { class: "note" }, "Under ", isolated(cell.own.label), `, learning rate ${cell.lr}`),
  );
  if (!panel.open) panel.showModal();
  panel.scrollTop = 0;
  byId("panel-body").replaceChildren(...[headline(cell), theoryOf(cell), seedsOf(cell), ratesOf(cell), lengthFigure(cell), curvesOf(cell), provenanceOf(cell), commandsOf(cell)].flat());
  for (const anchor of panel.querySelectorAll(".panel-head a")) anchor.addEventListener("click", () => { opener = null; });
  byId("close").focus();
}

function headline(cell) {
  const lost = cell.chosen.length - cell.done.length;
  const over = `${cell.done.length} ${cell.done.length === 1 ? "seed" : "seeds"}${lost ? `, ${lost} not finished` : ""}`;
  const what = cell.raw ? "raw test accuracy" : "scaled test accuracy";
  if (!cell.done.length) return [make("p", { class: "headline" }, "No seed finished", " ", make("small", {}, `${cell.chosen.length} tried`))];
  const spread = rangeText(cell.range);
  const number = make("p", { class: "headline" }, `${rounded(cell.median)} ${spread}`.trim(), " ", make("small", {}, `${what}: median${spread && " and range"} over ${over}; ${cell.solved[0]} of ${cell.solved[1]} solved it (${cell.own.solved})`));
  const [constant, free] = cell.floors.map((floor) => rounded(floor));
  const floors = `Floors on the same strings: ${constant} for the best constant answer, ${free} for the best guess from length and position. Chance is ${rounded(cell.chance, 3)} raw.`;
  const warning = cell.own.warning ? [make("p", { class: "warning" }, cell.own.warning)] : [];
  return [number, make("p", { class: "note" }, floors), ...warning];
}

function theoryOf(cell) {
  const ladder = data.ladders.find((one) => one.protocol === cell.protocol);
  const row = ladder?.rows.find((one) => one.model === cell.modelLabel);
  const at = row?.steps.findIndex((one) => one.cell === cell.number) ?? -1;
  if (at < 0) return [];
  const step = row.steps[at];
  const holds = `Holds the rung “${ladder.rungs[at].name}” (${ladder.rungs[at].asks}) in ${step.held} of ${step.n} seeds: scaled accuracy of ${ladder.holds} or more at lengths ${ladder.where}.`;
  const [least, most] = step.between;
  const open = least === most ? "" : ` By what some ${ladder.strings} strings leave open (Wilson's interval of each seed, 95 %): ${least} to ${most}.`;
  const learnt = isNumber(step.learnt) ? ` Most seeds were at 99 % of validation by step ${spaced(step.learnt)}.` : "";
  return [small("The rung"), note(holds + open + learnt), note(`Theory: ${step.sign} ${step.theory}. ${step.why}.`), ...papersOf(step)];
}

// What papers report for this model and the same or the nearest task, beside ours.
function papersOf(step) {
  if (!step.papers) return [];
  const lines = step.papers.map(([word, , text]) => make("li", {}, make("b", {}, `${word[0].toUpperCase()}${word.slice(1)}.`), ` ${text}.`));
  return [small("What papers report"), make("ul", { class: "papers" }, lines)];
}

function seedsOf(cell) {
  const rows = cell.chosen.map((run) => {
    if (run.status !== "done") {
      const said = run.status === "failed" ? `failed: ${run.error}` : `${run.status} at step ${spaced(run.steps)}`;
      return { values: [run.seed, said, "", "", "", "", ""], className: "said" };
    }
    const numbers = ["test_scaled", "test", "test_exact", "validation"].map((name) => rounded(run[name], 3));
    return [run.seed, ...numbers, spaced(run.steps) + (run.stopped_early ? ", early" : ""), rounded(run.train_seconds + run.score_seconds, 1)];
  });
  return [small("Seeds at the chosen learning rate"), plainTable("Seeds at the chosen learning rate", ["Seed", "Scaled", "Raw", "Exact strings", "Validation", "Steps", "Seconds"], rows)];
}

function ratesOf(cell) {
  const all = unique(cell.all.map((run) => run.lr)).sort((a, b) => a - b);
  const rows = all.map((rate) => {
    const own = cell.all.filter((run) => run.lr === rate);
    const done = own.filter((run) => run.status === "done");
    const of = (name) => done.map((run) => run[name]).filter(isNumber);
    const validation = done.length ? of("validation").reduce((sum, value) => sum + value, 0) / own.length : null;
    const isChosen = rate === cell.lr;
    return { className: isChosen ? "chosen" : "", values: [`${rate}${isChosen && done.length ? " (chosen)" : ""}`, `${done.length} of ${own.length}`, rounded(validation, 3), rounded(mean(of(cell.raw ? "test" : "test_scaled")), 3)] };
  });
  const partial = cell.all.some((run) => run.status !== "done") && all.length > 1;
  const said = "The learning rate with the highest mean validation is chosen. A run that did not finish counts as zero in that mean.";
  return [small("Learning rates"), plainTable("Learning rates", ["Learning rate", "Finished", "Mean validation", "Mean test"], rows), ...(partial ? [note(said)] : [])];
}

const panelWidth = () => Math.max(280, Math.min(620, byId("panel-body").clientWidth - 44));

function lengthFigure(cell) {
  const bins = lengthsOf(cell);
  if (!bins.length) return [];
  const trained = cell.done.map((run) => scaled(cell, run.in_distribution)).filter(isNumber);
  const seen = bins.flatMap((bin) => [...bin.seeds, bin.floor]).filter(isNumber);
  const reach = [startOf(bins, cell.trained), ...bins.map((bin) => bin.high), cell.trained?.[1] ?? 1];
  const svg = chart({
    label: "Accuracy by length; its numbers are in the table below",
    width: panelWidth(),
    x: { from: Math.min(...reach), to: Math.max(...reach), log: 2 },
    y: { from: Math.min(-0.05, ...seen), to: 1, ticks: shares },
    xTitle: "length",
    paint: (scales) => {
      shadeTrained(scales, cell);
      line(scales.svg, bins.filter((bin) => isNumber(bin.floor)).map((bin) => [bin.middle, bin.floor]), "floor", scales);
      const ink = inkOf(cell.modelLabel);
      const counts = Math.max(...bins.map((bin) => bin.seeds.length));
      for (let seed = 0; seed < counts; seed++) line(ink, bins.filter((bin) => isNumber(bin.seeds[seed])).map((bin) => [bin.middle, bin.seeds[seed]]), "seed", scales);
      scales.svg.append(ink);
      modelLine(scales.svg, cell.modelLabel, bins.map((bin) => [bin.middle, bin.median]), scales, { said: ([, value]) => rounded(value, 3) });
    },
  });
  const inside = trained.length ? ` On the training lengths the median is ${rounded(median(trained), 3)}.` : "";
  const rows = bins.map((bin) => [bin.name, rounded(bin.median, 3), bin.seeds.map((value) => rounded(value, 3)).join("  "), rounded(bin.floor, 3)]);
  const numbers = make("details", {}, make("summary", {}, "Numbers"), plainTable("Accuracy by length", ["Length", "Median", "Each seed", "Floor"], rows));
  return [small("Accuracy by length"), make("figure", {}, svg, make("figcaption", {}, `Marked: median; thin: each seed; dashed grey: the floor of length and position.${inside}`), numbers)];
}

// A little of the lengths of training, and all that was tested.
function startOf(bins, trained) {
  const least = Math.max(1, Math.min(...bins.map((bin) => bin.low)));
  return trained ? Math.min(least, Math.max(trained[0], Math.round(least / 2), 1)) : least;
}

function shadeTrained({ svg, x, top, bottom, left, right }, cell) {
  if (!cell.trained) return;
  const [from, to] = cell.trained.map((end) => Math.min(right, Math.max(left, x(Math.max(end, 1)))));
  if (to <= left) return;
  svg.append(draw("rect", { class: "trained", x: from, y: top, width: Math.max(to - from, 2), height: bottom - top }));
  svg.append(draw("text", { x: from + 3, y: top - 6 }, "trained on"));
}

function curvesOf(cell) {
  const kinds = { validation: "Validation accuracy by step", loss: "Training loss by step" };
  const figures = Object.entries(kinds).map(([kind, title]) => {
    const series = cell.chosen.map((run) => pointsOf(run, kind)).filter(Boolean).map((points) => points.map(([step, value]) => [step, kind === "loss" ? value : scaled(cell, value)]));
    if (!series.length) return null;
    const [all, steps] = [series.flat().map(([, value]) => value), series.flat().map(([step]) => step)];
    const svg = chart({
      label: title,
      width: panelWidth(),
      height: 200,
      x: { from: Math.min(...steps), to: Math.max(...steps, Math.min(...steps) + 1) },
      y: kind === "loss" ? { from: 0, to: Math.max(...all) || 1 } : { from: Math.min(-0.05, ...all), to: 1, ticks: shares },
      xTitle: "step",
      paint: (scales) => {
        const ink = inkOf(cell.modelLabel);
        for (const points of series) {
          line(ink, points, "curve", scales);
          const [step, value] = points[points.length - 1];
          ink.append(marker(cell.modelLabel, scales.x(step), scales.y(value), 3));
        }
        scales.svg.append(ink);
      },
    });
    return make("figure", {}, svg, make("figcaption", {}, `${title}, a line a seed to its last step, of at most ${data.curves.most} points.`));
  }).filter(Boolean);
  return [small("Learning curve"), ...(figures.length ? figures : [note("No learning curve of these runs is stored beside the records.")])];
}

function distinct(chosen, valueOf) {
  const seeds = new Map();
  for (const run of chosen) {
    const value = valueOf(run);
    if (value !== "" && value !== null) seeds.set(value, [...(seeds.get(value) ?? []), run.seed]);
  }
  if (seeds.size <= 1) return [...seeds.keys()].join("");
  return [...seeds].map(([value, of]) => `${value} (seed ${of.join(", ")})`).join("; ");
}

function provenanceOf(cell) {
  const changed = (run) => (run.dirty === true ? ", with uncommitted changes" : run.dirty === false ? "" : ", whether changed is unknown");
  const pairs = [
    ["Commit", (run) => (run.commit ? run.commit + changed(run) : "")],
    ["Device", (run) => run.device],
    ["torch", (run) => run.torch],
    ["Fast paths", (run) => run.backends],
    ["Fingerprint", (run) => (run.fingerprint ? run.fingerprint + (run.mixed_numerics ? ", changed by a resume" : "") : "")],
    ["Parameters", (run) => (isNumber(run.parameters) ? spaced(run.parameters) : "")],
    ["State", (run) => (isNumber(run.state_bytes) ? `${spaced(run.state_bytes)} bytes` : "")],
    ["Training", (run) => (isNumber(run.train_seconds) ? `${rounded(run.train_seconds, 1)} s` : "")],
  ];
  return [small("Provenance"), definitions(pairs.map(([name, valueOf]) => [name, distinct(cell.chosen, valueOf)])), note("Labels name every setting that differs from the protocol's own.")];
}

function commandsOf(cell) {
  const shown = cell.chosen.map((run) => [make("p", { class: "note" }, `Seed ${run.seed}: `, make("code", {}, isolated(run.run_id))), copyable(`${cell.command} --seed ${run.seed}`)]);
  const notes = cell.notes.map((text) => make("p", { class: "warning" }, text));
  const again = cell.done.length ? [note("With the kernels it ran on, and whether the bits are the same:"), copyable(`ladder reproduce ${cell.done[0].run_id}`)] : [];
  return [small("Reproduce"), ...notes, ...shown.flat(), ...again];
}
