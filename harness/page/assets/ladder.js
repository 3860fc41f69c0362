// The ladder: models by rungs, in each box how many seeds hold it and what theory says.

const laddersNow = () => data.ladders;
const ladderNow = () => data.ladders.find((one) => protocols[one.protocol].label === asked("protocol")) ?? data.ladders[0];

// Cells that are shown alone; the others fade, and models without one are left out.
const lenses = {
  lost: ["learnt and lost", (step) => step.outcome === "lost"],
  gap: ["theory says can, not held", (step) => step.meeting === "can, not learnt"],
  odd: ["theory says cannot, held", (step) => step.meeting === "cannot, yet held"],
  papers: ["a paper solves it, not held here", (step) => (step.papers ?? []).some(([word, solved]) => word === "differs" && solved)],
};
const lensNow = () => lenses[asked("show")]?.[1] ?? (() => true);

const storyNow = () => data.stories.find((one) => address(one.view, one.params) === address());
const storyLinks = () => (data.stories.length ? make("nav", { class: "stories", "aria-label": "Findings" }, data.stories.map((one, i) => link(one.view, one.params, [make("b", {}, one.name), make("span", {}, i ? one.headline : one.more)], { "aria-current": one === storyNow() ? "true" : null }))) : null);

function ladderRows(ladder) {
  const [keep, isShown] = [modelFilter(), lensNow()];
  const kept = ladder.rows.filter((row) => keep(row.model) && row.steps.some(isShown));
  if (asked("by") !== "state") return kept;
  const order = [...Object.keys(data.theory.transitions), ""];
  return [...kept].sort((a, b) => order.indexOf(a.transition) - order.indexOf(b.transition));
}

views.ladder = {
  title: () => (storyNow() ?? data.stories[0])?.headline ?? "How far up does a sequence model climb?",
  lead() {
    const ladder = ladderNow();
    if (!ladder) return [make("p", { class: "lead" }, "No climb is among these records; ", link("matrix", {}, "the matrix"), " has all that is.")];
    const seeds = unique(ladder.rows.flatMap((row) => row.steps.filter((step) => step.n).map((step) => step.n))).sort();
    const best = ladder.rows[0];
    const source = protocols[ladder.protocol].source;
    return [
      storyNow() ? make("p", { class: "lead" }, storyNow().more) : null,
      make("p", { class: "lead" }, `${ladder.rungs.length} rungs, from one bit of memory to a dictionary, at one size for every model. Each box: of its seeds, how many hold scaled accuracy of ${ladder.holds} at lengths ${ladder.where}, trained on at most 40. Its corner: what is proven of the way that model moves its state.`),
      make("p", { class: "note" }, isolated(titleOf(best.model)), ` stands highest, with ${best.held} of ${ladder.rungs.length}. ${ladder.rows.length} models so far, ${seeds.join(" to ")} seeds a box${ladder.to_come ? `; ${ladder.to_come} more of the reference table are to come` : ""}. ${source ? `${source[0].toUpperCase()}${source.slice(1)}.` : ""}`),
      storyLinks(),
    ];
  },
  controls() {
    const ladder = ladderNow();
    if (!ladder) return [];
    const choice = data.ladders.length > 1 ? selectBox("protocol", "Climb", data.ladders.map((one) => [protocols[one.protocol].label, protocols[one.protocol].label]), protocols[ladder.protocol].label) : null;
    return [choice, searchBox("q", "Models"), selectBox("by", "Order", [["", "highest first"], ["state", "by how the state moves"]], ""), selectBox("show", "Show", [["", "all cells"], ...Object.entries(lenses).map(([name, [text]]) => [name, text])], ""), familyChips(ladder.rows.map((row) => row.model))];
  },
  body() {
    const ladder = ladderNow();
    if (!ladder) return [];
    const rows = ladderRows(ladder);
    return rows.length ? [ladderTable(ladder, rows), ladderKey(ladder), ...surprises(ladder, rows)] : [note("No model passes the filter.")];
  },
  sheet() {
    const ladder = ladderNow();
    const heads = ["model", "transition", "rung", "asks", "task", "outcome", "held", "lost", "seeds", "held_least", "held_most", "theory", "why", "meeting", "scores"];
    const lines = ladder ? ladderRows(ladder).flatMap((row) => row.steps.map((step, i) => [row.model, row.transition, ladder.rungs[i].name, ladder.rungs[i].asks, ladder.rungs[i].task, step.outcome, step.held, step.lost, step.n, ...step.between, step.theory, step.why, step.meeting, step.scores.join(" ")])) : [];
    return [heads, ...lines];
  },
  models: () => (ladderNow() ? ladderRows(ladderNow()).map((row) => row.model) : []),
};

function ladderTable(ladder, rows) {
  const own = protocols[ladder.protocol];
  const levels = ladder.rungs.map((rung) => data.listed.tasks[rung.task]?.level ?? own.levels[own.tasks.findIndex((label) => taskName(label) === rung.task)] ?? "none");
  const heads = ladder.rungs.map((rung, i) => make("th", { scope: "col", class: classOf(levels[i]) }, link("task", { name: rung.task }, [make("b", {}, rung.name), make("small", {}, rung.asks)])));
  const bands = bandsOf(levels).map((one) => make("th", { scope: "colgroup", colspan: one.count, class: `band ${classOf(one.level)}` }, make("span", { title: className(one.level) }, className(one.level))));
  const corners = [make("th", { scope: "col", class: "corner", rowspan: 2 }, "Model"), make("th", { scope: "col", class: "sum", rowspan: 2 }, "Rungs")];
  const head = [make("tr", {}, corners, bands), make("tr", {}, heads)];
  let last = null;
  const lines = rows.flatMap((row) => {
    const over = asked("by") === "state" && row.transition !== last ? make("tr", { class: "kind" }, make("th", { colspan: ladder.rungs.length + 2, scope: "rowgroup" }, row.transition ? `${row.transition}: ${data.theory.transitions[row.transition] ?? row.transition}` : "not declared")) : null;
    last = row.transition;
    return [over, ladderLine(ladder, row, levels)];
  });
  const caption = make("caption", { class: "hidden-text" }, `Seeds that hold each rung of ${own.label}, with what theory says`);
  return scroller("The ladder", make("table", { class: "ladder" }, caption, make("thead", {}, head), make("tbody", {}, lines)));
}

function ladderLine(ladder, row, levels) {
  const boxes = row.steps.map((step, i) => {
    const seeds = step.n ? `${step.held} of ${step.n} seeds, ${step.outcome}${step.close ? `, ${step.between.join(" to ")} by other strings` : ""}` : "not run";
    const said = `${titleOf(row.model)}, ${ladder.rungs[i].name}: ${seeds}; theory ${step.theory}`;
    const inside = step.cell === null ? make("span", { class: "cell", role: "img", "aria-label": said }, box(step)) : cellButton(cells[step.cell], [box(step)], { "aria-label": said, title: `${said}. ${step.why}.` });
    return make("td", { class: `${classOf(levels[i])}${lensNow()(step) ? "" : " faded"}` }, inside);
  });
  const name = make("th", { scope: "row" }, swatch(row.model), modelLink(row.model));
  return make("tr", { "data-model": row.model }, name, make("td", { class: "sum" }, make("b", {}, String(row.held)), `/${ladder.rungs.length}`), boxes);
}

function ladderKey(ladder) {
  const sample = (step, text) => make("li", {}, box({ n: 3, held: 0, theory: "open", meeting: "open", ...step }), text);
  return make("ul", { class: "key boxes", "aria-label": "Key" }, [
    sample({ held: 3 }, "held by all seeds"),
    sample({ held: 1 }, "by one of three"),
    sample({ lost: 3 }, "learnt in training, and lost"),
    sample({ held: 2, close: true }, `${ladder.strings} strings do not say whether most do`),
    sample({ theory: "can" }, "theory: can"),
    sample({ theory: "cannot" }, "cannot"),
    sample({ theory: "open" }, "open"),
    sample({ theory: "can", meeting: "can, not learnt" }, "can, and most seeds do not"),
    sample({ held: 3, theory: "cannot", meeting: "cannot, yet held" }, "cannot, and yet most do"),
  ], make("li", { class: "words" }, `Theory says that weights exist at every length, not that training finds them; a rung is tested at ${ladder.where}.`));
}

// Where theory and training do not agree, the odd ones first, and where a paper solves what is not held here.
function surprises(ladder, rows) {
  const found = rows.flatMap((row) => row.steps.map((step, i) => ({ row, step, rung: ladder.rungs[i] }))).filter(({ step }) => step.meeting in disagreements);
  const published = rows.flatMap((row) => row.steps.flatMap((step, i) => (step.papers ?? []).filter(([word, solved]) => word === "differs" && solved).map(([, , text]) => ({ row, step, rung: ladder.rungs[i], text }))));
  const lists = [["Excluded, and yet held at these lengths", found.filter(({ step }) => step.meeting === "cannot, yet held")], ["Possible, and not learnt", found.filter(({ step }) => step.meeting === "can, not learnt")], ["Solved in a paper, and not held here", published]];
  return lists.map(([title, own]) => {
    if (!own.length) return null;
    const say = ({ row, step, rung, text }) => make("li", {}, button("", () => openCell(step.cell), { class: "text" }).appendChild(make("span", {}, titleOf(row.model), " on ", rung.name)).parentNode, ` ${step.held}/${step.n}. `, make("span", { class: "muted" }, `${text ?? step.why}.`));
    const [first, rest] = [own.slice(0, 10), own.slice(10)];
    const more = rest.length ? make("details", { class: "noexport" }, make("summary", {}, `${rest.length} more`), make("ul", {}, rest.map(say))) : null;
    return make("section", { class: "surprises" }, small(`${title} (${own.length})`), make("ul", {}, first.map(say)), more);
  }).filter(Boolean);
}
