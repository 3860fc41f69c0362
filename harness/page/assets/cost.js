// What it costs: speed, memory and decoding, measured model by model, beside how far the model climbs.

const benches = data.throughput.map((machine) => ({ ...machine, rows: rowsOf(machine.columns) }));
const benchNow = () => benches.find((one) => one.name === asked("machine")) ?? benches[0];
const costAxes = {
  train: ["training, tokens a second", "train", "tokens_per_s", 256],
  prefill: ["reading a prompt, tokens a second", "prefill", "tokens_per_s", 1024],
  decode: ["decoding one at a time, tokens a second", "decode", "tokens_per_s", 256],
  memory: ["peak memory of a training step, bytes", "train", "peak_bytes", 1024],
  state: ["state behind 256 tokens, bytes", "decode", "state_bytes", 256],
};
const wayNow = () => (Object.hasOwn(costAxes, asked("x")) ? asked("x") : "train");
const matchNow = () => (asked("match") === "state" ? "state" : "parameters");

function benchRows(what, name, batch) {
  const own = benchNow()?.rows.filter((row) => row.match === matchNow() && row.what === what && isNumber(row[name])) ?? [];
  return batch ? own.filter((row) => row.batch === batch) : own;
}

function costOf(model, axis) {
  const [, what, name, at] = costAxes[axis];
  const own = benchRows(what, name, what === "train" ? 0 : 1).filter((row) => row.model === model && row.length === at);
  if (!own.length) return null;
  const usual = own.reduce((best, row) => (axis === "memory" ? (row.batch < best.batch ? row : best) : row.batch > best.batch ? row : best));
  return { value: usual[name], low: name === "tokens_per_s" ? (usual[name] * usual.ms) / usual.ms_p80 : null, high: name === "tokens_per_s" ? (usual[name] * usual.ms) / usual.ms_p20 : null };
}

// How good a model is: the share of seeds that hold their rung, or the mean of its tasks' medians.
function merit(own, model) {
  const ladder = data.ladders.find((one) => one.protocol === own.number);
  const row = ladder?.rows.find((one) => one.model === model);
  if (ladder) return row ? row.held : null;
  const found = own.tasks.map((task) => cellAt(own.label, task, model)).filter((cell) => cell && isNumber(cell.median) && !cell.raw);
  return found.length === own.tasks.length ? mean(found.map((cell) => cell.median)) : null;
}
const meritTitle = (own) => (data.ladders.some((one) => one.protocol === own.number) ? "rungs held" : "mean scaled accuracy");
const costProtocols = () => protocols.filter((own) => own.models.length > 1);
const usualCostProtocol = () => (data.ladders.length ? usualProtocol() : (costProtocols()[0] ?? protocols[0]).label);
const costProtocol = () => askedProtocol(usualCostProtocol());

function costRows() {
  const own = costProtocol();
  const keep = modelFilter();
  const names = unique([...own.models, ...(benchNow()?.rows.map((row) => row.model) ?? [])]).filter(keep);
  return names.map((model) => {
    const axes = Object.fromEntries(Object.keys(costAxes).map((axis) => [axis, costOf(model, axis)]));
    const here = own.models.includes(model) ? own.tasks.map((task) => cellAt(own.label, task, model)).filter(Boolean).flatMap((cell) => cell.chosen.map(speedOf)).filter(isNumber) : [];
    return { model, merit: merit(own, model), axes, here: median(here) };
  });
}

views.cost = {
  title: () => "What it costs",
  lead() {
    const bench = benchNow();
    const where = bench ? `Measured on ${bench.device}, torch ${bench.torch}, in fp32, ${bench.clock}; every model at the same ${matchNow() === "state" ? `${spaced(bench.grid.state_bytes)} bytes of state` : `${spaced(bench.grid.parameters)} parameters`}.` : "No measurement of throughput lies beside these records.";
    return [make("p", { class: "lead" }, "How fast a model trains, reads and answers, what it holds in memory, and how far it climbs for that."), make("p", { class: "note" }, where, " Bars on a point: the 20th to the 80th percentile of repetitions.")];
  },
  controls() {
    const machines = benches.length > 1 ? selectBox("machine", "Machine", benches.map((one) => [one.name, one.device]), benches[0].name) : null;
    return [
      selectBox("x", "Cost", Object.entries(costAxes).map(([key, [title]]) => [key, title]), "train"),
      selectBox("match", "Models at equal", [["parameters", "parameters"], ["state", "state"]], "parameters"),
      selectBox("protocol", "Accuracy of", costProtocols().map((own) => [own.label, own.label]), usualCostProtocol()),
      machines,
      searchBox("q", "Models"),
      familyChips(costRows().map((row) => row.model)),
    ];
  },
  body() {
    const rows = costRows();
    if (!rows.length) return [note("No model passes the filter.")];
    return [costScatter(rows), ...costByLength(rows.map((row) => row.model)), costTable(rows)].filter(Boolean);
  },
  sheet() {
    const heads = ["model", "accuracy_of", "accuracy", ...Object.keys(costAxes), "tokens_per_s_in_these_runs"];
    return [heads, ...costRows().map((row) => [row.model, `${costProtocol().label}: ${meritTitle(costProtocol())}`, row.merit, ...Object.keys(costAxes).map((axis) => row.axes[axis]?.value ?? ""), row.here])];
  },
  models: () => costRows().map((row) => row.model),
};

const outward = (values) => {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return { from: low / 1.3, to: high * 1.3, log: 10 };
};

function costScatter(rows) {
  const own = costProtocol();
  const axis = wayNow();
  const both = rows.filter((row) => row.axes[axis] && isNumber(row.merit));
  if (!both.length) return note(`No model of ${own.label} has this cost measured; the table has what there is.`);
  const ladder = data.ladders.find((one) => one.protocol === own.number);
  const svg = chart({
    label: `${meritTitle(own)} of ${own.label} by ${costAxes[axis][0]}; the numbers are in the table below`,
    width: within(1000),
    height: 420,
    x: outward(both.flatMap((row) => [row.axes[axis].value, row.axes[axis].low, row.axes[axis].high]).filter(isNumber)),
    y: ladder ? { from: 0, to: ladder.rungs.length, ticks: [0, 1, 2, 3, 4].map((part) => (part * ladder.rungs.length) / 4) } : { from: 0, to: 1, ticks: shares },
    xTitle: costAxes[axis][0],
    yTitle: meritTitle(own),
    paint: ({ svg, x, y, right }) => {
      const taken = both.map((row) => markAt(x(row.axes[axis].value), y(row.merit)));
      for (const row of [...both].sort((a, b) => b.merit - a.merit)) {
        const { value, low, high } = row.axes[axis];
        const ink = inkOf(row.model);
        if (isNumber(low)) ink.append(draw("path", { class: "line", d: `M${x(low).toFixed(1)} ${y(row.merit).toFixed(1)}H${x(high).toFixed(1)}` }));
        ink.append(marker(row.model, x(value), y(row.merit), 5, `${titleOf(row.model)}: ${short(value)}, ${rounded(row.merit)}`));
        svg.append(ink);
        nameBeside(svg, taken, titleOf(row.model), x(value), y(row.merit), right);
      }
    },
  });
  const missing = rows.length - both.length;
  return make("figure", { class: "scatter" }, svg, make("figcaption", {}, `${meritTitle(own)} of ${own.label}, by ${costAxes[axis][0]}.${missing ? ` ${missing} models have only one of the two; they are in the table.` : ""}`));
}

function costByLength(models) {
  const kinds = [["train", "tokens_per_s", "Training, tokens a second by length", 0], ["decode", "tokens_per_s", "Decoding, tokens a second behind a context", 1], ["train", "peak_bytes", "Peak memory of a training step of one string, bytes", 1]];
  const filtered = asked("q") || asked("family");
  const measured = models.filter((model) => isNumber(merit(costProtocol(), model)) && costOf(model, "train"));
  const shown = filtered ? models : foremost(costProtocol(), measured);
  const figures = kinds.map(([what, name, title, batch]) => {
    const rows = benchRows(what, name, batch).filter((row) => shown.includes(row.model));
    const series = shown.map((model) => {
      const own = rows.filter((row) => row.model === model);
      const lengths = unique(own.map((row) => row.length)).sort((a, b) => a - b);
      return { model, points: lengths.map((length) => [length, Math.max(...own.filter((row) => row.length === length).map((row) => row[name]))]) };
    }).filter((one) => one.points.length > 1);
    if (!series.length) return null;
    const all = series.flatMap((one) => one.points);
    const svg = chart({
      label: title,
      width: within(400),
      height: 240,
      x: { from: Math.min(...all.map(([x]) => x)), to: Math.max(...all.map(([x]) => x)), log: 2 },
      y: outward(all.map(([, value]) => value)),
      xTitle: "length",
      paint: (scales) => series.forEach(({ model, points }) => modelLine(scales.svg, model, points, scales, { radius: 3, said: ([at, value]) => `${titleOf(model)}, ${at}: ${short(value)}` })),
    });
    return { figure: make("figure", {}, make("figcaption", {}, title), svg), models: series.map((one) => one.model) };
  }).filter(Boolean);
  if (!figures.length) return [];
  const key = unique(figures.flatMap((one) => one.models));
  return [heading("By length"), note(filtered ? "The models of the filter." : `The ${shown.length} that get furthest of those measured; a search or a family shows others.`), keyOf(key), make("div", { class: "panels" }, figures.map((one) => one.figure))];
}

function costTable(rows) {
  const own = costProtocol();
  const shown = sortedBy(rows, (row, key) => (key === "model" ? titleOf(row.model) : key === "merit" ? row.merit : key === "here" ? row.here : row.axes[key]?.value ?? null), "-merit");
  const names = { train: "train, tok/s", prefill: "read, tok/s", decode: "decode, tok/s", memory: "peak memory, B", state: "state, B" };
  const heads = [sortHead("model", "Model", { usual: "-merit" }), sortHead("merit", meritTitle(own), { usual: "-merit" }), ...Object.keys(costAxes).map((axis) => sortHead(axis, names[axis], { usual: "-merit" })), sortHead("here", "in these runs, tok/s", { usual: "-merit" })];
  const lines = shown.map((row) => make("tr", { "data-model": row.model }, make("th", { scope: "row" }, swatch(row.model), modelLink(row.model)), make("td", {}, isNumber(row.merit) ? rounded(row.merit, meritTitle(own) === "rungs held" ? 0 : 2) : "–"), Object.keys(costAxes).map((axis) => make("td", {}, short(row.axes[axis]?.value))), make("td", {}, short(row.here))));
  const table = make("table", { class: "numbers sorted" }, make("caption", { class: "hidden-text" }, "What models cost"), make("thead", {}, make("tr", {}, heads)), make("tbody", {}, lines));
  return make("section", {}, heading("All of it"), scroller("What models cost", table));
}
