"use strict";
// The data, and the columns of the runs. Text of records reaches the page by text nodes alone.

const data = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);
const views = {}; // a name -> { title, lead, controls, body, sheet, models, papers }

function unpacked(column) {
  if (Array.isArray(column)) return column;
  if ("per" in column) return unpacked(column.in).map((parts) => divided(parts, column.per));
  if ("all" in column) return Array(column.count).fill(column.all);
  if (!("times" in column)) return column.at.map((place) => column.of[place]);
  return column.at.flatMap((place, i) => Array(column.times[i]).fill(column.of[place]));
}

function divided(parts, per) {
  if (Array.isArray(parts)) return parts.map((part) => divided(part, per));
  return parts === null ? null : parts / per;
}

function rowsOf(columns) {
  const lists = Object.entries(columns).map(([name, column]) => [name, unpacked(column)]);
  const count = lists.length ? lists[0][1].length : 0;
  return Array.from({ length: count }, (_, i) => Object.fromEntries(lists.map(([name, list]) => [name, list[i]])));
}

const binNames = new Set(["test_bins", "content_free_bins", "extrapolation"]);
const { lengths: lengthNames, ...runColumns } = data.runs;
for (const ladder of data.ladders) for (const row of ladder.rows) for (const step of row.steps) step.why = ladder.whys[step.why];
const runs = rowsOf(runColumns).map((run, number) => {
  for (const name of binNames) {
    const names = lengthNames[run[`${name}_at`]];
    run[name] = run[name].map((value, i) => ({ name: names[i], value, ...ends(names[i]) }));
    delete run[`${name}_at`];
  }
  return { ...run, number, run_id: run.digest ? `${run.run_id}${run.seed}-${run.digest}` : run.run_id };
});

const curves = new Map(rowsOf(data.curves.runs).map((own) => [own.run, own]));
function pointsOf(run, kind) {
  const own = curves.get(run.number);
  return own?.[kind] ? own[kind].map((value, i) => [data.curves.steps[own[`${kind}_at`]][i], value]) : null;
}

function ends(bin) {
  const [low, high] = bin.split("..").map(Number);
  return { low, high: high ?? low };
}

const protocols = data.protocols.map((own, number) => ({ ...own, number, place: (model, task) => [own.models.indexOf(model), own.tasks.indexOf(task)] }));
const cells = rowsOf(data.cells).map((cell, number) => {
  const own = protocols[cell.protocol];
  const all = cell.rows.map((i) => runs[i]);
  const chosen = all.filter((run) => run.lr === cell.lr).sort((a, b) => a.seed - b.seed);
  const done = chosen.filter((run) => run.status === "done");
  const [modelLabel, taskLabel] = [own.models[cell.model], own.tasks[cell.task]];
  const names = `${data.names.tasks[taskLabel].name} ${data.names.models[modelLabel].name}`;
  const command = cell.command.startsWith("--") ? `ladder run ${names} ${cell.command}` : cell.command;
  return { ...cell, number, own, all, chosen, done, modelLabel, taskLabel, command, level: own.levels[cell.task] };
});

function cellAt(protocol, task, model) {
  const own = protocols.find((one) => one.label === protocol);
  if (!own) return null;
  const [row, column] = own.place(model, task);
  const number = own.cells[row]?.[column];
  return number === undefined || number === null ? null : cells[number];
}
const addressOf = (cell) => `${cell.own.label}|${cell.taskLabel}|${cell.modelLabel}`;
