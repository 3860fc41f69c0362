// How models look: colour, marker and dash as in every figure (harness/stats/looks.py), and the boxes of the ladder.

const dashes = { "-": null, "--": "6 3", ":": "1.5 2.5", "-.": "6 2.5 1.5 2.5" };

// Marker paths around 0 0 within a radius of 1.
function regular(corners, turn) {
  const points = Array.from({ length: corners }, (_, i) => {
    const angle = turn + (2 * Math.PI * i) / corners;
    return `${Math.sin(angle).toFixed(3)} ${(-Math.cos(angle)).toFixed(3)}`;
  });
  return `M${points.join("L")}Z`;
}
const shapes = {
  s: "M-.85-.85H.85V.85H-.85Z",
  D: "M0-1.15L1.15 0L0 1.15L-1.15 0Z",
  "^": "M0-1.1L1.05.85H-1.05Z",
  v: "M0 1.1L1.05-.85H-1.05Z",
  "<": "M-1.1 0L.85-1.05V1.05Z",
  ">": "M1.1 0L-.85-1.05V1.05Z",
  P: "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z",
  X: "M-.6-1.1L0-.5L.6-1.1L1.1-.6L.5 0L1.1.6L.6 1.1L0 .5L-.6 1.1L-1.1.6L-.5 0L-1.1-.6Z",
  p: regular(5, 0),
  h: regular(6, 0),
};

const inkOf = (label) => {
  const made = draw("g", { class: "ink" });
  made.style.setProperty("--model", named(label).look[0]);
  return made;
};

function marker(label, x, y, radius, said) {
  const shape = named(label).look[1];
  const at = `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${radius})`;
  const made = shape === "o" ? draw("circle", { r: 1, transform: at, class: "mark" }) : draw("path", { d: shapes[shape], transform: at, class: "mark" });
  if (said) made.append(draw("title", {}, said));
  return made;
}

// A swatch for chips, tables and keys.
function swatch(label) {
  const made = draw("svg", { class: "swatch", viewBox: "0 0 26 12", width: 26, height: 12, "aria-hidden": "true" });
  const ink = inkOf(label);
  ink.append(draw("path", { class: "line", d: "M1 6H25", "stroke-dasharray": dashes[named(label).look[2]] }), marker(label, 13, 6, 3.8));
  made.append(ink);
  return made;
}

const disagreements = { "can, not held": "gap", "cannot, yet held": "odd" };

// A box of the ladder: filled as far as seeds hold the rung, pale as far as they learn it and lose it; theory in the
// corner; framed where the two disagree.
// ≈ where the test's strings do not say whether most do.
function box(step, showsAccuracy = false, boxWidth = 68, boxHeight = 34) {
  const svg = draw("svg", { class: `box ${disagreements[step.meeting] ?? ""}`, viewBox: `0 0 ${boxWidth} ${boxHeight}`, width: boxWidth, height: boxHeight, "aria-hidden": "true" });
  const value = showsAccuracy ? median(step.scores) : null;
  const share = isNumber(value) ? 1 : step.n ? step.held / step.n : 0;
  svg.append(draw("rect", { class: step.n ? "ground" : "ground unrun", x: 1, y: 1, width: boxWidth - 2, height: boxHeight - 2, rx: 2 }));
  if (share) svg.append(draw("rect", { class: share > 0.5 ? "held" : "held some", "fill-opacity": isNumber(value) ? Math.min(1, Math.max(0, value)) : null, x: 1, y: 1, width: (boxWidth - 2) * share, height: boxHeight - 2, rx: 2 }));
  if (step.lost && !isNumber(value)) svg.append(draw("rect", { class: "lost", x: 1 + (boxWidth - 2) * share, y: 1, width: ((boxWidth - 2) * step.lost) / step.n, height: boxHeight - 2, rx: 2 }));
  if (step.n) svg.append(draw("rect", { class: "frame", x: 1, y: 1, width: boxWidth - 2, height: boxHeight - 2, rx: 2 }));
  svg.append(corner(step.theory, boxWidth - 1, 1, boxWidth < 68 ? 8 : 12));
  if (boxWidth < boxHeight * 2) return svg; // a square of a strip has no room for its count
  const most = isNumber(value) ? value > 0.6 : share > 0.5; // the count stands in the larger part, for one ink cannot be read on both
  const ink = !step.n ? "none" : most ? "on" : "off";
  svg.append(draw("text", { class: `count ${ink}`, x: (boxWidth * (most || isNumber(value) ? share : 1 + share)) / 2, y: boxHeight / 2 + 4.5, "text-anchor": "middle" }, isNumber(value) ? rounded(value) : step.n ? `${step.close ? "≈" : ""}${step.held}/${step.n}` : ""));
  return svg;
}

// Theory: a filled corner can, a hollow barred one cannot, a dot is open; told apart without colour.
function corner(word, right, top, size) {
  if (word === "can") return draw("path", { class: "can", d: `M${right - size} ${top}H${right}V${top + size}Z` });
  if (word === "cannot") return draw("path", { class: "cannot", d: `M${right - 10} ${top + 3}l6 6m0 -6l-6 6` });
  return draw("circle", { class: "open", cx: right - 6.5, cy: top + 6.5, r: 1.3 });
}
