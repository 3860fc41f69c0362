// The frame: a title, words, controls, and a body that is drawn again when something is chosen.

const tabOf = { task: "tasks", model: "models" };

function drawControls() {
  const focused = document.activeElement?.id;
  const made = (views[state.view].controls() ?? []).filter(Boolean);
  byId("controls").replaceChildren(...(isNarrow() && made.length > 1 ? [drawer(made.flat())] : made));
  byId("controls").hidden = !made.length;
  if (focused) byId(focused)?.focus();
}

function drawBody() {
  const focused = document.activeElement?.dataset?.key;
  const view = views[state.view];
  byId("title").textContent = view.title();
  byId("lead").replaceChildren(...[view.lead()].flat().filter(Boolean));
  byId("body").replaceChildren(...[view.body()].flat().filter(Boolean));
  document.title = `${view.title()} · Chomsky Ladder`;
  if (focused) [...document.querySelectorAll("[data-key]")].find((one) => one.dataset.key === focused)?.focus();
}

function drawAll() {
  const frame = [
    make("div", { class: "top" }, make("h1", { id: "title" }), exportsBar()),
    make("div", { id: "lead" }),
    make("form", { id: "controls", class: "controls", role: "search", "aria-label": "Choose what is shown", onsubmit: (event) => event.preventDefault() }),
    make("div", { id: "body" }),
  ];
  byId("main").className = `view-${state.view}`;
  byId("main").replaceChildren(...frame);
  for (const tab of byId("tabs").querySelectorAll("a")) {
    const isHere = tab.getAttribute("href") === `#${tabOf[state.view] ?? state.view}`;
    if (isHere) {
      tab.setAttribute("aria-current", "page");
      byId("tabs").scrollLeft = tab.offsetLeft - 32;
    }
    else tab.removeAttribute("aria-current");
  }
  drawBody();
  drawControls();
}

function arrive() {
  const before = state.view;
  const wasOpen = panel.open;
  readAddress();
  if (!asked("cell") && panel.open) panel.close();
  drawAll();
  showAskedCell();
  if (before !== state.view || wasOpen) scrollTo(0, 0);
}

addEventListener("hashchange", () => {
  const isNew = state.view !== location.hash.slice(1).split("?")[0];
  arrive();
  if (isNew && !panel.open) byId("main").focus({ preventScroll: true });
});
let resizing = 0;
let wasNarrow = isNarrow();
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(() => {
    drawBody();
    if (wasNarrow !== isNarrow()) drawControls(); // a phone's keyboard resizes, too, and must not lose its field
    wasNarrow = isNarrow();
  }, 150);
});
byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

// Theme.

const themes = ["system", "light", "dark"];
let theme = themes.includes(stored("theme")) ? stored("theme") : "system";
function dress() {
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  byId("theme").textContent = `Theme: ${theme}`;
}
byId("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  stored("theme", theme);
  dress();
});
dress();
byId("theme").hidden = false;
arrive();
