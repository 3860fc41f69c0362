// Of any view: its picture as PNG, its numbers as CSV, what to cite as BibTeX, its address.

function download(name, type, content) {
  const url = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}

const fileName = (ending) => `chomsky-ladder-${state.view}.${ending}`;
const csvField = (value) => {
  const number = isNumber(value);
  const said = value === null || value === undefined ? "" : String(number ? Number(value.toPrecision(6)) : value);
  const text = !number && /^'*[=+\-@\t\r]/.test(said) ? `'${said}` : said; // a spreadsheet would compute it
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};
const csvOf = ([heads, ...rows]) => [heads, ...rows].map((row) => row.map(csvField).join(",")).join("\n") + "\n";

function exportsBar() {
  const acts = [
    ["PNG", () => pictureOf(byId("body"), views[state.view].title()), "This view as a picture"],
    ["CSV", () => download(fileName("csv"), "text/csv", csvOf(views[state.view].sheet())), "The numbers of this view"],
    ["BibTeX", () => download(fileName("bib"), "application/x-bibtex", bibtexOf(views[state.view])), "What to cite for this view"],
    ["Link", copyAddress, "Copy the address of this view as it is"],
  ];
  return make("div", { class: "exports", role: "group", "aria-label": "Take this view away" }, acts.map(([name, act, label]) => button(name, act, { class: "quiet", "aria-label": `${name}: ${label}`, title: label })));
}

async function copyAddress() {
  say((await copied(location.href)) ? "Address copied" : "The address stands in the browser's bar");
}

function say(text) {
  byId("said").textContent = text;
}

// BibTeX: this work, then the papers of the models and of the values shown.

function bibtexOf(view) {
  const own = `@misc{chomsky_ladder,\n  title = {Chomsky Ladder},\n  author = {{The Chomsky Ladder maintainers}},\n  note = {${view.title().replace(/[{}\\]/g, "")}; records.csv sha256 ${data.digest.slice(0, 16)}}\n}`;
  const models = unique((view.models?.() ?? []).map((label) => named(label).name)).sort();
  const entries = models.filter((name) => data.listed.models[name]).map((name) => modelEntry(name, data.listed.models[name]));
  const sources = (view.papers?.() ?? []).map(sourceEntry);
  return `${unique([own, ...sources, ...entries]).join("\n\n")}\n`;
}

function modelEntry(name, model) {
  const isPreprint = /^\d{4}\.\d{4,5}$/.test(model.paper);
  const where = isPreprint ? `eprint = {${model.paper}},\n  archivePrefix = {arXiv}` : `howpublished = {${model.paper}}`;
  return `@misc{${name},\n  key = {${name}},\n  note = {The paper of ${titleOf(name).replace(/[{}\\]/g, "")}},\n  year = {${model.year}},\n  ${where}\n}`;
}

function sourceEntry(paper) {
  const found = /^(.+?) (\d{4}), (.+?) \(arXiv:([\d.]+)\)/.exec(paper.source);
  if (!found) return `@misc{${paper.name},\n  key = {${paper.name}},\n  note = {${paper.source}}\n}`;
  const [, who, year, title, eprint] = found;
  const author = who.endsWith(" et al.") ? `${who.slice(0, -7)} and others` : who.replaceAll(", ", " and ");
  return `@misc{${paper.name},\n  author = {${author}},\n  title = {${title}},\n  year = {${year}},\n  eprint = {${eprint}},\n  archivePrefix = {arXiv}\n}`;
}

// The picture: what stands in the body, read off the laid out page and drawn as SVG.

const taken = ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font-size", "font-family", "font-weight", "font-style", "text-anchor"];

function drawnCopy(svg, box, origin) {
  const copy = svg.cloneNode(true);
  const [from, to] = [[svg, ...svg.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((source, i) => {
    const style = getComputedStyle(source);
    for (const name of taken) to[i].setAttribute(name, style.getPropertyValue(name));
    to[i].removeAttribute("class");
    to[i].removeAttribute("style");
  });
  const places = { x: box.left - origin.x, y: box.top - origin.y, width: box.width, height: box.height };
  return put(copy, places, []);
}

function linesOf(text) {
  const range = document.createRange();
  const found = [];
  for (const word of text.data.matchAll(/\S+\s*/g)) {
    range.setStart(text, word.index);
    range.setEnd(text, word.index + word[0].length);
    const box = range.getClientRects()[0];
    if (!box || !box.width) continue;
    const last = found[found.length - 1];
    if (last && Math.abs(last.top - box.top) < 2) last.text += word[0];
    else found.push({ text: word[0], left: box.left, top: box.top, bottom: box.bottom });
  }
  return found;
}

function paintElement(node, into, origin) {
  const style = getComputedStyle(node);
  const box = node.getBoundingClientRect();
  if (style.display === "none" || style.visibility === "hidden" || node.matches(".hidden-text, .noexport, dialog")) return;
  if (node instanceof SVGSVGElement) {
    into.append(drawnCopy(node, box, origin));
    return;
  }
  const [x, y] = [box.left - origin.x, box.top - origin.y];
  if (box.width && style.backgroundColor !== "rgba(0, 0, 0, 0)") into.append(draw("rect", { x, y, width: box.width, height: box.height, fill: style.backgroundColor }));
  const [right, bottom] = [x + box.width, y + box.height];
  for (const [side, from, to] of [["top", [x, y], [right, y]], ["bottom", [x, bottom], [right, bottom]], ["left", [x, y], [x, bottom]], ["right", [right, y], [right, bottom]]]) {
    const width = parseFloat(style.getPropertyValue(`border-${side}-width`));
    if (width && box.width) into.append(draw("path", { d: `M${from.join(" ")}L${to.join(" ")}`, stroke: style.getPropertyValue(`border-${side}-color`), "stroke-width": width }));
  }
  for (const child of node.childNodes) {
    if (child.nodeType === Node.ELEMENT_NODE) paintElement(child, into, origin);
    else if (child.nodeType === Node.TEXT_NODE && child.data.trim()) paintText(child, style, into, origin);
  }
}

function paintText(text, style, into, origin) {
  const look = { fill: style.color, "font-size": style.fontSize, "font-family": style.fontFamily, "font-weight": style.fontWeight, "font-style": style.fontStyle };
  for (const part of linesOf(text)) {
    const baseline = part.bottom - origin.y - (part.bottom - part.top) * 0.24;
    into.append(draw("text", { x: part.left - origin.x, y: baseline, ...look }, part.text.trimEnd()));
  }
}

function svgOf(body, title) {
  for (const scroll of body.querySelectorAll(".scroll")) scroll.scrollTo(0, 0);
  const around = 24;
  const box = body.getBoundingClientRect();
  const widest = Math.max(body.scrollWidth, ...[...body.querySelectorAll(".scroll > *")].map((one) => one.getBoundingClientRect().right - box.left));
  const [width, height] = [Math.ceil(widest + 2 * around), Math.ceil(box.height + 96)];
  const origin = { x: box.left - around, y: box.top - 56 };
  const ground = getComputedStyle(document.body);
  const svg = draw("svg", { xmlns: "http://www.w3.org/2000/svg", width, height, viewBox: `0 0 ${width} ${height}` });
  svg.append(draw("rect", { width, height, fill: ground.backgroundColor }));
  const words = { fill: ground.color, "font-family": ground.fontFamily, x: around };
  svg.append(draw("text", { ...words, y: 36, "font-size": 20, "font-weight": 600 }, title));
  paintElement(body, svg, origin);
  svg.append(draw("text", { ...words, y: height - 16, "font-size": 11 }, `Chomsky Ladder, ${data.count} records, sha256 ${data.digest.slice(0, 16)}`));
  return { svg, width, height };
}

async function pictureOf(body, title) {
  const { svg, width, height } = svgOf(body, title);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(svg))}`;
  await image.decode();
  const scale = Math.min(2, 16000 / width, 16000 / height, Math.sqrt(6e7 / (width * height)));
  const canvas = make("canvas", { width: Math.round(width * scale), height: Math.round(height * scale) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
  download(fileName("png"), "image/png", blob);
  say("Picture saved");
}
