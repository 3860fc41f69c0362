// The ladder: models by rungs, in each box how many seeds hold it and what theory says.

const laddersNow = () => data.ladders;
const climbNow = () => data.ladders.find((one) => protocols[one.protocol].label === asked("protocol")) ?? data.ladders[0];

// The ladder at the length that the slider asks for: as it was written at the longest test lengths, reckoned at others.

const learntFrom = 0.99; // as harness/stats/climb.py has it
const nearEnough = 4; // some tasks have no string of exactly that length

function ladderStops(ladder) {
  const own = ladder.rows.flatMap((row) => row.steps).filter((step) => step.cell !== null).map((step) => cells[step.cell]);
  const highs = (name) => unique(own.flatMap((cell) => cell.done.flatMap((run) => run[name].map((bin) => bin.high)))).sort((a, b) => a - b);
  const bins = highs("test_bins");
  const beyond = highs("extrapolation").filter((high, i, all) => high > bins[bins.length - 1] && !(all[i + 1] - high < nearEnough));
  return { trained: own[0]?.trained?.[1] ?? 0, bins, beyond, stops: [own[0]?.trained?.[1] ?? 0, ...bins, ...beyond] };
}

function stopWords(ladder, stop) {
  const { trained, bins } = ladderStops(ladder);
  return stop === trained ? "of training" : bins.includes(stop) ? binAt(ladder, stop) : String(stop);
}
const binAt = (ladder, stop) => ladder.rows.flatMap((row) => row.steps).flatMap((step) => (step.cell === null ? [] : cells[step.cell].done)).flatMap((run) => run.test_bins).find((bin) => bin.high === stop)?.name ?? "";
const usualStop = (ladder) => Number(ladder.where.split("..")[1]);

function scoreAt(cell, run, stop, trained) {
  if (stop === trained) return scaled(cell, run.in_distribution);
  const bin = run.test_bins.find(({ high }) => high === stop) ?? run.extrapolation.find(({ high }) => high <= stop && stop - high < nearEnough);
  return scaled(cell, bin?.value);
}

function stepAt(ladder, step, stop, trained) {
  if (step.cell === null) return step;
  const cell = cells[step.cell];
  const found = cell.chosen.map((run) => (run.status === "done" ? [scoreAt(cell, run, stop, trained), scaled(cell, run.in_distribution)] : [0, 0])).filter(([score]) => isNumber(score));
  const [n, held] = [found.length, found.filter(([score]) => score >= ladder.holds).length];
  const lost = found.filter(([score, first]) => score < ladder.holds && first >= learntFrom).length;
  const holds = 2 * held > n;
  const outcome = holds ? "held" : 2 * (n - held - lost) < n ? "lost" : "not learnt";
  const meeting = step.theory === "can" ? `can, ${holds ? "held" : "not held"}` : step.theory === "cannot" ? `cannot, ${holds ? "yet held" : "not held"}` : "open";
  return { ...step, n, held, lost, outcome: n ? outcome : "", close: false, between: [held, held], scores: found.map(([score]) => score), meeting: n ? meeting : "open" };
}

function ladderNow() {
  const ladder = climbNow();
  const stop = Number(asked("at"));
  if (!ladder || !stop || stop === usualStop(ladder)) return ladder;
  const { trained, stops } = ladderStops(ladder);
  if (!stops.includes(stop)) return ladder;
  const rows = ladder.rows.map((row) => {
    const steps = row.steps.map((step) => stepAt(ladder, step, stop, trained));
    return { ...row, steps, held: steps.filter((step) => step.outcome === "held").length, all: steps.reduce((sum, step) => sum + step.held, 0) };
  });
  return { ...ladder, rows: rows.sort((a, b) => b.held - a.held || b.all - a.all), where: stopWords(ladder, stop) };
}

// Cells that are shown alone; the others fade, and models without one are left out.
const lenses = {
  lost: ["learnt and lost", (step) => step.outcome === "lost"],
  gap: ["theory says can, not held", (step) => step.meeting === "can, not held"],
  odd: ["theory says cannot, held", (step) => step.meeting === "cannot, yet held"],
  papers: ["a paper solves it, not held here", (step) => (step.papers ?? []).some(([word, solved]) => word === "differs" && solved)],
};
const lensNow = () => lenses[asked("show")]?.[1] ?? (() => true);

const storyNow = () => data.stories.find((one) => address(one.view, one.params) === address());
const storyLinks = () => (data.stories.length ? make("nav", { class: "stories", "aria-label": "Findings" }, data.stories.map((one, i) => link(one.view, one.params, [make("b", {}, one.name), make("span", {}, i ? one.headline : one.more)], { "aria-current": one === storyNow() ? "true" : null }))) : null);

// Pinned models stand first; of two or more, the reader may see those alone and only what differs.
const mostPins = 4;
const isComparing = () => askedList("pins").length > 1 && isOn("differ");

function pinButton(model, title) {
  const pins = askedList("pins");
  const isPinned = pins.includes(model);
  const pin = () => {
    choose({ pins: (isPinned ? pins.filter((one) => one !== model) : [...pins, model].slice(-mostPins)).join("~") });
    drawBody();
    drawControls();
  };
  return button(isPinned ? "★" : "☆", pin, { class: "pin noexport", "aria-pressed": String(isPinned), "aria-label": `Pin ${title}`, title: `Pin up to ${mostPins} models to compare them`, "data-key": `pin ${model}` });
}

function rungValue(ladder, row, name) {
  const step = row.steps[ladder.rungs.findIndex((rung) => rung.name === name)];
  return step?.n ? step.held + step.lost / 10 + mean(step.scores) / 100 : null;
}

function rungsShown(ladder, rows) {
  const all = ladder.rungs.map((_, i) => i);
  return isComparing() ? all.filter((i) => unique(rows.map(({ steps }) => `${steps[i].held}/${steps[i].n} ${steps[i].outcome}`)).length > 1) : all;
}

function ladderRows(ladder) {
  const [keep, isShown, pins] = [modelFilter(), lensNow(), new Set(askedList("pins"))];
  const passes = (row) => !isComparing() && keep(row.model) && row.steps.some(isShown);
  const sorted = sortedBy(ladder.rows.filter((row) => pins.has(row.model) || passes(row)), (row, key) => rungValue(ladder, row, key), "");
  const kept = sorted.sort((a, b) => pins.has(b.model) - pins.has(a.model));
  if (asked("by") !== "state") return kept;
  const order = [...Object.keys(data.theory.transitions), ""];
  return [...kept].sort((a, b) => order.indexOf(a.transition) - order.indexOf(b.transition));
}

views.ladder = {
  title: () => (storyNow() ?? data.stories[0])?.headline ?? "How far up does a sequence model climb?",
  lead() {
    const ladder = ladderNow();
    if (!ladder) return [make("p", { class: "lead" }, "No climb is among these records; ", link("matrix", {}, "the matrix"), " has all that is.")];
    return [
      storyNow() ? make("p", { class: "lead" }, storyNow().more) : null,
      make("p", { class: "lead" }, `${ladder.rungs.length} rungs, from one bit of memory to a dictionary, with one size for every model and ${spaced(ladder.steps)} training steps of ${ladder.batch} strings. Each box counts the seeds that hold a scaled accuracy of ${ladder.holds} at lengths ${ladder.where}. Training stops at length ${ladderStops(climbNow()).trained}. The corner shows what theory says of the model.`),
      storyLinks(),
    ];
  },
  controls() {
    const ladder = ladderNow();
    if (!ladder) return [];
    const { stops } = ladderStops(climbNow());
    const choice = data.ladders.length > 1 ? selectBox("protocol", "Climb", data.ladders.map((one) => [protocols[one.protocol].label, protocols[one.protocol].label]), protocols[ladder.protocol].label) : null;
    const length = stops.length > 1 ? slider("at", "Lengths", stops, usualStop(climbNow()), (stop) => stopWords(climbNow(), stop)) : null;
    const rungs = isNarrow() ? selectBox("sort", "Sort by", [["", "rungs held"], ...climbNow().rungs.map((rung) => [`-${rung.name}`, rung.name])], "") : null;
    return [choice, length, rungs, selectBox("cells", "Boxes show", [["", "seeds that hold"], ["accuracy", "median accuracy"]], ""), searchBox("q", "Models"), selectBox("by", "Order", [["", "highest first"], ["state", "by how the state moves"]], ""), selectBox("show", "Show", [["", "all cells"], ...Object.entries(lenses).map(([name, [text]]) => [name, text])], ""), askedList("pins").length > 1 ? toggle("differ", "Only what differs between the pinned") : null, familyChips(ladder.rows.map((row) => row.model))];
  },
  body() {
    const ladder = ladderNow();
    if (!ladder) return [];
    const rows = ladderRows(ladder);
    return rows.length ? [ladderTable(ladder, rows), ...((isComparing() && differences(rows)) || []), ladderKey(ladder), aboutClimb(ladder), ...surprises(ladder, rows)] : [note("No model passes the filter.")];
  },
  sheet() {
    const ladder = ladderNow();
    const heads = ["model", "transition", "rung", "asks", "task", "outcome", "held", "lost", "seeds", "held_least", "held_most", "theory", "why", "meeting", "scores"];
    const lines = ladder ? ladderRows(ladder).flatMap((row) => row.steps.map((step, i) => [row.model, row.transition, ladder.rungs[i].name, ladder.rungs[i].asks, ladder.rungs[i].task, step.outcome, step.held, step.lost, step.n, ...step.between, step.theory, step.why, step.meeting, step.scores.join(" ")])) : [];
    return [heads, ...lines];
  },
  models: () => (ladderNow() ? ladderRows(ladderNow()).map((row) => row.model) : []),
};

// On a phone: a strip of squares a model, whose rungs are named once above.
function ladderStrips(ladder, rows) {
  const shown = rungsShown(ladder, rows);
  const side = 27;
  const names = draw("svg", { class: "rungs", viewBox: `0 0 ${side * shown.length} 84`, "aria-hidden": "true" }, shown.map((i, place) => draw("text", { transform: `translate(${side * (place + 0.5) + 4} 80) rotate(-90)` }, ladder.rungs[i].name)));
  const strips = rows.map((row) => make("li", { "data-model": row.model }, make("div", { class: "who" }, pinButton(row.model, titleOf(row.model)), modelLink(row.model), make("span", { class: "sum" }, `${row.held}/${ladder.rungs.length}`)), make("div", { class: "strip" }, shown.map((i) => ladderCell(ladder, row, i, 26, 26)))));
  return make("div", { class: "ladder strips" }, names, make("ol", { "aria-label": "The ladder" }, strips));
}

function ladderTable(ladder, rows) {
  if (isNarrow()) return ladderStrips(ladder, rows);
  const own = protocols[ladder.protocol];
  const shown = rungsShown(ladder, rows);
  const levels = ladder.rungs.map((rung) => data.listed.tasks[rung.task]?.level ?? own.levels[own.tasks.findIndex((label) => taskName(label) === rung.task)] ?? "none");
  const heads = shown.map((i) => {
    const rung = ladder.rungs[i];
    const head = sortHead(rung.name, make("span", { class: "hidden-text" }, `Sort by ${rung.name}`), { attributes: { class: classOf(levels[i]) } });
    head.prepend(link("task", { name: rung.task }, [make("b", {}, rung.name), make("small", {}, rung.asks)]));
    return head;
  });
  const bands = bandsOf(shown.map((i) => levels[i])).map((one) => make("th", { scope: "colgroup", colspan: one.count, class: `band ${classOf(one.level)}` }, make("span", { title: className(one.level) }, className(one.level))));
  const corners = [make("th", { scope: "col", class: "corner", rowspan: 2 }, "Model"), make("th", { scope: "col", class: "sum", rowspan: 2 }, "Rungs")];
  const head = [make("tr", {}, corners, bands), make("tr", {}, heads)];
  let last = null;
  const lines = rows.flatMap((row) => {
    const over = asked("by") === "state" && row.transition !== last ? make("tr", { class: "kind" }, make("th", { colspan: ladder.rungs.length + 2, scope: "rowgroup" }, row.transition ? `${row.transition}: ${data.theory.transitions[row.transition] ?? row.transition}` : "not declared")) : null;
    last = row.transition;
    return [over, ladderLine(ladder, row, levels, shown)];
  });
  const caption = make("caption", { class: "hidden-text" }, `Seeds that hold each rung of ${own.label}, with what theory says`);
  return scroller("The ladder", make("table", { class: "ladder" }, caption, make("thead", {}, head), make("tbody", {}, lines)));
}

function ladderCell(ladder, row, i, ...size) {
  const step = row.steps[i];
  const seeds = step.n ? `${step.held} of ${step.n} seeds, ${step.outcome}${step.close ? `, ${step.between.join(" to ")} by other strings` : ""}` : "not run";
  const said = `${titleOf(row.model)}, ${ladder.rungs[i].name}: ${seeds}; theory ${step.theory}`;
  const drawn = box(step, asked("cells") === "accuracy", ...size);
  const faded = lensNow()(step) ? "" : " faded";
  return step.cell === null ? make("span", { class: `cell${faded}`, role: "img", "aria-label": said }, drawn) : cellButton(cells[step.cell], [drawn], { class: `cell${faded}`, "aria-label": said, title: `${said}. ${step.why}.` });
}

function ladderLine(ladder, row, levels, shown) {
  const boxes = shown.map((i) => make("td", { class: classOf(levels[i]) }, ladderCell(ladder, row, i)));
  const name = make("th", { scope: "row" }, pinButton(row.model, titleOf(row.model)), swatch(row.model), modelLink(row.model));
  return make("tr", { "data-model": row.model }, name, make("td", { class: "sum" }, make("b", {}, String(row.held)), `/${ladder.rungs.length}`), boxes);
}

function aboutClimb(ladder) {
  const seeds = unique(ladder.rows.flatMap((row) => row.steps.filter((step) => step.n).map((step) => step.n))).sort();
  const best = ladder.rows[0];
  const source = protocols[ladder.protocol].source;
  return make("p", { class: "note" }, isolated(titleOf(best.model)), ` holds most rungs, ${best.held} of ${ladder.rungs.length}. The ladder has ${ladder.rows.length} models, with ${seeds.join(" to ")} seeds a box.${ladder.to_come ? ` The reference table lists ${ladder.to_come} more.` : ""} ${source ? `${source[0].toUpperCase()}${source.slice(1)}.` : ""}`);
}

// What else differs between pinned models: how they are built, and the most that their runs of these rungs held.
function differences(rows) {
  const most = (row, sizeOf) => Math.max(...row.steps.map((step) => (step.cell === null ? 0 : sizeOf(cells[step.cell]) ?? 0)));
  const listed = (name) => (row) => listedOf(row.model)?.[name];
  const facts = {
    "how the state moves": (row) => row.transition,
    family: (row) => named(row.model).family,
    year: listed("year"),
    parameters: (row) => spaced(most(row, parametersOf)),
    "state, bytes": (row) => spaced(most(row, stateOf)),
    "the state grows": listed("state_growth"),
    cost: listed("cost"),
  };
  const lines = Object.entries(facts).map(([words, of]) => [words, ...rows.map(of)]).filter(([, ...values]) => unique(values).length > 1);
  return lines.length ? [heading("What else differs"), plainTable("What else differs", ["", ...rows.map((row) => titleOf(row.model))], lines)] : null;
}

function ladderKey(ladder) {
  const sample = (step, text) => make("li", {}, box({ n: 3, held: 0, theory: "open", meeting: "open", ...step }), text);
  return make("ul", { class: "key boxes", "aria-label": "Key" }, [
    sample({ held: 3 }, "held by all seeds"),
    sample({ held: 1 }, "by one of three"),
    sample({ lost: 3 }, "learnt in training, and lost"),
    sample({ held: 2, close: true }, `${ladder.strings} strings are too few to tell`),
    sample({ theory: "can" }, "theory: can"),
    sample({ theory: "cannot" }, "cannot"),
    sample({ theory: "open" }, "open"),
    sample({ theory: "can", meeting: "can, not held" }, "theory says can, most seeds do not"),
    sample({ held: 3, theory: "cannot", meeting: "cannot, yet held" }, "theory says cannot, most seeds do"),
  ], make("li", { class: "words" }, `Theory says whether weights exist for every length. It does not say that training finds them. Rungs are tested at ${ladder.where}.`));
}

// Where theory and training do not agree, the odd ones first, and where a paper solves what is not held here.
function surprises(ladder, rows) {
  const found = rows.flatMap((row) => row.steps.map((step, i) => ({ row, step, rung: ladder.rungs[i] }))).filter(({ step }) => step.meeting in disagreements);
  const published = rows.flatMap((row) => row.steps.flatMap((step, i) => (step.papers ?? []).filter(([word, solved]) => word === "differs" && solved).map(([, , text]) => ({ row, step, rung: ladder.rungs[i], text }))));
  const lists = [["Excluded, and yet held at these lengths", found.filter(({ step }) => step.meeting === "cannot, yet held")], ["Possible, and not learnt", found.filter(({ step }) => step.meeting === "can, not held")], ["Solved in a paper, and not held here", published]];
  return lists.map(([title, own]) => {
    if (!own.length) return null;
    const say = ({ row, step, rung, text }) => make("li", {}, button("", () => openCell(step.cell), { class: "text" }).appendChild(make("span", {}, titleOf(row.model), " on ", rung.name)).parentNode, ` ${step.held}/${step.n}. `, make("span", { class: "muted" }, `${text ?? step.why}.`));
    const [first, rest] = [own.slice(0, 10), own.slice(10)];
    const more = rest.length ? make("details", { class: "noexport" }, make("summary", {}, `${rest.length} more`), make("ul", {}, rest.map(say))) : null;
    return make("section", { class: "surprises" }, small(`${title} (${own.length})`), make("ul", {}, first.map(say)), more);
  }).filter(Boolean);
}
