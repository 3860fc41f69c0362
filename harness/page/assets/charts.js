// Charts drawn by hand: axes, lines, markers, shaded ranges.

function ticks(low, high, most) {
  const raw = (high - low || 1) / most;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((digit) => digit * power).find((value) => value >= raw * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step);
  return found;
}

function powers(low, high, base) {
  const place = (value) => Math.log(value) / Math.log(base);
  const found = [];
  for (let power = Math.ceil(place(low) - 1e-9); base ** power <= high * (1 + 1e-9); power++) found.push(base ** power);
  const every = Math.ceil(found.length / 7);
  return found.filter((_, i) => i % every === 0);
}

const shares = [0, 0.25, 0.5, 0.75, 1];


// { label, width, height, x, y, xTitle, yTitle, paint }; x and y are { from, to, log: a base, ticks }.
function chart({ label, width, height = 230, x: xs, y: ys, xTitle = "", yTitle = "", paint }) {
  const [left, right, top, bottom] = [yTitle ? 56 : 40, 16, 18, xTitle ? 40 : 24];
  const scale = ({ from, to, log }, start, end) => {
    const place = log ? (value) => Math.log(Math.max(value, 1e-12)) : (value) => value;
    const [low, high] = [place(from), place(to)];
    return (value) => start + ((place(value) - low) / (high - low || 1)) * (end - start);
  };
  const [x, y] = [scale(xs, left, width - right), scale(ys, height - bottom, top)];
  const svg = draw("svg", { class: "chart", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label });
  const marksOf = (axis, most) => axis.ticks ?? (axis.log ? powers(axis.from, axis.to, axis.log) : ticks(axis.from, axis.to, most));
  for (const tick of marksOf(ys, 5)) {
    svg.append(draw("path", { class: "axis", d: `M${left} ${y(tick).toFixed(1)}H${width - right}` }));
    svg.append(draw("text", { x: left - 6, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
  }
  for (const tick of marksOf(xs, width < 320 ? 4 : 6)) {
    svg.append(draw("path", { class: "axis", d: `M${x(tick).toFixed(1)} ${height - bottom}v4` }));
    const isLast = x(tick) > width - right - 10; // its middle would stand outside
    svg.append(draw("text", { x: isLast ? width - 2 : x(tick), "text-anchor": isLast ? "end" : "middle", y: height - bottom + 16 }, xs.log === 2 ? String(tick) : short(tick)));
  }
  if (xTitle) svg.append(draw("text", { x: (left + width - right) / 2, y: height - 5, "text-anchor": "middle" }, xTitle));
  if (yTitle) svg.append(draw("text", { x: 0, y: 0, transform: `translate(11 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
  paint({ svg, x, y, left, right: width - right, top, bottom: height - bottom });
  return svg;
}

const pathOf = (points, { x, y }) => points.map(([a, b], i) => `${i ? "L" : "M"}${x(a).toFixed(1)} ${y(b).toFixed(1)}`).join("");

function line(parent, points, className, scales, attributes = {}) {
  if (points.length) parent.append(draw("path", { class: className, d: pathOf(points, scales), ...attributes }));
}

// A model's line with its markers; said(point) is what pointing at one tells.
function modelLine(svg, label, points, scales, { radius = 3.4, said } = {}) {
  if (!points.length) return;
  const ink = inkOf(label);
  line(ink, points, "line", scales, { "stroke-dasharray": dashes[named(label).look[2]] });
  for (const point of points) ink.append(marker(label, scales.x(point[0]), scales.y(point[1]), radius, said?.(point)));
  svg.append(ink);
}

function band(svg, label, points, { x, y }) {
  if (!points.length) return;
  const ink = inkOf(label);
  const there = points.map(([a, low]) => `${x(a).toFixed(1)} ${y(low).toFixed(1)}`);
  const back = points.map(([a, , high]) => `${x(a).toFixed(1)} ${y(high).toFixed(1)}`).reverse();
  ink.append(draw("path", { class: "range", d: `M${[...there, ...back].join("L")}Z` }));
  svg.append(ink);
}

const keyOf = (labels) => make("ul", { class: "key", "aria-label": "Key" }, labels.map((label) => make("li", {}, swatch(label), isolated(titleOf(label)))));
const within = (least) => Math.max(280, Math.min(least, byId("main").clientWidth || least));

// Names beside points, which cover neither another name nor a marker; those without a free place stay out.
const pen = make("canvas").getContext("2d");
const markAt = (x, y) => ({ left: x - 5, right: x + 5, top: y - 5, bottom: y + 5 });

function nameBeside(svg, taken, text, x, y, right) {
  pen.font = `11.5px ${getComputedStyle(document.body).fontFamily}`;
  const width = pen.measureText(text).width;
  for (const [dx, dy] of [[7, -8], [-7, -8], [7, 16], [-7, 16], [9, 4], [-9, 4]]) {
    const left = dx > 0 ? x + dx : x + dx - width;
    const box = { left: left - 3, right: left + width + 3, top: y + dy - 10, bottom: y + dy + 3 };
    if (box.right > right + 12 || box.left < 50 || taken.some((other) => box.left < other.right && box.right > other.left && box.top < other.bottom && box.bottom > other.top)) continue;
    taken.push(box);
    svg.append(draw("text", { class: "label", x: x + dx, y: y + dy, "text-anchor": dx > 0 ? "start" : "end" }, text));
    return;
  }
}
