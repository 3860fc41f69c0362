// The tasks, and a view of each: an example, its automaton where it has a small one, floors, theory, the best models.

const taskOrder = ["regular", "counter", "context_free", "context_sensitive", "none"];
const allTasks = unique([...Object.keys(data.listed.tasks), ...Object.keys(data.names.tasks).map(taskName)]).sort();
const cellsOfTask = (name) => cells.filter((cell) => taskName(cell.taskLabel) === name);
const levelOfTask = (name) => data.listed.tasks[name]?.level ?? cellsOfTask(name)[0]?.level ?? "none";
const isPlain = (own) => !own.changes;

function tasksShown() {
  const [keep, levels] = [matcher("q"), new Set(askedList("class"))];
  return allTasks.filter((name) => keep(name, data.listed.tasks[name]?.about ?? "") && (!levels.size || levels.has(levelOfTask(name))));
}

views.tasks = {
  title: () => "The tasks",
  lead: () => [make("p", { class: "lead" }, "Formal languages by class, and what reviewers ask for beside them. Every string is a function of a seed; every answer is held to an independent oracle.")],
  controls: () => [searchBox("q", "Tasks"), chips("class", "Class", taskOrder.map((level) => [level, className(level)]))],
  body() {
    const shown = tasksShown();
    if (!shown.length) return [note("No task passes the filter.")];
    return taskOrder.map((level) => {
      const own = shown.filter((name) => levelOfTask(name) === level);
      if (!own.length) return null;
      const rows = own.map((name) => {
        const task = data.listed.tasks[name];
        const found = cellsOfTask(name);
        const solved = unique(found.filter((cell) => isPlain(cell.own) && 2 * cell.solved[0] > cell.solved[1]).map((cell) => cell.modelLabel));
        return [link("task", { name }, breakable(name)), make("span", { class: "said" }, task?.about ?? ""), make("code", {}, task?.example ?? ""), found.length ? `${solved.length} of ${unique(found.map((cell) => cell.modelLabel)).length}` : "–"];
      });
      return make("section", { class: classOf(level) }, make("h2", { class: "band" }, className(level)), plainTable(`Tasks, ${className(level)}`, ["Task", "What is asked", "An example", "Solved by"], rows, { className: "words" }));
    }).filter(Boolean);
  },
  sheet: () => [["task", "class", "version", "about", "example", "chance", "best_constant", "content_free"], ...tasksShown().map((name) => {
    const task = data.listed.tasks[name] ?? {};
    return [name, levelOfTask(name), task.version, task.about, task.example, ...["s_rand", "best_constant", "content_free"].map((floor) => task.floors?.[floor] ?? "")];
  })],
};

const taskNow = () => (allTasks.includes(asked("name")) ? asked("name") : allTasks[0]);

views.task = {
  title: () => taskNow(),
  lead() {
    const task = data.listed.tasks[taskNow()];
    return [badge(levelOfTask(taskNow())), make("p", { class: "lead" }, task?.about ?? "A task of these records that the listing does not know.")];
  },
  controls: () => [selectBox("name", "Task", allTasks.map((name) => [name, name]), allTasks[0])],
  body() {
    const name = taskNow();
    const task = data.listed.tasks[name];
    return [task ? exampleOf(task) : null, task?.automaton ? automatonOf(task.automaton, name) : null, task ? floorsOf(task) : null, bestOf(name), task ? taskTheory(task) : null, task ? aboutTask(name, task) : null].flat().filter(Boolean);
  },
  sheet: () => [["task", "protocol", "label", "model", "median", "lowest", "highest", "solved", "runs", "lr"], ...rankedOf(taskNow()).map((cell) => [taskNow(), cell.own.label, cell.taskLabel, cell.modelLabel, cell.median, ...(cell.range ?? ["", ""]), ...cell.solved, cell.lr])],
  models: () => unique(rankedOf(taskNow()).map((cell) => cell.modelLabel)),
};

function exampleOf(task) {
  if (!task.example?.includes("->")) return [];
  const [input, answer] = task.example.split("->").map((part) => part.trim().split(/\s+/).filter(Boolean));
  const strip = (tokens, className, label) => make("span", { class: `tokens ${className}`, role: "img", "aria-label": `${label}: ${tokens.join(" ")}` }, tokens.map((token) => make("span", {}, token === "PAD" ? "·" : token)));
  return [heading("An example"), make("p", { class: "example" }, strip(input, "", "Input"), make("span", { class: "arrow", "aria-hidden": "true" }, "→"), strip(answer, "answer", "Answer")), note("Read from left to right; a dot is a blank slot in which an answer is written.")];
}

function floorsOf(task) {
  if (!task.floors || !Object.keys(task.floors).length) return [];
  const words = { s_rand: "chance", best_constant: "always the commonest answer", content_free: "the best guess from length and position" };
  const rows = Object.entries(words).map(([key, text]) => [text, rounded(task.floors[key], 3), bar(task.floors[key])]);
  return [heading("Floors"), note(`Raw accuracy that needs no computing, of its usual settings at lengths ${data.listed.lengths.join(" to ")}.`), plainTable("Floors", ["Floor", "Accuracy", ""], rows, { className: "narrow" })];
}

function bar(value) {
  const svg = draw("svg", { class: "bar", viewBox: "0 0 160 10", width: 160, height: 10, "aria-hidden": "true" });
  svg.append(draw("rect", { class: "track", width: 160, height: 10 }), draw("rect", { class: "share", width: Math.max(0, Math.min(1, value)) * 160, height: 10 }));
  return svg;
}

const rankedOf = (name) => cellsOfTask(name).filter((cell) => isPlain(cell.own)).sort((a, b) => (b.solved[0] / b.solved[1] || 0) - (a.solved[0] / a.solved[1] || 0) || (b.median ?? -1) - (a.median ?? -1) || a.number - b.number);

function bestOf(name) {
  const ranked = rankedOf(name);
  if (!ranked.length) return [heading("Best models"), note("No model has been run on it here.")];
  const rows = ranked.slice(0, 16).map((cell) => [make("span", { class: "who" }, swatch(cell.modelLabel), modelLink(cell.modelLabel)), isolated(cell.own.label), isolated(cell.taskLabel), cellButton(cell, [rounded(cell.median)], { class: "text", "aria-label": `Open ${titleOf(cell.modelLabel)} on ${cell.taskLabel}` }), cell.range ? rangeText(cell.range) : "", `${cell.solved[0]}/${cell.solved[1]}`]);
  return [heading("Best models"), plainTable(`Best models on ${name}`, ["Model", "Protocol", "As", "Median", "Range", "Solved"], rows, { className: "left3" }), ranked.length > 16 ? note(`${ranked.length - 16} more are in the matrix and in the CSV of this view.`) : null];
}

function taskTheory(task) {
  if (!task.demand) return [heading("Theory"), note("What it asks is not declared, so theory has nothing to say of it.")];
  const order = ["can", "cannot", "open"];
  const rows = Object.entries(data.theory.verdicts).filter(([transition]) => !transition.includes(" + ")).map(([transition, found]) => [transition, ...(found[task.demand] ?? [])]).filter((row) => row.length > 1).sort((a, b) => order.indexOf(a[1]) - order.indexOf(b[1]));
  const lines = rows.map(([transition, word, why]) => [transition, make("span", { class: `word ${word}` }, `${signs[word]} ${word}`), make("span", { class: "said" }, `${why}.`)]);
  return [heading("Theory"), note(`It asks for ${data.theory.demands[task.demand]} (${task.demand}). What a way to move a state can do of that:`), plainTable("Theory", ["How the state moves", "", "Why"], lines, { className: "words" })];
}

function aboutTask(name, task) {
  const facts = Object.entries(task.facts ?? {});
  return [heading("What it is"), make("pre", { class: "doc" }, task.doc ?? ""), definitions([...facts, ["version", task.version], ["in the tables of", (task.protocols ?? []).join(", ")]]), copyable(`ladder describe ${name}`), copyable(`ladder run ${name} lstm`)];
}

// The automaton: states on a circle, an arrow for every set of symbols that leads from one to another.

function automatonOf(automaton, name) {
  const count = automaton.after.length;
  const [radius, reach, middle] = [21, count > 2 ? 44 + count * 15 : 74, { x: 270, y: 0 }];
  middle.y = reach + radius + 46;
  const at = (i) => ({ x: middle.x + reach * Math.cos(Math.PI + (2 * Math.PI * i) / count), y: middle.y + reach * Math.sin(Math.PI + (2 * Math.PI * i) / count) });
  const ups = automaton.after.map((_, i) => at(i).y);
  const [over, tall] = [Math.min(...ups) - 74, Math.max(...ups) - Math.min(...ups) + 148];
  const said = automaton.after.map((leads, i) => `from state ${i}, answer ${automaton.answers[i]}: ${automaton.symbols.map((symbol, s) => `${symbol} to ${leads[s]}`).join(", ")}`).join("; ");
  const svg = draw("svg", { class: "automaton", viewBox: `0 ${over} 540 ${tall}`, width: 540, height: tall, role: "img", "aria-label": `Automaton of ${name}: ${said}` });
  svg.append(draw("defs", {}, draw("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" }, draw("path", { class: "tip", d: "M0 0L8 4L0 8Z" }))));
  const start = { x: 26, y: middle.y };
  const places = automaton.after.map((_, i) => at(i));
  const grouped = (leads) => leads.reduce((found, to, s) => found.set(to, [...(found.get(to) ?? []), automaton.symbols[s]]), new Map());
  for (const [to, symbols] of grouped(automaton.first)) arrow(svg, start, places[to], symbols, { radius, from: 4, bend: places[to].x - start.x > 240 ? 0.3 : 0.08 });
  automaton.after.forEach((leads, i) => {
    for (const [to, symbols] of grouped(leads)) {
      if (to === i) loop(svg, places[i], middle, symbols, radius);
      else arrow(svg, places[i], places[to], symbols, { radius, from: radius, bend: 0.22 });
    }
  });
  svg.append(draw("circle", { class: "begin", cx: start.x, cy: start.y, r: 4 }), draw("text", { x: 2, y: start.y + 22 }, "start"));
  places.forEach(({ x, y }, i) => svg.append(draw("circle", { class: "state", cx: x, cy: y, r: radius }), draw("text", { class: "answer", x, y: y + 4.5, "text-anchor": "middle" }, automaton.answers[i])));
  return [heading("Its automaton"), make("figure", { class: "drawn" }, svg, make("figcaption", {}, `${count} states; in each the answer that is right there. Arrows: the symbol that leads on.`))];
}

function arrow(svg, a, b, symbols, { radius, from, bend }) {
  const [dx, dy] = [b.x - a.x, b.y - a.y];
  const far = Math.hypot(dx, dy) || 1;
  const control = { x: (a.x + b.x) / 2 - dy * bend, y: (a.y + b.y) / 2 + dx * bend };
  const end = (point, size) => {
    const length = Math.hypot(control.x - point.x, control.y - point.y) || 1;
    return { x: point.x + ((control.x - point.x) / length) * size, y: point.y + ((control.y - point.y) / length) * size };
  };
  const [p, q] = [end(a, from), end(b, radius + 2)];
  svg.append(draw("path", { class: "edge", d: `M${p.x.toFixed(1)} ${p.y.toFixed(1)}Q${control.x.toFixed(1)} ${control.y.toFixed(1)} ${q.x.toFixed(1)} ${q.y.toFixed(1)}`, "marker-end": "url(#tip)" }));
  const label = { x: 0.25 * a.x + 0.5 * control.x + 0.25 * b.x - (dy / far) * 10, y: 0.25 * a.y + 0.5 * control.y + 0.25 * b.y + (dx / far) * 10 };
  svg.append(draw("text", { class: "symbol", x: label.x, y: label.y + 4, "text-anchor": "middle" }, symbols.join(" ")));
}

function loop(svg, { x, y }, middle, symbols, radius) {
  const angle = Math.atan2(y - middle.y, x - middle.x);
  const point = (turn, size) => `${(x + size * Math.cos(angle + turn)).toFixed(1)} ${(y + size * Math.sin(angle + turn)).toFixed(1)}`;
  svg.append(draw("path", { class: "edge", d: `M${point(-0.45, radius)}C${point(-0.6, radius + 34)} ${point(0.6, radius + 34)} ${point(0.45, radius + 2)}`, "marker-end": "url(#tip)" }));
  svg.append(draw("text", { class: "symbol", x: x + (radius + 36) * Math.cos(angle), y: y + (radius + 36) * Math.sin(angle) + 4, "text-anchor": "middle" }, symbols.join(" ")));
}
