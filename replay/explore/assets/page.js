"use strict";
// The page of vtwin explore. It asks for states and shows what comes back; it computes nothing itself.
// All text that comes from elsewhere is put in as text, never as markup.

const MOST_PINS = 6;
const MAIN_ROWS = new Set(["requests", "failed", "requests/s", "output tokens/s", "TTFT p50", "  p50 within, TTFT", "TTFT p99", "  p99 within, TTFT", "TPOT p99", "  p99 within, TPOT", "E2E p99", "  p99 within, E2E", "  pace band, TTFT", "  of 1M output tokens", "cost", "KV at most", "prefix hits", "within SLO", "queue waits for", "verdict"]);
const SLIDER = 200; // steps of a slider
const HOLDS_MS = 200; // while an answer is on its way, further turns wait for it, at most so long
const OF_BUILT = "twin."; // what the names begin with that a state has of a twin that the form made
const OF_LOAD = ["Load", "Shares of the load", "Limits of a request"]; // groups of knobs that another twin keeps
const byId = (id) => document.getElementById(id);

let socket = null;
let knobs = []; // of the form, as the server has them
let state = {}; // what was turned, by name
let turn = 0; // number of the newest question
let askedAt = null; // when it was sent, null once it is answered
let turnedAt = null; // when the first setting was turned that no answer has shown yet
let waiting = null; // the timer of a turn that waits for an answer
let now = null; // the newest answer, with its state
let before = null; // the one before
let pins = []; // answers that stay
let isSettled = true; // whether the last gesture has ended
let toPin = []; // states of a link that are still to be asked for
let formOf = null; // the keys of a built twin that the form is for, as text; null before the first form
const figures = new Map();

function element(kind, options = {}, ...children) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(options)) {
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

// -- the form -------------------------------------------------------------------------------------------------

function centre(knob) {
  const own = Number(knob.begins || knob.if_empty);
  if (own > 0) return own;
  return { slo_ttft: 500, slo_tpot: 50, slo_e2e: 10000, num_gpu_blocks: 10000, max_num_seqs: 256, kv_offloading_size: 64 }[knob.name] || Math.max(1, knob.least);
}

function rangeOf(knob) {
  if (!knob.on_log) return [knob.least, Math.min(knob.most, Math.max(4 * centre(knob), 10))];
  const middle = centre(knob);
  return [Math.max(knob.least, middle / 16), Math.min(knob.most, middle * 16)];
}

function valueAt(knob, share) {
  const [low, high] = rangeOf(knob);
  const value = knob.on_log ? low * (high / low) ** share : low + (high - low) * share;
  const rounded = Number(value.toPrecision(3));
  return knob.kind === "integer" ? Math.min(knob.most, Math.max(knob.least, Math.round(rounded))) : rounded;
}

function shareOf(knob, value) {
  const [low, high] = rangeOf(knob);
  const share = knob.on_log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.min(1, Math.max(0, share));
}

function fieldOf(knob) {
  const id = `knob-${knob.name}`;
  const about = element("p", { class: "quiet", id: `${id}-about`, text: knob.meaning });
  const fault = element("p", { class: "fault", id: `${id}-fault`, hidden: "" });
  const label = element("label", { for: id, text: knob.label });
  const row = element("div", { class: "row" });
  const field = element("div", { class: "knob" }, label, row);
  let input;
  if (knob.kind === "choice") {
    input = element("select", { id });
    const none = knob.choices.includes(knob.begins) ? [] : [knob.begins];
    for (const choice of [...none, ...knob.choices]) input.append(element("option", { value: choice, text: choice || "as in the file" }));
  } else if (knob.kind === "switch") {
    input = element("input", { id, type: "checkbox" });
  } else {
    input = element("input", { id, type: "number", min: knob.least, max: knob.most, step: "any", inputmode: "decimal", placeholder: knob.name.startsWith("slo_") ? "" : knob.begins || knob.if_empty });
  }
  input.setAttribute("aria-describedby", `${id}-about ${id}-fault`);
  row.append(input);
  if (knob.unit) row.append(element("span", { text: knob.unit }));
  let slider = null;
  if (input.type === "number") {
    slider = element("input", { type: "range", min: 0, max: SLIDER, step: 1, "aria-label": `${knob.label}, slider` });
    field.append(slider);
    slider.addEventListener("input", () => {
      input.value = valueAt(knob, slider.value / SLIDER);
      slider.setAttribute("aria-valuetext", `${input.value} ${knob.unit}`);
      put(knob, input.value);
    });
  }
  input.addEventListener("input", () => {
    const value = knob.kind === "switch" ? String(input.checked) : input.value;
    if (slider && Number(value) > 0) slider.value = SLIDER * shareOf(knob, Number(value));
    put(knob, value);
  });
  field.append(fault);
  if (knob.meaning) field.append(about);
  return { field, input, slider, fault };
}

function makeForm() {
  const form = byId("knobs");
  form.querySelectorAll("fieldset").forEach((set) => set.remove());
  for (const group of [...new Set(knobs.map((knob) => knob.group))]) {
    const set = element("fieldset", {}, element("legend", { text: group }));
    for (const knob of knobs.filter((each) => each.group === group)) {
      Object.assign(knob, fieldOf(knob));
      set.append(knob.field);
    }
    form.append(set);
  }
}

byId("knobs").addEventListener("submit", (event) => event.preventDefault());
byId("knobs").addEventListener("change", () => { isSettled = true; });

function showState() {
  for (const knob of knobs) {
    const value = state[knob.name] ?? knob.begins;
    if (knob.kind === "switch") knob.input.checked = value === "true";
    else if (!knob.slider || Number.isFinite(Number(value))) knob.input.value = value;
    if (knob.slider) {
      knob.slider.value = SLIDER * shareOf(knob, Number(value) || (knob.on_log ? centre(knob) : knob.least));
      knob.slider.setAttribute("aria-valuetext", `${value} ${knob.unit}`);
    }
    mark(knob);
  }
}

function mark(knob) {
  knob.field.classList.toggle("turned", knob.name in state);
}

function put(knob, value) {
  if (value === knob.begins || (value === "" && !knob.name.startsWith("slo_"))) delete state[knob.name];
  else state[knob.name] = value;
  mark(knob);
  writeLink();
  turnedAt ??= performance.now();
  ask();
}

// -- links ----------------------------------------------------------------------------------------------------

function linkOf() {
  const said = new URLSearchParams(state);
  for (const pin of pins) said.append("pin", new URLSearchParams(pin.state).toString());
  return said.toString();
}

// Back returns to the state before a gesture: what one slider, field or button changed is one entry of the history.
function writeLink(isWhole = false) {
  if (isSettled || isWhole) history.pushState(null, "", `#${linkOf()}`);
  else history.replaceState(null, "", `#${linkOf()}`);
  isSettled = isWhole;
}

function readLink() {
  const said = new URLSearchParams(location.hash.slice(1));
  toPin = said.getAll("pin").slice(0, MOST_PINS).map((text) => Object.fromEntries(new URLSearchParams(text)));
  said.delete("pin");
  state = Object.fromEntries(said);
}

// The keys of a built twin that a state has.
function builtOf(of) {
  return Object.fromEntries(Object.entries(of).filter(([name]) => name.startsWith(OF_BUILT)));
}

// Shows and asks for the state; where it is of another twin, its form comes first.
function begin() {
  if (formOf === JSON.stringify(builtOf(state))) showState();
  ask();
}

// -- asking ---------------------------------------------------------------------------------------------------

function send(what, asked) {
  turn += 1;
  askedAt = performance.now();
  socket.send(JSON.stringify({ what, turn, state: asked }));
}

// A turn waits for the answer that is on its way, so that every answer is shown; not for long, and then takes its place.
function ask() {
  if (!socket || socket.readyState !== WebSocket.OPEN) return;
  clearTimeout(waiting);
  waiting = null;
  const left = askedAt === null ? 0 : HOLDS_MS - (performance.now() - askedAt);
  if (left > 0) {
    waiting = setTimeout(ask, left);
    return;
  }
  if (formOf === JSON.stringify(builtOf(state))) send("turn", toPin.length ? toPin[0] : state);
  else send("form", builtOf(state)); // which asks for the turn
  byId("answer").classList.add("stale");
}

// Whether a turn has no answer, since another question took its place.
function isStale() {
  return byId("answer").classList.contains("stale");
}

function connect() {
  socket = new WebSocket(`ws://${location.host}${location.pathname}socket`);
  socket.addEventListener("open", () => { readLink(); begin(); });
  socket.addEventListener("message", (event) => take(JSON.parse(event.data)));
  socket.addEventListener("close", () => {
    byId("fault").textContent = "vtwin explore has ended, or another page took its place. Start it again and open its new link.";
    byId("fault").hidden = false;
  });
}

function take(message) {
  const follows = ["curve", "sharper", "doubt", "complete"].includes(message.kind);
  if (follows ? !now || message.turn !== now.turn : message.turn !== turn) return;
  const ways = { form: takeForm, answer: takeAnswer, curve: takeCurve, sharper: takeSharper, error: takeFault, document: takeDocument, doubt: takeDoubt, compiling: takeCompiling, built: takeBuilt };
  if (ways[message.kind]) ways[message.kind](message);
  if (message.kind === "complete") byId("progress").textContent = now && now.sharper ? "Looked at further: nothing is under way." : "";
}

function takeForm(message) {
  knobs = message.knobs;
  byId("twin").textContent = message.twin;
  makeForm();
  if (formOf === null) makeBuild(message.keys || []);
  formOf = JSON.stringify(builtOf(state));
  showState();
  askedAt = null;
  ask();
}

// -- showing --------------------------------------------------------------------------------------------------

function takeAnswer(message) {
  askedAt = null;
  const answer = { ...message, state: toPin.length ? toPin[0] : { ...state } };
  if (toPin.length) {
    toPin.shift();
    pins.push(answer);
    ask();
    return;
  }
  if (waiting !== null && JSON.stringify(answer.state) === JSON.stringify(now && now.state)) return;
  if (now && JSON.stringify(now.state) !== JSON.stringify(answer.state)) before = now;
  now = answer;
  showAnswer();
  if (turnedAt !== null) {
    const start = turnedAt;
    turnedAt = null;
    requestAnimationFrame(() => setTimeout(() => performance.measure("turn", { start, end: performance.now() })));
  }
  if (waiting !== null) ask();
}

function showAnswer() {
  clearFaults();
  byId("answer").classList.remove("stale");
  if (byId("title").textContent !== now.title) byId("title").textContent = now.title;
  byId("progress").textContent = "";
  byId("trust").replaceChildren(...now.trust.map((text) => element("li", { text: `${text}.` })));
  byId("warnings").replaceChildren(...now.warnings.map((text) => element("li", { text: `${text}.` })));
  byId("notes").hidden = !now.warnings.length;
  byId("prices").textContent = now.prices;
  byId("command").textContent = now.command;
  showBuilt();
  byId("yaml").textContent = now.yaml;
  byId("document-fold").open = false;
  showVariants();
  drawAll("over_time");
  drawAll("latencies");
  drawAll("curve");
}

// A twin of the form is in no file: its command needs one.
function showBuilt() {
  const isShown = byId("to-save").hidden === (now.built === null) && (!before || before.built === now.built);
  byId("to-save").hidden = now.built === null;
  if (now.built !== null && !isShown) byId("to-save").replaceChildren(`${now.twin} is in no file yet. `, saveLink(now.built), " where you give the command.");
}

function saveLink(text) {
  return element("a", { href: URL.createObjectURL(new Blob([text], { type: "text/yaml" })), download: "built.yaml", text: "Save it as built.yaml" });
}

function columns() {
  const found = [["now", now]];
  if (now.sharper) found.push([`now, ${now.sharper.num_requests.toLocaleString("en")} requests`, { ...now, column: now.sharper.column, values: { ...now.values, num_requests: String(now.sharper.num_requests) } }]);
  if (before) found.push(["before", before]);
  pins.forEach((pin, at) => found.push([`pinned ${at + 1}`, pin]));
  return found;
}

function showVariants() {
  const table = byId("variants");
  const shown = columns();
  const head = element("tr", {}, element("td"));
  shown.forEach(([name, answer]) => {
    const cell = element("th", { scope: "col", text: name });
    const at = name.startsWith("pinned") ? pins.indexOf(answer) : -1;
    if (at >= 0) {
      const drop = element("button", { type: "button", "aria-label": `Take off pinned ${at + 1}`, text: "×" });
      drop.addEventListener("click", () => { pins.splice(at, 1); writeLink(true); showAnswer(); });
      cell.append(" ", drop);
    }
    head.append(cell);
  });
  const row = (name, text) => {
    const cells = shown.map(([, answer], at) => element("td", { class: at ? "" : "now", text: text(answer) || "-" }));
    return element("tr", {}, element("th", { scope: "row", text: name }), ...cells);
  };
  const said = new Set(shown.flatMap(([, answer]) => Object.keys(answer.state)).filter((name) => !name.startsWith(OF_BUILT)));
  const turned = [...new Set([...knobs.map((knob) => knob.name), ...said])].filter((name) => said.has(name));
  const rows = [...new Set(shown.map(([, answer]) => Object.keys(answer.column)).sort((a, b) => b.length - a.length).flat())];
  const few = rows.filter((name) => byId("all-rows").checked || MAIN_ROWS.has(name));
  const body = shown.some(([, answer]) => answer.built !== null) ? [row("twin", (answer) => answer.twin)] : [];
  body.push(...turned.map((name) => row(name, (answer) => answer.values[name])));
  body.push(...few.map((name) => row(name, (answer) => answer.column[name])));
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
  byId("pin").disabled = pins.length >= MOST_PINS;
  byId("pinned").textContent = pins.length ? `${pins.length} of ${MOST_PINS} pinned` : `up to ${MOST_PINS}`;
}

function drawAll(of) {
  const place = document.querySelector(`[data-of="${of}"]`);
  const shown = now[of];
  if (of === "curve") byId("curves").hidden = !now.has_rate;
  if (!shown) return;
  if (!figures.has(of)) figures.set(of, new Map());
  const own = figures.get(of);
  const others = [["before", before], ...pins.map((pin, at) => [`pinned ${at + 1}`, pin])].filter(([, each]) => each && each[of]);
  for (const { name } of shown) if (!own.has(name)) own.set(name, new ChartFigure(place));
  for (const picture of shown) {
    const grey = others.map(([name, each]) => [name, each[of].find((one) => one.name === picture.name)]).filter(([, one]) => one);
    own.get(picture.name).show(picture, grey);
  }
  for (const [name, figure] of own) figure.figure.hidden = !shown.some((picture) => picture.name === name);
}

function takeCurve(message) {
  if (!now) return;
  const rough = message.is_rough ? " The interval follows." : "";
  if (message.fault) {
    byId("capacity").textContent = `No curve: ${message.fault}.`;
    now.curve = [];
    drawAll("curve");
    return;
  }
  now.curve = message.figures;
  byId("capacity").textContent = message.capacity ? `Within the limits: ${message.capacity}.${rough}` : "Without a limit there is no capacity to draw in.";
  drawAll("curve");
  if (message.is_rough) byId("progress").textContent = "Looking further: more requests, then the interval …";
}

function takeCompiling(message) {
  byId("progress").textContent = message.text;
}

function takeDoubt(message) {
  byId("warnings").append(element("li", { text: `${message.text}.` }));
  byId("notes").hidden = false;
}

function takeDocument(message) {
  askedAt = null;
  byId("document").textContent = message.text;
  if (waiting !== null || isStale()) ask();
}

function takeSharper(message) {
  if (!now) return;
  now.sharper = message;
  showVariants();
}

// -- faults ---------------------------------------------------------------------------------------------------

function clearFaults() {
  byId("of-before").hidden = true;
  byId("fault").hidden = true;
  for (const knob of knobs) {
    knob.fault.hidden = true;
    knob.input.removeAttribute("aria-invalid");
  }
}

function takeFault(message) {
  askedAt = null;
  if (message.of === "build") {
    showBuildFault(message);
    if (isStale()) ask();
    return;
  }
  clearFaults();
  const knob = knobs.find((each) => each.name === message.knob);
  byId("answer").classList.remove("stale");
  if (knob) {
    knob.fault.textContent = message.text;
    knob.fault.hidden = false;
    knob.input.setAttribute("aria-invalid", "true");
  }
  const [first, ...rest] = message.text;
  byId("title").textContent = `${first.toUpperCase()}${rest.join("")}.`;
  byId("progress").textContent = "";
  byId("trust").replaceChildren();
  byId("of-before").hidden = !now;
  turnedAt = null;
  if (toPin.length) toPin.shift();
  if (waiting !== null || toPin.length) ask();
}

// -- a twin to build ------------------------------------------------------------------------------------------

let fields = new Map(); // by key: its input, and where its fault is said
let given = []; // keys and values of the twin that was asked for last

function makeBuild(keys) {
  const form = byId("build");
  const find = element("input", { type: "text", id: "build-find" });
  const main = element("div", { class: "grid2" });
  const others = element("div", { class: "grid2" });
  for (const key of keys) {
    const made = keyField(key);
    fields.set(key.path, made);
    (key.is_main ? main : others).append(made.field);
  }
  const more = element("details", {}, element("summary", { text: `${keys.filter((key) => !key.is_main).length} further keys` }),
    element("div", { class: "knob" }, element("label", { for: "build-find", text: "Show keys with" }), find), others);
  find.addEventListener("input", () => {
    for (const key of keys) if (!key.is_main) fields.get(key.path).field.hidden = !`${key.path} ${key.meaning}`.toLowerCase().includes(find.value.toLowerCase());
  });
  const make = element("button", { type: "submit", text: "Make the twin" });
  form.append(main, more, element("p", { class: "fault", id: "build-fault", role: "alert", hidden: "" }), element("div", { class: "buttons" }, make),
    element("div", { id: "built", role: "status", hidden: "" }));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    given = [...fields].map(([path, made]) => [path, made.input.value]).filter(([, value]) => value.trim());
    send("build", Object.fromEntries(given));
  });
}

function keyField(key) {
  const id = `key-${key.path}`;
  let input;
  if (key.kind === "choice" || key.kind === "boolean") {
    input = element("select", { id }, element("option", { value: "", text: "" }));
    for (const choice of key.kind === "boolean" ? ["true", "false"] : key.choices) input.append(element("option", { value: choice, text: choice }));
  } else {
    input = element("input", { id, type: "text", placeholder: key.default === "required" ? "" : key.default });
  }
  const about = element("p", { class: "quiet", id: `${id}-about`, text: `${key.meaning} ${key.kind === "choice" ? "" : `Expected: ${key.expected}.`}` });
  const fault = element("p", { class: "fault", id: `${id}-fault`, hidden: "" });
  input.setAttribute("aria-describedby", `${id}-about ${id}-fault`);
  const field = element("div", { class: "knob" }, element("label", { for: id, text: key.path }), input, fault, about);
  if (key.known.length) {
    const list = element("datalist", { id: `${id}-known` });
    for (const name of key.known) list.append(element("option", { value: name }));
    input.setAttribute("list", `${id}-known`);
    field.append(list);
  }
  return { field, input, fault };
}

function clearBuild() {
  byId("build-fault").hidden = true;
  for (const made of fields.values()) {
    made.fault.hidden = true;
    made.input.removeAttribute("aria-invalid");
  }
}

function takeBuilt(message) {
  askedAt = null;
  clearBuild();
  const text = element("pre", { text: message.yaml, tabindex: "0", "aria-label": "The twin that was made" });
  const look = element("button", { type: "button", id: "look", text: "Look at it with this load" });
  const values = Object.fromEntries(given.map(([path, value]) => [`${OF_BUILT}${path}`, value.trim()]));
  look.addEventListener("click", () => lookAt(values));
  const notes = element("ul", { class: "quiet" }, ...message.notes.map((note) => element("li", { text: `${note}.` })));
  byId("built").replaceChildren(text, element("div", { class: "buttons" }, look), element("p", {}, saveLink(message.yaml), ", then ", element("code", { text: "vtwin explore --config built.yaml --rate 5" }), " turns it."), notes);
  byId("built").hidden = false;
  if (isStale()) ask();
}

// The page is of another twin from here on; load and limits stay. Back, or the beginning, returns to the file's.
function lookAt(values) {
  const kept = knobs.filter((knob) => OF_LOAD.includes(knob.group) && knob.name in state).map((knob) => [knob.name, state[knob.name]]);
  state = { ...Object.fromEntries(kept), ...values };
  writeLink(true);
  begin();
  byId("answer").focus({ preventScroll: true });
  scrollTo(0, 0);
}

function showBuildFault(message) {
  clearBuild();
  byId("built").hidden = true;
  const named = message.faults.filter(({ key }) => fields.has(key)).map(({ key, text }) => [fields.get(key), text]);
  for (const [made, text] of named) {
    made.fault.textContent = text;
    made.fault.hidden = false;
    made.input.setAttribute("aria-invalid", "true");
    made.field.closest("details").open = true;
  }
  if (named.length) named[0][0].input.focus();
  byId("build-fault").textContent = message.text;
  byId("build-fault").hidden = false;
}

// -- buttons --------------------------------------------------------------------------------------------------

async function copy(text, button) {
  const said = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Could not copy";
  }
  setTimeout(() => { button.textContent = said; }, 1500);
}

byId("pin").addEventListener("click", () => {
  if (!now || pins.length >= MOST_PINS) return;
  pins.push({ ...now });
  writeLink(true);
  showAnswer();
});
byId("reset").addEventListener("click", () => {
  state = {};
  writeLink(true);
  begin();
});
byId("document-fold").addEventListener("toggle", (event) => {
  if (event.target.open && now) send("document", now.state);
});
byId("all-rows").addEventListener("change", showVariants);
byId("link").addEventListener("click", (event) => copy(location.href, event.target));
byId("copy-command").addEventListener("click", (event) => copy(byId("command").textContent, event.target));
byId("copy-yaml").addEventListener("click", (event) => copy(byId("yaml").textContent, event.target));
addEventListener("hashchange", () => {
  isSettled = true;
  pins = [];
  readLink();
  begin();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let resizing = null;
addEventListener("resize", () => {
  clearTimeout(resizing);
  resizing = setTimeout(redraw, 100);
});
function redraw() {
  for (const own of figures.values()) for (const figure of own.values()) figure.again();
}

connect();
