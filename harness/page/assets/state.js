// Where the reader is: the hash holds the view and everything chosen in it, so that every address is a permalink.
//     #matrix?protocol=xlstm_cpu&models=lstm&cell=xlstm_cpu|parity|lstm

const state = { view: "ladder", params: new URLSearchParams() };

function readAddress() {
  const [view, ...query] = location.hash.slice(1).split("?");
  const first = data.ladders.length ? "ladder" : "matrix"; // a ladder without a climb is an empty sheet
  state.view = Object.hasOwn(views, view) ? view : first;
  state.params = new URLSearchParams(query.join("?"));
}

function address(view = state.view, params = state.params) {
  const query = new URLSearchParams(params).toString().replaceAll("%7C", "|").replaceAll("%7E", "~");
  return `#${view}${query ? `?${query}` : ""}`;
}

const asked = (name, usual = "") => state.params.get(name) ?? usual;
const askedList = (name) => asked(name).split("~").filter(Boolean);

// Note what was chosen; what is as usual leaves the address.
function choose(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") state.params.delete(name);
    else state.params.set(name, value);
  }
  history.replaceState(null, "", address());
}

function stored(name, value) {
  try {
    return value === undefined ? localStorage.getItem(name) : localStorage.setItem(name, value);
  } catch {
    return null; // a file opened from a disk may have no storage
  }
}
