"use strict";
// Sorts and filters the tables, and fills the panel of a cell. Text of records reaches the page by textContent alone.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const panel = byId("panel");
let parsed = null;

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const numberOf = (text) => (text === "" ? null : Number(text));
const rounded = (value, digits = 2) => (isNumber(value) ? value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1") : "–");
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const median = (values) => {
  const sorted = [...values].sort((a, b) => a - b);
  const half = sorted.length >> 1;
  if (!sorted.length) return null;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};
const ranged = (values, digits = 2) => {
  const [low, high] = [Math.min(...values), Math.max(...values)].map((value) => rounded(value, digits));
  return low === high ? "" : ` [${low}, ${high}]`;
};
const spaced = (value) => (value === "" ? "–" : Number(value).toLocaleString("en-US"));

function element(name, { text, className, attributes = {} } = {}, ...children) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function records() {
  if (parsed) return parsed;
  const [names, ...rows] = fieldsOf(data.csv);
  parsed = rows.map((row) => Object.fromEntries(names.map((name, i) => [name, row[i]])));
  return parsed;
}

function fieldsOf(csv) {
  const rows = [];
  const field = /(?:"((?:[^"]|"")*)"|([^",\n]*))(,|\n|$)/gy;
  let row = [];
  while (field.lastIndex < csv.length) {
    const [, quoted, bare, end] = field.exec(csv);
    row.push(quoted === undefined ? bare : quoted.replaceAll('""', '"'));
    if (end !== ",") {
      rows.push(row);
      row = [];
    }
  }
  return rows;
}

// Sorting: cells without a result are last, whichever way.

for (const table of document.querySelectorAll("table.grid")) {
  const own = data.protocols[Number(table.dataset.protocol)];
  const body = table.tBodies[0];
  table.tHead.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = button.closest("th");
    const column = head.dataset.column === undefined ? null : Number(head.dataset.column);
    const before = head.getAttribute("aria-sort");
    const first = column === null ? "ascending" : "descending";
    const direction = before === "none" ? first : before === "ascending" ? "descending" : "ascending";
    for (const other of table.tHead.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const valueOf = (row) => data.cells[own.cells[Number(row.dataset.row)][column]]?.median ?? null;
    const compare = (a, b) => {
      const byName = Number(a.dataset.row) - Number(b.dataset.row);
      if (column === null) return sign * byName;
      const [left, right] = [valueOf(a), valueOf(b)];
      if (left === null || right === null) return (left === null) - (right === null) || byName;
      return sign * (left - right) || byName;
    };
    body.append(...[...body.rows].sort(compare));
  });
}

// Filtering.

function matcher(input) {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  return (name) => !words.length || words.some((word) => name.toLowerCase().includes(word));
}

function filter() {
  const [isModel, isTask] = [matcher(byId("models")), matcher(byId("tasks"))];
  const boxes = [...byId("filters").querySelectorAll("input[type=checkbox]")];
  const levels = new Set(boxes.filter((box) => box.checked).map((box) => box.value));
  const counts = { models: 0, allModels: 0, tasks: 0, allTasks: 0 };
  for (const table of document.querySelectorAll("table.grid")) {
    const own = data.protocols[Number(table.dataset.protocol)];
    const kept = own.tasks.map((task, i) => isTask(task) && levels.has(own.levels[i]));
    const rows = [...table.tBodies[0].rows];
    for (const row of rows) row.hidden = !isModel(own.models[Number(row.dataset.row)]);
    for (const one of table.querySelectorAll("[data-column]")) one.hidden = !kept[Number(one.dataset.column)];
    for (const band of table.querySelectorAll("th.band")) {
      const width = kept.filter((isKept, i) => isKept && own.levels[i] === band.dataset.level).length;
      band.hidden = width === 0;
      band.colSpan = width || 1;
    }
    const [models, tasks] = [rows.filter((row) => !row.hidden).length, kept.filter(Boolean).length];
    table.parentElement.hidden = !models || !tasks;
    table.parentElement.nextElementSibling.hidden = Boolean(models && tasks);
    counts.models += models;
    counts.allModels += rows.length;
    counts.tasks += tasks;
    counts.allTasks += kept.length;
  }
  const isWhole = counts.models === counts.allModels && counts.tasks === counts.allTasks;
  byId("shown").textContent = isWhole
    ? ""
    : `${counts.models} of ${counts.allModels} rows, ${counts.tasks} of ${counts.allTasks} columns`;
}

byId("filters").addEventListener("input", filter);
byId("filters").addEventListener("submit", (event) => event.preventDefault());

// The panel.

byId("tables").addEventListener("click", (event) => {
  const button = event.target.closest("button.cell");
  if (button) show(data.cells[Number(button.dataset.cell)]);
});
byId("close").addEventListener("click", () => panel.close());
panel.addEventListener("click", (event) => {
  if (event.target === panel) panel.close();
});

function show(cell) {
  const own = data.protocols[cell.protocol];
  const runs = cell.rows.map((i) => records()[i]);
  const chosen = runs.filter((run) => Number(run.lr) === cell.lr).sort((a, b) => Number(a.seed) - Number(b.seed));
  const done = chosen.filter((run) => run.status === "done");
  panel.className = own.classes[cell.task];
  byId("panel-names").replaceChildren(
    element("span", { className: "badge", text: own.names[cell.task] }),
    element("h2", { attributes: { id: "panel-title" } }, isolated(own.models[cell.model]), " on ", isolated(own.tasks[cell.task])),
  );
  panel.showModal();
  panel.scrollTop = 0;
  byId("panel-body").replaceChildren(
    ...headline(cell, chosen, done),
    ...seeds(cell, chosen),
    ...rates(cell, runs),
    ...byLength(cell, done),
    ...curves(cell, chosen),
    ...settings(cell, own),
    ...provenance(chosen),
    ...commands(cell, chosen),
  );
  byId("close").focus();
}

const isolated = (text) => element("bdi", { text });
const heading = (text) => element("h3", { text });

function scaled(cell, value) {
  return isNumber(value) ? (value - cell.chance) / (1 - cell.chance) : null;
}

function headline(cell, chosen, done) {
  const unfinished = chosen.length - done.length;
  const over = `${done.length} ${done.length === 1 ? "seed" : "seeds"}${unfinished ? `, ${unfinished} not finished` : ""}`;
  const what = cell.measure === "test" ? "raw test accuracy" : "scaled test accuracy";
  const scores = done.map((run) => numberOf(run[cell.measure ?? "test"])).filter(isNumber);
  const text = done.length ? rounded(cell.median) + ranged(scores) : "No seed finished";
  const number = element("p", { className: "headline", text });
  const share = `solved by ${cell.solved[0]} of ${cell.solved[1]}`;
  number.append(" ", element("small", { text: done.length ? `${what}: median${ranged(scores) && " and range"} over ${over}; ${share}` : `${chosen.length} tried` }));
  if (!done.length) return [number];
  const floors = ["best_constant", "content_free"].map((name) => rounded(scaled(cell, numberOf(done[0][name]))));
  const floorText =
    `Floors on the same strings: ${floors[0]} for the best constant answer, ${floors[1]} for the best guess from ` +
    `length and position. Chance is ${rounded(numberOf(done[0].s_rand), 3)} raw.`;
  return [number, element("p", { className: "note muted", text: floorText })];
}

function plainTable(caption, heads, rows) {
  const headRow = element("tr", {}, ...heads.map((text) => element("th", { text, attributes: { scope: "col" } })));
  const lines = rows.map(({ values, className }) => {
    const [first, ...rest] = values;
    const head = element("th", { text: first, attributes: { scope: "row" } });
    return element("tr", { className }, head, ...rest.map((value) => (value instanceof Node ? value : element("td", { text: value }))));
  });
  const title = element("caption", { className: "hidden-text", text: caption });
  const table = element("table", { className: "plain" }, title, element("thead", {}, headRow), element("tbody", {}, ...lines));
  return element("div", { className: "inner", attributes: { tabindex: "0", role: "region", "aria-label": caption } }, table);
}

function seeds(cell, chosen) {
  const rows = chosen.map((run) => {
    if (run.status !== "done") {
      const said = run.status === "failed" ? `failed: ${run.error}` : `${run.status} at step ${spaced(run.steps)}`;
      return { values: [run.seed, element("td", { className: "said", text: said, attributes: { colspan: "6" } })] };
    }
    const early = run.stopped_early === "True" ? ", stopped early" : "";
    const numbers = ["test_scaled", "test", "test_exact", "validation"].map((name) => rounded(numberOf(run[name]), 3));
    const seconds = Number(run.train_seconds) + Number(run.score_seconds);
    return { values: [run.seed, ...numbers, spaced(run.steps) + early, rounded(seconds, 1)] };
  });
  const heads = ["Seed", "Scaled", "Raw", "Exact strings", "Validation", "Steps", "Seconds"];
  return [heading("Seeds at the chosen rate"), plainTable("Seeds at the chosen rate", heads, rows)];
}

function rates(cell, runs) {
  const all = [...new Set(runs.map((run) => Number(run.lr)))].sort((a, b) => a - b);
  const rows = all.map((rate) => {
    const own = runs.filter((run) => Number(run.lr) === rate);
    const done = own.filter((run) => run.status === "done");
    const sums = (name) => done.map((run) => numberOf(run[name])).filter(isNumber);
    const validation = own.length ? sums("validation").reduce((sum, value) => sum + value, 0) / own.length : null;
    const isChosen = rate === cell.lr;
    return {
      className: isChosen ? "chosen" : "",
      values: [
        `${rate}${isChosen && done.length ? " (chosen)" : ""}`,
        `${done.length} of ${own.length}`,
        done.length ? rounded(validation, 3) : "–",
        rounded(mean(sums(cell.measure ?? "test")), 3),
      ],
    };
  });
  const heads = ["Learning rate", "Finished", "Mean validation", "Mean test"];
  const shown = [heading("Learning rates"), plainTable("Learning rates", heads, rows)];
  const isPartial = runs.some((run) => run.status !== "done");
  const text = "The rate with the highest mean validation is chosen; a run that did not finish counts zero in that mean.";
  return isPartial && all.length > 1 ? [...shown, element("p", { className: "note muted", text })] : shown;
}

// Charts.

function chart({ label, low, high, xs, isLog = false, xTitle, draw }) {
  const width = Math.max(280, Math.min(640, byId("panel-body").clientWidth - 44));
  const [height, left, right, top, bottom] = [230, 40, 18, 18, 40];
  const place = isLog ? Math.log2 : (value) => value;
  const [from, to] = [place(xs.from), place(Math.max(xs.to, xs.from + 1e-9))];
  const x = (value) => left + ((place(value) - from) / (to - from || 1)) * (width - left - right);
  const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
  const svg = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  for (const tick of ticks(low, high, 5)) {
    svg.append(drawn("path", { class: "axis", d: `M${left} ${y(tick)}H${width - right}` }));
    svg.append(drawn("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, Number(tick.toPrecision(3))));
  }
  const marks = isLog ? powers(xs.from, xs.to) : ticks(xs.from, xs.to, 5);
  for (const tick of marks) {
    svg.append(drawn("path", { class: "axis", d: `M${x(tick)} ${height - bottom}v4` }));
    const isLast = x(tick) > width - right - 12; // its middle would stand outside
    const at = isLast ? { x: width, "text-anchor": "end" } : { x: x(tick), "text-anchor": "middle" };
    svg.append(drawn("text", { ...at, y: height - bottom + 16 }, tick.toLocaleString("en-US")));
  }
  svg.append(drawn("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xTitle));
  draw({ svg, x, y, top, bottom: height - bottom });
  return svg;
}

function ticks(low, high, most) {
  const raw = (high - low || 1) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((value) => value >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function powers(low, high) {
  const found = [];
  for (let power = Math.ceil(Math.log2(low)); 2 ** power <= high; power++) found.push(2 ** power);
  return found;
}

function line(svg, points, className, { x, y }) {
  if (!points.length) return;
  const d = points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");
  svg.append(drawn("path", { class: className, d }));
}

function dots(svg, points, className, radius, { x, y }) {
  for (const [a, b] of points) svg.append(drawn("circle", { class: className, cx: x(a), cy: y(b), r: radius }));
}

function binsOf(cell, run, column) {
  return Object.entries(JSON.parse(run[column] || "{}"))
    .map(([name, value]) => {
      const [low, high] = name.split("..").map(Number);
      return { name, low, high: high ?? low, value: scaled(cell, value) };
    })
    .filter((bin) => isNumber(bin.value))
    .sort((a, b) => a.low - b.low);
}

const middle = (bin) => Math.sqrt(Math.max(bin.low, 1) * Math.max(bin.high, 1));

function byLength(cell, done) {
  const perSeed = done.map((run) => [...binsOf(cell, run, "test_bins"), ...binsOf(cell, run, "extrapolation")]);
  if (!perSeed.some((bins) => bins.length)) return [];
  const floor = binsOf(cell, done[0], "content_free_bins");
  const names = new Map(perSeed.flat().map((bin) => [bin.name, bin]));
  const bins = [...names.values()].sort((a, b) => a.low - b.low);
  const ofBin = (name) => perSeed.map((own) => own.find((bin) => bin.name === name)?.value).filter(isNumber);
  const middles = bins.map((bin) => [middle(bin), median(ofBin(bin.name))]);
  const trained = done.map((run) => scaled(cell, numberOf(run.in_distribution))).filter(isNumber);
  const seen = [...perSeed.flat(), ...floor].map((bin) => bin.value);
  const low = Math.min(0, Math.floor(Math.min(...seen) * 4) / 4);
  const ends = [...bins.flatMap((bin) => [bin.low, bin.high]), ...(cell.trained ?? [])].map((end) => Math.max(end, 1));
  const svg = chart({
    label: "Accuracy by length; its numbers are in the table below",
    low,
    high: 1,
    xs: { from: Math.min(...ends), to: Math.max(...ends) },
    isLog: true,
    xTitle: "length",
    draw: ({ svg, x, y, top, bottom }) => {
      if (cell.trained) {
        const [from, to] = cell.trained.map((end) => x(Math.max(end, 1)));
        svg.append(drawn("rect", { class: "trained", x: from, y: top, width: Math.max(to - from, 2), height: bottom - top }));
        svg.append(drawn("text", { x: from + 4, y: top - 6 }, "trained on"));
      }
      line(svg, floor.map((bin) => [middle(bin), bin.value]), "floor", { x, y });
      if (cell.trained && trained.length) {
        line(svg, cell.trained.map((end) => [Math.max(end, 1), median(trained)]), "mean", { x, y });
      }
      for (const own of perSeed) {
        const points = own.map((bin) => [middle(bin), bin.value]);
        line(svg, points, "seed", { x, y });
        dots(svg, points, "seed-dot", 1.8, { x, y });
      }
      line(svg, middles, "mean", { x, y });
      dots(svg, middles, "mean-dot", 3.2, { x, y });
    },
  });
  const inside = trained.length ? ` On the training lengths the median is ${rounded(median(trained), 3)}.` : "";
  const caption = `Thick: median; thin: each seed; dashed: the floor of length and position.${inside}`;
  const rows = bins.map((bin) => ({
    values: [
      bin.name,
      rounded(median(ofBin(bin.name)), 3),
      ofBin(bin.name).map((value) => rounded(value, 3)).join("  "),
      rounded(floor.find((own) => own.name === bin.name)?.value, 3),
    ],
  }));
  const numbers = element("details", {}, element("summary", { text: "Numbers" }));
  numbers.append(plainTable("Accuracy by length", ["Length", "Median", "Each seed", "Floor"], rows));
  const figure = element("figure", {}, svg, element("figcaption", { text: caption }), numbers);
  return [heading("Accuracy by length"), figure];
}

function curves(cell, chosen) {
  const kinds = { validation: "Validation accuracy by step", loss: "Training loss by step" };
  const figures = [];
  for (const [kind, title] of Object.entries(kinds)) {
    const series = chosen
      .filter((run) => data.curves[run.run_id]?.[kind])
      .map((run) => {
        const [steps, values] = data.curves[run.run_id][kind];
        return steps.map((step, i) => [step, kind === "loss" ? values[i] : scaled(cell, values[i])]);
      });
    if (!series.length) continue;
    const [all, steps] = [series.flat().map(([, value]) => value), series.flat().map(([step]) => step)];
    const low = kind === "loss" ? 0 : Math.min(0, Math.floor(Math.min(...all) * 4) / 4);
    const svg = chart({
      label: title,
      low,
      high: kind === "loss" ? Math.max(...all) || 1 : 1,
      xs: { from: Math.min(...steps), to: Math.max(...steps) },
      xTitle: "step",
      draw: ({ svg, x, y }) => {
        for (const points of series) {
          line(svg, points, "curve", { x, y });
          dots(svg, points.slice(-1), "mean-dot", 2.6, { x, y });
        }
      },
    });
    const caption = `${title}, a line a seed to its last step, of at most ${data.points} points.`;
    figures.push(element("figure", {}, svg, element("figcaption", { text: caption })));
  }
  const none = element("p", { className: "note muted", text: "No learning curve of these runs is stored beside the records." });
  return [heading("Learning curve"), ...(figures.length ? figures : [none])];
}

function list(pairs) {
  const kept = pairs.filter(([, value]) => value !== "");
  return element("dl", {}, ...kept.flatMap(([name, value]) => [element("dt", { text: name }), element("dd", {}, isolated(value))]));
}

function settings(cell, own) {
  const pairs = [
    ["Protocol", own.label],
    ["Task", own.tasks[cell.task]],
    ["Model", own.models[cell.model]],
    ["Learning rate", String(cell.lr)],
  ];
  const text = "Labels name every setting that differs from the protocol's own.";
  return [heading("Settings"), list(pairs), element("p", { className: "note muted", text })];
}

function distinct(chosen, valueOf) {
  const seedsOf = new Map();
  for (const run of chosen) {
    const value = valueOf(run);
    if (value !== "") seedsOf.set(value, [...(seedsOf.get(value) ?? []), run.seed]);
  }
  if (seedsOf.size <= 1) return [...seedsOf.keys()].join("");
  return [...seedsOf].map(([value, of]) => `${value} (seed ${of.join(", ")})`).join("; ");
}

function provenance(chosen) {
  const state = { True: ", with uncommitted changes", False: "" };
  const pairs = [
    ["Commit", (run) => run.commit && run.commit + (state[run.dirty] ?? ", whether changed is unknown")],
    ["Device", (run) => run.device],
    ["torch", (run) => run.torch],
    ["Fast paths", (run) => run.backends],
    ["Fingerprint", (run) => run.fingerprint + (run.mixed_numerics === "True" ? ", changed by a resume" : "")],
    ["Parameters", (run) => (run.parameters === "" ? "" : spaced(run.parameters))],
    ["State", (run) => (run.state_bytes === "" ? "" : `${spaced(run.state_bytes)} bytes`)],
    ["Training", (run) => (run.train_seconds === "" ? "" : `${rounded(Number(run.train_seconds), 1)} s`)],
    ["Scoring", (run) => (run.score_seconds === "" ? "" : `${rounded(Number(run.score_seconds), 1)} s`)],
  ];
  return [heading("Provenance"), list(pairs.map(([name, valueOf]) => [name, distinct(chosen, valueOf)]))];
}

function commands(cell, chosen) {
  const shown = chosen.map((run) => {
    const command = `${cell.command} --seed ${run.seed}`;
    const copy = element("button", { text: "Copy", attributes: { type: "button", "aria-label": `Copy the command of seed ${run.seed}` } });
    copy.addEventListener("click", async () => {
      const isCopied = await copied(command);
      copy.textContent = isCopied ? "Copied" : "Select it";
    });
    const name = element("span", {}, `Seed ${run.seed}: `, isolated(run.run_id));
    return element("div", { className: "command" }, name, element("pre", {}, ...unbroken(command)), copy);
  });
  const notes = cell.notes.map((text) => element("p", { className: "note warning", text }));
  return [heading("Reproduce"), ...notes, ...shown];
}

function unbroken(command) {
  return command.split(/(?= --)/).map((part) => element("span", { text: part })).flatMap((span, i) => (i ? [element("wbr"), span] : [span]));
}

async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

// Download and theme.

byId("download").addEventListener("click", () => {
  const url = URL.createObjectURL(new Blob([data.csv], { type: "text/csv" }));
  element("a", { attributes: { href: url, download: "records.csv" } }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
});

function stored(name, value) {
  try {
    return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value);
  } catch {
    return null; // a file opened from a disk may have no storage
  }
}

function dress(theme) {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
}

const themes = ["system", "light", "dark"];
let theme = themes.includes(stored("theme")) ? stored("theme") : "system";
dress(theme);
byId("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  stored("theme", theme);
  dress(theme);
});
for (const one of document.querySelectorAll(".scripted, #theme, #download")) one.hidden = false;
