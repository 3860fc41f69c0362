// One family of rungs against another: state tracking against retrieval, a point a model.

const families = ["state tracking", "retrieval", "counting and stacks", "memory"];
const familyAxis = (name, usual) => (families.includes(asked(name)) ? asked(name) : usual);

function cornerShown() {
  const [across, up] = [familyAxis("x", families[0]), familyAxis("y", families[1])];
  const keep = modelFilter();
  const rows = (climbNow()?.rows ?? []).filter((row) => keep(row.model) && row.families[across] && row.families[up]);
  return { across, up, rows };
}

views.corner = {
  title: () => {
    const { across, up } = cornerShown();
    return across === families[0] && up === families[1] && data.stories.length ? data.stories[0].headline : `${across[0].toUpperCase()}${across.slice(1)} against ${up}`;
  },
  lead: () => [make("p", { class: "lead" }, "Each point is a model and links to it. The upper right corner is a model that does both."), storyLinks()],
  controls: () => {
    const options = families.map((name) => [name, name]);
    return [selectBox("x", "Across", options, families[0]), selectBox("y", "Up", options, families[1]), searchBox("q", "Models"), familyChips((climbNow()?.rows ?? []).map((row) => row.model))];
  },
  body() {
    const { across, up, rows } = cornerShown();
    if (!rows.length) return [note("No model here was run on all rungs of both families. Choose other families, or run the missing rungs with ladder climb.")];
    const [tall, axis] = [Math.min(560, within(1000)), { from: -0.06, to: 1.06, ticks: shares }];
    const svg = chart({ label: `${up} by ${across}; the numbers are in the table below`, width: within(1000), height: tall, x: axis, y: axis, xTitle: across, yTitle: up, paint: (scales) => cornerPoints(scales, rows, across, up) });
    const where = `Mean scaled accuracy at lengths ${climbNow().where} over the rungs of a family, cut to 0..1. Bars: 95% interval of a bootstrap over seeds. Names are left out where they would overlap.`;
    const said = (row, name) => row.families[name].map((value) => rounded(value)).join(" ");
    const numbers = plainTable("Scores", ["Model", `${across}: mean, low, high`, `${up}: mean, low, high`], rows.map((row) => [make("span", { class: "who" }, swatch(row.model), modelLink(row.model)), said(row, across), said(row, up)]));
    return [make("figure", { class: "scatter" }, svg, make("figcaption", {}, where)), make("details", { class: "noexport" }, make("summary", {}, "Numbers"), numbers)];
  },
  sheet() {
    const { across, up, rows } = cornerShown();
    const heads = [across, up].flatMap((name) => ["", "_low", "_high"].map((end) => `${name.replaceAll(" ", "_")}${end}`));
    return [["model", ...heads], ...rows.map((row) => [row.model, ...row.families[across], ...row.families[up]])];
  },
  models: () => cornerShown().rows.map((row) => row.model),
};

function cornerPoints({ svg, x, y, right }, rows, across, up) {
  const ordered = [...rows].sort((a, b) => b.families[across][0] + b.families[up][0] - a.families[across][0] - a.families[up][0]);
  const taken = ordered.map((row) => markAt(x(row.families[across][0]), y(row.families[up][0])));
  for (const { model, families: of } of ordered) {
    const [[a, left, most], [b, low, high]] = [of[across], of[up]];
    const said = `${titleOf(model)}: ${across} ${rounded(a)}, ${up} ${rounded(b)}`;
    const ink = inkOf(model);
    ink.append(draw("path", { class: "reach", d: `M${x(left).toFixed(1)} ${y(b).toFixed(1)}H${x(most).toFixed(1)}M${x(a).toFixed(1)} ${y(low).toFixed(1)}V${y(high).toFixed(1)}` }), marker(model, x(a), y(b), 5, said));
    const point = draw("a", { href: address("model", { name: model }), "aria-label": said }, ink);
    svg.append(point);
    nameBeside(point, taken, titleOf(model), x(a), y(b), right);
  }
}
