// Othello and chess: does a model that has seen nothing but moves hold the board? The table, layers, games, edits.

const studyNow = () => data.worlds.find((one) => one.name === asked("study")) ?? data.worlds[0];
const isChess = () => studyNow().game === "chess";
const pieces = { k: "\u265a", q: "\u265b", r: "\u265c", b: "\u265d", n: "\u265e", p: "\u265f" };
const gameNow = () => studyNow().games.find((one) => one.run_id === asked("game")) ?? studyNow().games[0];
const editsNow = () => studyNow().edits.filter((one) => one.run_id === gameNow()?.run_id && one.kind === asked("edit", "flip"));
const layerKinds = [
  ["accuracy_by_layer", "linear probe: squares right, by layer", "cell", (row) => row.probe === "linear" && row.view === "mine_theirs", (row) => sources[row.source] ?? row.source],
  ["error_by_layer", "an edit (flip): errors a board, by the layer from which it is made", "mean", (row) => row.edit === "flip", (row) => kinds[row.kind] ?? row.kind],
];
const sources = { model: "of the model", random_network: "of a random network", history: "of the raw history", shuffled: "of shuffled boards" };
const kinds = { null: "not edited", "perfect null": "a perfect player's null", "own boards": "of its own boards", edited: "edited", random: "random direction", "wrong square": "another square's direction" };

views.worlds = {
  title: () => "World models: the board in the head",
  lead: () => [make("p", { class: "lead" }, "Models that have seen nothing but moves. A probe reads the board out of their stream; an edit writes a different one into it, and the moves that follow are held to the rules.")],
  controls() {
    if (!data.worlds.length) return [];
    const study = studyNow();
    const plies = gameNow() ? gameNow().plies.map((one) => one.ply) : [];
    return [
      data.worlds.length > 1 ? selectBox("study", "Study", data.worlds.map((one) => [one.name, one.name]), data.worlds[0].name) : null,
      study.games.length ? selectBox("game", "Boards of", study.games.map((one) => [one.run_id, one.model]), study.games[0].run_id) : null,
      plies.length > 1 ? slider("ply", "Ply", plies, plies[Math.floor(plies.length / 2)], String) : null,
      study.edits.length ? selectBox("edit", "Edit", [["flip", `give a ${isChess() ? "piece" : "stone"} to the other side`], ["erase", `take a ${isChess() ? "piece" : "stone"} away`]], "flip") : null,
    ];
  },
  body() {
    if (!data.worlds.length) return [note("No study of Othello or chess lies beside these records.")];
    const [found, ...verdicts] = studyNow().verdicts;
    return [found ? heading(found) : null, make("ul", { class: "verdicts" }, verdicts.map((line) => make("li", {}, line.trim()))), gameBoards(), editBoards(), layerCharts(), worldsTable()].flat().filter(Boolean);
  },
  sheet: () => (data.worlds.length ? [["", ...studyNow().table[0].slice(1)], ...studyNow().table.slice(1)] : [["study"]]),
  models: () => (data.worlds.length ? studyNow().table[0].slice(2) : []),
};

function worldsTable() {
  const { table } = studyNow();
  if (!table.length) return [];
  const [heads, ...rows] = table;
  return [heading("All numbers"), plainTable("The study in numbers", ["", ...heads.slice(1)], rows)];
}

function gameBoards() {
  const game = gameNow();
  if (!game) return [];
  const wanted = Number(asked("ply")) || game.plies[Math.floor(game.plies.length / 2)].ply;
  const ply = game.plies.find((one) => one.ply === wanted) ?? game.plies[0];
  const wrong = [...ply.true].filter((stone, i) => stone !== ply.probed[i]).length;
  const likeliest = ply.next.indexOf(Math.max(...ply.next));
  const boards = [
    board(ply.true, "The true board", {}),
    board(ply.probed, `As the ${game.probe} probe reads it, layer ${game.layer}: ${wrong} wrong`, { wrong: ply.true, sure: ply.sure }),
    board(ply.true, `The next move as the model expects it: ${ply.legal[likeliest] === "1" ? "legal" : "not legal"} at the likeliest`, { next: ply.next, legal: ply.legal }),
  ];
  return [heading("A game, ply by ply"), note(isolated(game.model), `, after ply ${ply.ply}: ${ply.player} has moved ${isChess() ? "" : "to "}${ply.move}, ${ply.mover} is to move. Fainter ${isChess() ? "pieces" : "stones"}: the probe is less sure; a red frame: it is wrong; a square's shade: how likely the model holds a move to it; a ring: a legal move leads there.`), make("div", { class: "boards" }, boards)];
}

function editBoards() {
  return editsNow().map((edit) => {
    const cases = edit.cases.map((one) => make("div", { class: "boards" },
      board(one.before, `Ply ${one.ply}, ${one.mover} to move: before`, { next: one.next_before, legal: one.legal_before, at: one.edited }),
      board(one.after, `${one.edited} from ${one.from} to ${one.to}: after`, { next: one.next_after, legal: one.legal_after, at: one.edited })));
    return [heading(`Boards before and after an edit (${edit.kind})`), note("One square is written anew into the model's stream; its expectations should follow the rules of the new board."), ...cases];
  }).flat();
}

function board(stones, title, { wrong, sure, next, legal, at }) {
  const side = Math.round(Math.sqrt(stones.length));
  const step = 32;
  const said = Array.from({ length: side }, (_, row) => stones.slice(row * side, (row + 1) * side)).join(" / ");
  const letters = isChess() ? "FEN's letters, capitals white" : "b black, w white";
  const above = (row) => step * (isChess() ? side - 1 - row : row); // white sits at the bottom
  const svg = draw("svg", { class: "board", viewBox: `0 0 ${side * step + 18} ${side * step + 18}`, width: side * step + 18, height: side * step + 18, role: "img", "aria-label": `${title}. Rows from the first, ${letters}: ${said}` });
  [...stones].forEach((stone, i) => {
    const [column, row] = [i % side, Math.floor(i / side)];
    const [x, y] = [18 + column * step, above(row)];
    const square = `${"abcdefghij"[column]}${row + 1}`;
    svg.append(draw("rect", { class: "square", x, y, width: step, height: step }));
    if (next && next[i] > 0) svg.append(draw("rect", { class: "next", x, y, width: step, height: step, "fill-opacity": Math.min(1, next[i] / 60) }, draw("title", {}, `${square}: ${next[i]} %`)));
    const opacity = sure ? Math.max(0.25, sure[i] / 100) : 1;
    if (isChess() && stone !== ".") svg.append(draw("text", { class: `piece ${stone === stone.toLowerCase() ? "black" : "white"}`, x: x + step / 2, y: y + step / 2 + 9, "text-anchor": "middle", opacity }, `${pieces[stone.toLowerCase()]}\ufe0e`));
    else if (stone === "b" || stone === "w") svg.append(draw("circle", { class: stone === "b" ? "black" : "white", cx: x + step / 2, cy: y + step / 2, r: 11, "fill-opacity": opacity }));
    if (legal?.[i] === "1") svg.append(draw("circle", { class: "legal", cx: x + step / 2, cy: y + step / 2, r: 6 }));
    if (wrong && wrong[i] !== stone) svg.append(draw("rect", { class: "wrong", x: x + 2, y: y + 2, width: step - 4, height: step - 4 }));
    if (at === square) svg.append(draw("rect", { class: "edited", x: x + 2, y: y + 2, width: step - 4, height: step - 4 }));
  });
  for (let i = 0; i < side; i++) {
    svg.append(draw("text", { x: 4, y: above(i) + step / 2 + 4 }, String(i + 1)));
    svg.append(draw("text", { x: 18 + i * step + step / 2, y: side * step + 14, "text-anchor": "middle" }, "abcdefghij"[i]));
  }
  return make("figure", {}, make("figcaption", {}, title), svg);
}

function layerCharts() {
  const figures = layerKinds.flatMap(([kind, title, value, keep, nameOf]) => {
    const rows = rowsOf(studyNow().layers[kind]).filter((row) => keep(row) && isNumber(row[value]));
    return unique(rows.map((row) => row.model)).map((model) => {
      const own = rows.filter((row) => row.model === model);
      const layers = unique(own.map((row) => row.layer).filter(isNumber)).sort((a, b) => a - b);
      if (!layers.length) return null;
      const names = unique(own.map(nameOf));
      const highest = Math.max(...own.map((row) => row[value]));
      const svg = chart({
        label: `${title}, ${model}`,
        width: within(380),
        height: 220,
        x: { from: layers[0], to: Math.max(layers[layers.length - 1], layers[0] + 1), ticks: layers },
        y: value === "cell" ? { from: 0, to: 1, ticks: shares } : { from: 0, to: highest * 1.1 },
        xTitle: "layer",
        paint: (scales) => names.forEach((name, i) => {
          const all = own.filter((row) => nameOf(row) === name);
          const isLevel = !all.some((row) => isNumber(row.layer)) || (all.length === 1 && layers.length > 1);
          const points = isLevel ? layers.map((layer) => [layer, all[0][value]]) : all.filter((row) => isNumber(row.layer)).sort((a, b) => a.layer - b.layer).map((row) => [row.layer, row[value]]);
          const group = draw("g", { class: `series s${i % 6}` });
          line(group, points, isLevel ? "level" : "line", scales);
          for (const [a, b] of isLevel ? [] : points) group.append(draw("circle", { class: "mark", cx: scales.x(a), cy: scales.y(b), r: 2.6 }, draw("title", {}, `${name}, layer ${a}: ${rounded(b, 3)}`)));
          scales.svg.append(group);
        }),
      });
      const key = make("ul", { class: "key" }, names.map((name, i) => make("li", {}, draw("svg", { class: `swatch series s${i % 6}`, width: 20, height: 10, viewBox: "0 0 20 10", "aria-hidden": "true" }, draw("path", { class: "line", d: "M0 5H20" })), name)));
      return make("figure", {}, make("figcaption", {}, `${model}: ${title}`), svg, key);
    });
  }).filter(Boolean);
  return figures.length ? [heading("Layer by layer"), make("div", { class: "panels" }, figures)] : [];
}
