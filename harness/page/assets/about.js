// Where all of it comes from: how to read a number, the runs of every protocol, bits of weights, downloads.

views.about = {
  title: () => "About these results",
  lead: () => [make("p", { class: "lead" }, `${spaced(data.count)} runs, every one of them in these cells. The page is made by `, make("code", {}, "ladder page"), " from records.csv alone; the same records give the same bytes, and it fetches nothing.")],
  controls: () => [],
  body: () => [reading(), provenanceList(), pluginFigures()].flat().filter(Boolean),
  sheet: () => {
    const names = Object.keys(runs[0] ?? {}).filter((name) => name !== "number");
    const bins = (list) => JSON.stringify(Object.fromEntries(list.map((bin) => [bin.name, bin.value])));
    const whose = new Map(cells.flatMap((cell) => cell.rows.map((i) => [i, cell])));
    return [["protocol", "task", "model", ...names], ...runs.map((run) => {
      const cell = whose.get(run.number);
      return [cell?.own.label, cell?.taskLabel, cell?.modelLabel, ...names.map((name) => (binNames.has(name) ? bins(run[name]) : run[name]))];
    })];
  },
  models: () => unique(cells.map((cell) => cell.modelLabel)),
  papers: () => [...new Map(protocols.flatMap((own) => own.papers).map((paper) => [paper.name, paper])).values()],
};

function reading() {
  return [heading("How to read a number"), definitions([
    ["scaled accuracy", "(accuracy − chance) / (1 − chance): 0 is chance, 1 is perfect; raw where several answers may be right"],
    ["median, [range], k/n", "over the seeds at the learning rate chosen on validation; k of the n runs solved the task, and one that diverged or failed did not"],
    ["floors", "what can be had without computing: always the commonest answer; the best guess from length and position"],
    ["theory", "whether weights exist that do it at every length; it does not say that training finds them"],
    ["a dash", "nobody measured it"],
  ]), note("The records of this page, in four digits, are the CSV of this view; in full precision they are records.csv beside it, sha256 ", make("code", {}, data.digest), ".")];
}

function provenanceList() {
  const all = protocols.map((own) => make("section", { class: "protocol" }, make("h3", {}, isolated(own.label)), definitions([...Object.entries(own.facts), ["Solved", own.solved]]), make("p", { class: "note" }, link("matrix", { protocol: own.label }, "Its matrix"), " · ", link("lengths", { protocol: own.label }, "by length"))));
  return [heading("Protocols and their runs"), ...all];
}

function pluginFigures() {
  if (!data.figures.length) return [];
  return [heading("Figures of plugins"), make("ul", {}, data.figures.map((one) => make("li", {}, make("a", { href: one.path }, one.title), " ", isolated(one.protocol))))];
}
