// Numbers and names as the page shows them.

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
// Half to even, as the tables do; toFixed alone would round half away from 0. Only such a tie is exact in binary.
const isTie = (value, digits) => Number.isInteger(value * 2 ** (digits + 1)) && !Number.isInteger(value * 2 ** digits);
const halfEven = (value, digits) => (isTie(value, digits) ? (2 * Math.round((value * 10 ** digits) / 2)) / 10 ** digits : value);
const rounded = (value, digits = 2) => (isNumber(value) ? halfEven(value, digits).toFixed(digits).replace(/^-(0\.?0*)$/, "$1") : "–");
const mean = (values) => (values.length ? values.reduce((sum, value) => sum + value, 0) / values.length : null);
const unique = (values) => [...new Set(values)];
const spaced = (value) => (isNumber(value) ? value.toLocaleString("en-US", { maximumFractionDigits: 0 }) : "–");

function median(values) {
  const sorted = [...values].filter(isNumber).sort((a, b) => a - b);
  const half = sorted.length >> 1;
  if (!sorted.length) return null;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
}

function rangeText([low, high], digits = 2) {
  const [least, most] = [rounded(low, digits), rounded(high, digits)];
  return least === most ? "" : `[${least}, ${most}]`;
}

function short(value) {
  if (!isNumber(value)) return "–";
  for (const [size, unit] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
  }
  return String(Number(value.toPrecision(3)));
}

const scaled = (cell, value) => (isNumber(value) ? (cell.raw ? value : (value - cell.chance) / (1 - cell.chance)) : null);

const nothing = { title: "", name: "", family: "other", look: ["#4D4D4D", "o", "-"] };
const named = (label) => data.names.models[label] ?? { ...nothing, title: label, name: label };
const titleOf = (label) => named(label).title || label;
const taskName = (label) => data.names.tasks[label]?.name ?? label;
const classes = { ...data.classes, none: "outside" };
const classOf = (level) => (level in classes ? level : "none");
const className = (level) => classes[level] ?? level;
const familyOrder = Object.keys(data.families);
const byFamily = (a, b) => familyOrder.indexOf(named(a).family) - familyOrder.indexOf(named(b).family) || titleOf(a).localeCompare(titleOf(b), "en");
// Runs of equal classes.
function bandsOf(levels) {
  const found = [];
  for (const level of levels) {
    const last = found[found.length - 1];
    if (last?.level === level) last.count += 1;
    else found.push({ level, count: 1 });
  }
  return found;
}
const signs = { can: "✓", cannot: "✗", open: "·" };

const parametersOf = (cell) => cell.chosen.find((run) => isNumber(run.parameters))?.parameters ?? null;
const stateOf = (cell) => cell.chosen.find((run) => isNumber(run.state_bytes))?.state_bytes ?? null;
const speedOf = (run) => (run.train_seconds > 0 && isNumber(run.tokens_per_step) ? (run.tokens_per_step * run.steps) / run.train_seconds : null);

// Of a cell, each length that was tested with the accuracy of every seed, shortest first.
function lengthsOf(cell) {
  const found = new Map();
  for (const run of cell.done) {
    for (const bin of [...run.test_bins, ...run.extrapolation]) {
      if (!found.has(bin.name)) found.set(bin.name, { name: bin.name, low: bin.low, high: bin.high, seeds: [] });
      const value = scaled(cell, bin.value);
      if (isNumber(value)) found.get(bin.name).seeds.push(value);
    }
  }
  const floors = new Map((cell.done[0]?.content_free_bins ?? []).map((bin) => [bin.name, scaled(cell, bin.value)]));
  return [...found.values()]
    .filter((bin) => bin.seeds.length)
    .sort((a, b) => a.low - b.low)
    .map((bin) => ({ ...bin, middle: Math.sqrt(Math.max(bin.low, 1) * Math.max(bin.high, 1)), median: median(bin.seeds), floor: floors.get(bin.name) ?? null }));
}
