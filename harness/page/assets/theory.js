// What is proven of each way to move a state, how training fared there, and what papers report.

// Text with its papers as links.
const cited = (text) => text.split(/(?:arXiv:)?(\d{4}\.\d{4,5})/).map((part, i) => (i % 2 ? paperLink(part) : part));

const transitionsShown = () => {
  const words = matcher("q");
  return Object.keys(data.theory.verdicts).filter((name) => words(name, data.theory.transitions[name] ?? ""));
};

// Of a transition's cells of a climb, [held, all] where theory has this word.
function fared(ladder, transition, word) {
  const steps = (ladder?.rows ?? []).filter((row) => row.transition === transition).flatMap((row) => row.steps.filter((step) => step.n && step.theory === word));
  return [steps.filter((step) => step.outcome === "held").length, steps.length];
}

function reportsShown() {
  const [keep, rows] = [modelFilter(), data.ladders[0]?.rows ?? []];
  const all = rows.filter((row) => keep(row.model)).flatMap((row) => row.steps.flatMap((step, i) => (step.papers ?? []).map(([word, solved, text]) => ({ model: row.model, step, rung: data.ladders[0].rungs[i].name, word, solved, text }))));
  return all.filter((one) => !asked("papers") || one.word === asked("papers"));
}

views.theory = {
  title: () => "Theory and literature",
  lead: () => [make("p", { class: "lead" }, "What is proven of each way to move a state, beside what training found; then what papers report for the same tasks, beside ours.")],
  controls: () => [searchBox("q", "Models or transitions"), selectBox("papers", "Papers", [["", "all values"], ["differs", "where ours differs"], ["agrees", "where ours agrees"]], ""), familyChips((data.ladders[0]?.rows ?? []).map((row) => row.model))],
  body: () => [heading("What is proven"), ...provenTable(), heading("What papers report"), ...reportTable()],
  sheet() {
    const proven = transitionsShown().flatMap((name) => Object.entries(data.theory.verdicts[name]).map(([demand, [word, why]]) => ["theory", name, demand, word, why]));
    return [["kind", "model_or_transition", "rung_or_demand", "word", "text"], ...proven, ...reportsShown().map((one) => ["paper", one.model, one.rung, one.word, one.text])];
  },
  models: () => unique(reportsShown().map((one) => one.model)),
};

function provenTable() {
  const shown = transitionsShown();
  if (!shown.length) return [note("No way to move a state passes the filter.")];
  const demands = Object.keys(data.theory.demands);
  const ladder = data.ladders[0];
  const share = (name, word) => {
    const [held, all] = fared(ladder, name, word);
    return all ? `${held}/${all}` : "–";
  };
  const mark = ([word, why] = ["", ""]) => (word ? make("span", { class: `word ${word}`, title: why, role: "img", "aria-label": word }, signs[word]) : make("span", { "aria-label": "no result" }, ""));
  const rows = shown.map((name) => [make("span", { class: "said-name", title: data.theory.transitions[name] }, name), ...demands.map((demand) => mark(data.theory.verdicts[name][demand])), share(name, "can"), share(name, "cannot")]);
  const whys = shown.flatMap((name) => Object.entries(data.theory.verdicts[name]).map(([demand, [word, why]]) => [name, demand, mark([word, why]), make("span", { class: "said" }, cited(`${why}.`))]));
  return [
    note("✓ weights exist that do it at every length, ✗ no weights do, · open; a blank has no result. The last two columns count the cells of the ladder that hold, of those that theory allows and of those that it excludes."),
    plainTable("What is proven", ["How the state moves", ...demands, "can: held", "cannot: held"], rows, { className: "proven" }),
    make("details", { class: "noexport" }, make("summary", {}, "Every result with its paper"), plainTable("Results", ["How the state moves", "Demand", "", "Why"], whys, { className: "left3" })),
  ];
}

function reportTable() {
  const found = reportsShown();
  if (!found.length) return [note("No paper's value is among these.")];
  const all = data.ladders[0].rows.flatMap((row) => row.steps.flatMap((step) => step.papers ?? []));
  const rows = found.map((one) => [make("span", { class: "who" }, swatch(one.model), modelLink(one.model)), cellButton(cells[one.step.cell], [one.rung], { class: "text" }), one.word, make("span", { class: "said" }, cited(`${one.text}.`))]);
  return [
    note(`${all.length} values of ${data.sources.length} tables; ours agrees with ${all.filter(([word]) => word === "agrees").length}. A paper solves a task at 0.9; its protocol is another one.`),
    plainTable("What papers report", ["Model", "Rung", "Ours", "Theirs"], rows, { className: "left3" }),
    make("details", {}, make("summary", {}, "The protocols of these papers"), make("ul", { class: "papers" }, data.sources.map((one) => make("li", {}, cited(`${one.where}: ${one.protocol}.`))))),
  ];
}
