// The page: a model in this tab (worker.js), or the server it comes from.
"use strict";
const $ = id => document.getElementById(id);
const state = { model: null, pair: null, depth: null, budget: null, colour: "bleu", waiting: {}, tab: null };
const PAUSE = 400;  // ms without a key after which the chosen depth runs, instead of the shallowest
const SLOWDOWNS = 9;  // translations from which the times of this device are estimated
const RETRY_DELAYS = [1, 2, 4, 8, 16, 32];  // seconds until a model's file that was cut off is asked for again
const ms = value => value == null ? "" : value < 10 ? value.toFixed(1) : Math.round(value).toString();

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") made.style.cssText = value;
    else if (value !== false && value != null) made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function stop(slot) { state.waiting[slot]?.abort(); }

function begin_waiting(slot) {
  stop(slot);
  return state.waiting[slot] = new AbortController();
}

async function ask(route, fields, slot) {
  const control = begin_waiting(slot);
  const key = $("key").value;
  const answer = await fetch(route, {
    method: "POST", signal: control.signal,
    headers: { "Content-Type": "application/json", ...(key ? { Authorization: "Bearer " + key } : {}) },
    body: JSON.stringify(fields),
  });
  if (!answer.ok) throw new Error((await answer.json()).error || answer.statusText);
  return answer;
}

function report(error) {
  if (error.name !== "AbortError") $("alert").textContent = error.message;
}

// -- translation ------------------------------------------------------------

const fields = extra => ({ q: $("text").value, source: state.pair.source, target: state.pair.target, ...extra });

async function translate() {
  const output = $("output");
  $("alert").textContent = "";
  if (!$("text").value.trim()) { stop("main"); output.textContent = ""; $("ran").textContent = "\u00a0"; return; }
  output.classList.add("late");
  clearTimeout(state.waiting["compare-timer"]);
  state.running = (state.running ?? 0) + 1;
  try {
    const depth = depth_in_tab();
    if (depth === null) await show_lines(await begin(), output);
    else if (depth) await show_in_tab(depth, output);
    else {
      forget();
      if (state.failure) report(state.failure);
      else if (state.tab?.problem) report(new Error("Nothing can be translated yet: the model has not arrived."));
    }
  } catch (error) {
    if (error.name !== "AbortError") forget();
    report(error);
  } finally {
    state.running--;
  }
}

// -- in this tab ------------------------------------------------------------

// The model in the worker. One request at a time: a newer one ends those before it.
class Tab {
  constructor(about) {
    this.ready = new Set(), this.received = 0, this.size = about.size, this.isComplete = false, this.isKept = false;
    this.problem = null;  // why the rest of the file is not coming: {message, canRetry, delay}
    this.retries = 0, this.retryTimer = null;  // since the last bytes came
    this.requests = new Map(), this.last = 0;
    this.slowdowns = [];  // how much longer the last translations took here than by the figures of the model
    this.worker = new Worker("worker.js", { type: "module" });
    this.worker.onmessage = ({ data }) => this.hear(data);
    this.worker.onerror = event => { event.preventDefault(); this.fail(event.message || "the browser refused to start it"); };
    this.file = about.file;
    this.open();
  }

  open() {
    this.worker.postMessage({ kind: "open", program: "anydepth.wasm", model: this.file, size: this.size || null });
  }

  // By itself, when the user asks for it, or when the network is back.
  retry() {
    clearTimeout(this.retryTimer);
    if (state.tab !== this || !this.problem?.canRetry) return;
    this.problem = null;
    this.open();
    show_arrival();
  }

  hear(data) {
    const request = this.requests.get(data.id);
    if (data.kind === "sentence") request?.part(data.text);
    if (data.kind === "done") this.end(data.id, () => request.resolve(data));
    if (data.kind === "error") this.end(data.id, () => request.reject(new Error(data.message)));
    if (data.kind === "canceled") this.end(data.id, () => request.reject(new DOMException("stopped", "AbortError")));
    if (data.kind === "cut") {
      const delay = RETRY_DELAYS[this.retries++];  // none after the last
      this.problem = { message: data.message, canRetry: true, delay };
      if (delay) this.retryTimer = setTimeout(() => this.retry(), 1000 * delay);
      if (!this.ready.size && in_tab()) translate();  // says that it cannot
    }
    if (data.kind === "failed" && this.ready.size) this.problem = { message: data.message, canRetry: false };
    else if (data.kind === "failed") this.fail(data.message);
    if (data.kind === "kept") this.isKept = true;
    if (data.kind === "arrived" || data.kind === "complete") {
      if (data.received > this.received) this.retries = 0;
      this.received = data.received, this.size = data.size;
      this.isComplete = data.kind === "complete";
      if (data.ready) { this.ready = new Set(data.ready); depths_arrived(); }
    }
    show_arrival();
  }

  end(id, act) {
    if (!this.requests.has(id)) return;
    act();
    this.requests.delete(id);
  }

  fail(message) {
    this.worker.terminate();
    state.tab = null;
    for (const id of [...this.requests.keys()]) this.end(id, () => this.requests.get(id).reject(new DOMException("stopped", "AbortError")));
    $("arrival").hidden = true;
    if ($("output").classList.contains("late")) forget();
    state.failure = new Error(`The model cannot be used: ${message}`);
    if (state.model.server !== false) return use_server(message);
    report(state.failure);
  }

  has(depth) { return this.ready.has(depth) || this.ready.has(`${pair_name()}:${depth}`); }

  translate(text, depth, part, signal) {
    const id = ++this.last;
    return new Promise((resolve, reject) => {
      for (const earlier of [...this.requests.keys()]) this.end(earlier, () => this.requests.get(earlier).reject(new DOMException("stopped", "AbortError")));
      this.requests.set(id, { part, resolve, reject });
      signal.addEventListener("abort", () => {
        this.worker.postMessage({ kind: "cancel", id: 0 });
        this.end(id, () => reject(new DOMException("stopped", "AbortError")));
      });
      this.worker.postMessage({ kind: "translate", id, text, depth, pair: pair_name(), language: state.pair.source });
    });
  }
}

const pair_name = () => `${state.pair.source}-${state.pair.target}`;
const layers = one => one.encoder + one.decoder;
const in_tab = () => state.tab !== null && $("place").value === "tab";

// The depth that runs in this tab: "" if none has arrived yet, and null where the server has to run it.
function depth_in_tab(isTyping = state.isTyping) {
  if (!in_tab()) return state.model.server === false ? "" : null;
  const known = state.pair.depths.filter(one => state.model.in_tab.depths.includes(one.name));
  const chosen = state.budget == null ? known.find(one => one.name === state.depth) : best_within(known, state.budget);
  if (!chosen) return state.model.server === false ? "" : null;
  const ready = known.filter(one => state.tab.has(one.name));
  if (!ready.length) return "";
  if (isTyping) return ready.reduce((a, b) => layers(b) < layers(a) ? b : a).name;
  if (ready.includes(chosen)) return chosen.name;
  const fitting = ready.filter(one => one.encoder <= chosen.encoder && one.decoder <= chosen.decoder);
  return (fitting.length ? fitting : ready).reduce((a, b) => layers(b) > layers(a) ? b : a).name;
}

function best_within(depths, budget) {
  const usable = depths.filter(one => one.bleu != null);
  const fast = usable.filter(one => tab_ms(one) <= budget);
  return fast.length ? fast.reduce((a, b) => b.bleu > a.bleu ? b : a) : usable.reduce((a, b) => tab_ms(b) < tab_ms(a) ? b : a);
}

// Milliseconds per sentence: the model's figures, or else its layers, times what this device was found to be slower.
function expected_ms(one) { return one.ms ?? layers(one); }
function tab_ms(one) {
  const found = [...state.tab.slowdowns].sort((a, b) => a - b);  // the median: the first run is slower, and so are some others
  return found.length ? expected_ms(one) * found[(found.length - 1) >> 1] : one.ms;
}
const shown_ms = one => in_tab() ? tab_ms(one) : one.ms;

async function run_in_tab(text, depth, slot, part) {
  const control = begin_waiting(slot);
  const done = await state.tab.translate(text, depth, part, control.signal);
  const { milliseconds, sentences } = done.fresh;
  if (sentences) {
    const one = state.pair.depths.find(other => other.name === depth), known = state.tab.slowdowns;
    known.push(milliseconds / (sentences * expected_ms(one)));
    if (known.length > SLOWDOWNS) known.shift();
  }
  return done;
}

// Long texts appear sentence by sentence; a short one at once, so that nothing flickers at each key.
async function show_in_tab(depth, output) {
  let text = "";
  const done = await run_in_tab($("text").value, depth, "main", part => {
    text += part;
    if (text.length < output.textContent.length) return;
    output.textContent = text;
    output.classList.remove("late");
  });
  output.textContent = text;
  output.classList.remove("late");
  $("ran").textContent = `depth ${depth}: ${ms(done.milliseconds)} ms, in this tab`;
  show_ran(new Set([depth]));
  show_figures();
}

function depths_arrived() {
  mark_choice();
  if (in_tab()) refine();
}

function show_arrival() {
  const tab = state.tab, shown = tab !== null && in_tab();
  $("arrival").hidden = !shown;
  if (!shown) return;
  const there = state.pair.depths.filter(one => tab.has(one.name)), part = tab.size ? Math.min(1, tab.received / tab.size) : 0;
  $("arrived").value = part;
  $("arrived").hidden = tab.isComplete;
  $("retry").hidden = !tab.problem?.canRetry;
  $("arrival-note").classList.toggle("problem", tab.problem !== null);
  const size = tab.size ? `${(tab.size / 1e6).toFixed(1)} MB` : "its file";
  const share = `${Math.floor(100 * part)}% of ${size}`, all = state.pair.depths.length;
  $("arrival-note").textContent = tab.problem ? problem_text(tab, there, share)
    : tab.isComplete
    ? `The model is here (${size}): ${state.model.server === false ? "nothing you type" : "what runs in this tab never"} leaves this device` + (tab.isKept ? ", and it works without a network." : ".")
    : there.length ? `Depth ${there.at(-1).name} has arrived, ${there.length} of ${all} depths: ${share}`
    : `The model is arriving: ${share}`;
}

function problem_text({ problem, received }, there, share) {
  const names = there.map(one => one.name).join(", ");
  const rest = there.length ? "The rest of the model" : "The model", at = received ? ` at ${share}` : "";
  const works = there.length > 1 ? `Depths ${names} work.` : there.length ? `Depth ${names} works.`
    : state.model.server === false ? "No depth works yet."
    : "No depth works in this tab yet, but the server can translate: choose it above.";
  const next = problem.delay ? ` It is asked for again in ${problem.delay} s.` : "";
  return problem.canRetry ? `${rest} did not arrive: ${problem.message}${at}. ${works}${next}`
    : `${rest} cannot be used: ${problem.message}. ${works} Reload the page to try again.`;
}

// The model's file is asked for when it is first needed.
function choose_place() {
  if ($("place").value === "tab") state.tab ??= new Tab(state.model.in_tab);
  show_about();
  show_arrival();
}

function show_about() {
  const { model } = state, depths = model.depths ?? Object.values(model.pairs)[0].depths;
  const engine = model.server === false || in_tab() ? "" : `run by ${model.engine}; `;
  $("about").textContent = `${depths.length} depths of one model; ${engine}anydepth ${model.version}`;
}

// The text that is there stays here: the next change goes to the server, which is said before.
function use_server(message) {
  $("place-choice").hidden = true;
  $("place").value = "server";
  show_about();
  draw_grid();
  report(new Error(`The model cannot run in this tab (${message}). From now on the server translates what you type.`));
}

// A text may be too long for a budget that others keep: then the fastest depth runs.
async function begin() {
  if (state.budget == null) return ask("translate_stream", fields({ depth: state.depth }), "main");
  $("budget-value").textContent = `at most ${ms(state.budget)} ms per sentence`;
  try {
    return await ask("translate_stream", fields({ budget_ms: state.budget }), "main");
  } catch (error) {
    if (!error.message.includes("below the fastest depth")) throw error;
    $("budget-value").textContent += ": this text takes longer, at the fastest depth";
    return ask("translate_stream", fields({ depth: timed().reduce((a, b) => b.ms < a.ms ? b : a).name }), "main");
  }
}

const timed = () => state.pair.depths.filter(one => shown_ms(one) != null && one.bleu != null);

function forget() {
  $("output").textContent = "";
  $("ran").textContent = "\u00a0";
  $("output").classList.remove("late");
  forget_columns();
}

function forget_columns() {
  for (const one of document.querySelectorAll("#compare .output, #compare .soft")) one.textContent = "";
}

async function show_lines(answer, output) {
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "", text = "";
  const depths = new Set();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines.map(one => JSON.parse(one))) {
      if (line.error) throw new Error(line.error);
      if (line.done) { $("ran").textContent = `${depths_text(depths)} ${ms(line.milliseconds)} ms, ${line.engine}`; continue; }
      text += line.text;
      if (line.depth) depths.add(line.depth);
      output.textContent = text;
      output.classList.remove("late");
    }
  }
  show_ran(depths);
}

const depths_text = depths => depths.size ? `depth ${[...depths].join(", ")}:` : "";

function show_ran(depths) {
  if (state.budget != null && !state.isTyping && depths.size) {
    state.fitting = [...depths].at(-1);
    show_slider();
  }
  for (const cell of document.querySelectorAll("[data-depth]")) cell.classList.toggle("ran", depths.has(cell.dataset.depth) && cell.getAttribute("aria-checked") !== "true");
}

function later(job, slot, wait = 200) {
  clearTimeout(state.waiting[slot + "-timer"]);
  state.waiting[slot + "-timer"] = setTimeout(job, wait);
}

function changed() {
  show_count();
  if (state.model.kind === "classification") return later(classify, "classify");
  later(refine, "translate", in_tab() ? 0 : 200);
}

// At each key the shallowest depth runs, and the chosen one when typing pauses.
function typed() {
  if (state.model.kind === "classification" || !in_tab()) return changed();
  show_count();
  state.isTyping = true;
  translate();
  later(refine, "translate", PAUSE);
}

async function refine() {
  state.isTyping = false;
  await translate();
  if (!state.isTyping) later(compare, "compare", in_tab() ? 50 : 250);
}

function show_count() {
  const count = [...$("text").value].length;
  $("count").textContent = `${count.toLocaleString("en")} ${count === 1 ? "character" : "characters"}`;
}

// -- the grid ---------------------------------------------------------------

function choose(name) {
  state.depth = name;
  state.budget = state.fitting = null;
  mark_choice();
  changed();
}

function mark_choice() {
  const free = state.budget == null;
  for (const cell of document.querySelectorAll("[data-depth]")) {
    const chosen = free && cell.dataset.depth === state.depth;
    cell.setAttribute("aria-checked", chosen);
    const one = state.pair.depths.find(other => other.name === cell.dataset.depth);
    cell.classList.toggle("coming", one != null && in_tab() && state.model.in_tab.depths.includes(one.name) && !state.tab.has(one.name));
    cell.tabIndex = cell.dataset.depth === state.depth ? 0 : -1;
    cell.classList.remove("ran");
  }
  $("no-budget").hidden = free;
  if (free) { $("budget").value = 100; $("budget-value").textContent = "no limit"; }
  show_slider();
}

// -- the slider -------------------------------------------------------------

// Depths that are worth their time: each is better than all that are faster, or has more layers where nothing is measured.
function frontier() {
  const known = state.pair.depths, isMeasured = known.every(one => one.bleu != null);
  const found = [];
  for (const one of [...known].sort((a, b) => expected_ms(a) - expected_ms(b)))
    if (!isMeasured || !found.length || one.bleu > found.at(-1).bleu) found.push(one);
  return found;
}

// The steps of the slider: those, and the default depth, which may be off their front.
function steps() {
  const found = frontier(), usual = state.pair.depths.find(one => one.name === state.pair.default);
  if (usual && !found.includes(usual)) found.push(usual);
  return found.sort((a, b) => expected_ms(a) - expected_ms(b));
}

// At the chosen depth, or at the one that the budget chose when it last ran.
function show_slider() {
  const name = state.budget == null ? state.depth : state.fitting ?? state.depth;
  const all = steps(), chosen = all.findIndex(one => one.name === name), slider = $("depth-slider");
  slider.max = all.length - 1;
  const one = state.pair.depths.find(other => other.name === name);
  const near = chosen >= 0 || !one ? chosen : all.filter(other => expected_ms(other) <= expected_ms(one)).length - 1;
  if (near >= 0) slider.value = near;
  show_figures();
}

function show_figures() {
  const one = state.pair.depths.find(other => other.name === state.depth);
  const isMeasured = !in_tab() || state.tab.slowdowns.length > 0;  // the model's own figures are those of another machine
  const time = one && isMeasured ? shown_ms(one) : null;
  const figures = !one ? [state.depth] : [`depth ${one.name}`, one.bleu != null ? `${one.bleu.toFixed(1)} BLEU` : "", time != null ? `about ${ms(time)} ms a sentence` : ""];
  const fitting = state.fitting == null ? "" : `: depth ${state.fitting}`;
  $("slider-value").textContent = state.budget != null ? `at most ${ms(state.budget)} ms a sentence${fitting}` : figures.filter(part => part).join(" · ");
  $("depth-slider").setAttribute("aria-valuetext", $("slider-value").textContent);
  for (const cell of document.querySelectorAll(".cell")) {
    const shown = state.pair.depths.find(other => other.name === cell.dataset.depth);
    cell.classList.toggle("over", state.budget != null && shown_ms(shown) > state.budget);
    cell.title = describe(shown);
    cell.setAttribute("aria-label", `depth ${shown.name}: ${cell.title}`);
    if (state.colour === "ms") cell.querySelector("small").textContent = ms(shown_ms(shown));
  }
}

function describe(one) {
  const time = shown_ms(one);
  return `${one.encoder} encoder and ${one.decoder} decoder layers` + (one.bleu != null ? `, ${one.bleu.toFixed(1)} BLEU` : "") + (time != null ? `, ${ms(time)} ms` : "");
}

function draw_grid() {
  const depths = state.pair.depths, plain = depths.filter(one => /^\d+-\d+$/.test(one.name));
  const rows = [...new Set(plain.map(one => one.encoder))].sort((a, b) => a - b);
  const columns = [...new Set(plain.map(one => one.decoder))].sort((a, b) => a - b);
  const values = plain.map(shown_value).filter(one => one != null);
  const least = Math.min(...values), most = Math.max(...values);
  const head = element("tr", {}, element("th", { class: "side", scope: "col" }, "layers"),
    ...columns.map(m => element("th", { scope: "col" }, `${m} `, element("span", { class: "wide" }, "decoder"), element("span", { class: "narrow", "aria-hidden": "true" }, "dec."))));
  $("grid").replaceChildren(head, ...rows.map(n => element("tr", {},
    element("th", { class: "side", scope: "row" }, `${n} encoder`),
    ...columns.map(m => element("td", {}, ...plain.filter(one => one.encoder === n && one.decoder === m).map(one => cell(one, least, most)))))));
  const others = depths.filter(one => !plain.includes(one)).map(one => one.name);
  if (state.pair.has_selector) others.push("auto");
  $("others").replaceChildren(...others.map(name => element("button", { class: "plain", role: "radio", "data-depth": name, onclick: () => choose(name), onkeydown: move }, name)));
  const of = state.pair.measured_on ? `BLEU on ${state.pair.measured_on}` : "BLEU has not been measured: run anydepth sweep";
  $("grid-note").textContent = state.colour === "bleu" ? of
    : `milliseconds for one sentence of usual length, from ${in_tab() ? "what ran in this tab" : state.pair.times_from}`;
  mark_choice();
}

const shown_value = one => state.colour === "ms" ? shown_ms(one) : one.bleu;

function cell(one, least, most) {
  const value = shown_value(one);
  const part = value == null || most === least ? 50 : Math.round(100 * (value - least) / (most - least));
  const shown = value == null ? "" : state.colour === "bleu" ? value.toFixed(1) : ms(value);
  return element("button", { class: "cell", role: "radio", "data-depth": one.name,
    style: `--part:${part}`, onclick: () => choose(one.name), onkeydown: move }, one.name, element("small", {}, shown));
}

function move(event) {
  const steps = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!steps) return;
  event.preventDefault();
  const from = event.currentTarget, here = from.closest("td"), row = here?.parentElement;
  const beside = row?.parentElement.children[row.rowIndex + steps[0]]?.children[here.cellIndex + steps[1]]?.querySelector(".cell");
  const all = [...document.querySelectorAll("[data-depth]")];  // at an edge, and below the grid, one after the other
  const there = beside ?? all[all.indexOf(from) + steps[0] + steps[1]];
  if (there) { choose(there.dataset.depth); there.focus(); }
}

function colour_by(what) {
  state.colour = what;
  $("by-bleu").setAttribute("aria-pressed", what === "bleu");
  $("by-ms").setAttribute("aria-pressed", what === "ms");
  draw_grid();
}

function set_budget() {
  const times = timed().map(shown_ms);
  const least = 1.2 * Math.min(...times), most = 1.6 * Math.max(...times), place = Number($("budget").value);
  if (place >= 100) return choose(state.depth);
  state.budget = least * (most / least) ** (place / 100);
  $("budget-value").textContent = `at most ${ms(state.budget)} ms per sentence`;
  mark_choice();
  later(refine, "translate", 60);
}

// -- side by side -----------------------------------------------------------

function draw_compare() {
  const names = state.pair.depths.map(one => one.name);
  const first = [names[0], names[Math.floor((names.length - 1) / 2)], state.pair.default];
  $("compare").replaceChildren(...first.map((name, place) => element("div", {},
    element("select", { "aria-label": `depth ${place + 1} of 3`, onchange: compare },
      ...names.map(one => element("option", { selected: one === name }, one))),
    element("span", { class: "soft" }), element("div", { class: "output" }))));
}

async function compare() {
  if (!$("text").value.trim()) { stop("compare"); forget_columns(); return; }
  try {
    const columns = [...$("compare").children];
    const answers = [];  // one after the other, so that none waits for another and the times are their own
    for (const column of columns) answers.push(await translate_at(column.firstChild.value));
    const right = answers[answers.length - 1].translatedText;
    columns.forEach((column, place) => {
      const time = answers[place].milliseconds;
      column.children[1].textContent = time == null ? " has not arrived" : ` ${ms(time)} ms`;
      column.lastChild.replaceChildren(...(right ? marked(answers[place].translatedText, right) : [answers[place].translatedText]));
    });
  } catch (error) {
    if (error.name !== "AbortError") forget_columns();
    report(error);
  }
}

// The columns wait for the translation itself, which one request more would end: `refine` asks for them again.
async function translate_at(depth) {
  const text = $("text").value;
  if (state.running) throw new DOMException("stopped", "AbortError");
  if (state.failure && state.model.server === false) throw state.failure;
  if (!in_tab() || !state.model.in_tab.depths.includes(depth)) {
    if (state.model.server === false) throw new Error(`depth ${depth} does not run in a browser`);
    return (await ask("translate", fields({ depth }), "compare")).json();
  }
  if (!state.tab.has(depth)) return { translatedText: "", milliseconds: null };  // has not arrived
  let translatedText = "";
  const { milliseconds } = await run_in_tab(text, depth, "compare", part => { translatedText += part; });
  return { translatedText, milliseconds };
}

// Words of `text` that are in no longest common subsequence with `other` are marked.
function marked(text, other) {
  const a = text.split(/(\s+)/), b = other.split(/(\s+)/);
  if (a.length * b.length > 4e6) return [text];
  const longest = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i--)
    for (let j = b.length - 1; j >= 0; j--)
      longest[i][j] = a[i] === b[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
  const found = [];
  for (let i = 0, j = 0; i < a.length;) {
    if (j < b.length && a[i] === b[j]) { found.push(a[i]); i++; j++; }
    else if (j < b.length && longest[i][j + 1] >= longest[i + 1][j]) j++;
    else { found.push(/\S/.test(a[i]) ? element("mark", {}, a[i]) : a[i]); i++; }
  }
  return found;
}

// -- classification ---------------------------------------------------------

async function classify() {
  $("alert").textContent = "";
  if (!$("text").value.trim()) { stop("classify"); $("output").textContent = ""; $("words").textContent = ""; return; }
  try {
    const chosen = state.model.depths.find(one => one.name === $("class-depth").value), scale = 2 ** Number($("scale").value);
    const how = { q: $("text").value, words: true, depth: chosen.name, ...(chosen.by_word && scale !== 1 ? { scale } : {}) };
    const answer = await (await ask("classify", how, "classify")).json();
    const rows = Object.entries(answer.probabilities).sort((a, b) => b[1] - a[1]).slice(0, 12).flatMap(([label, share]) => [
      element("span", {}, label), element("div", { class: "bar", style: `width:${(100 * share).toFixed(1)}%` }), element("span", { class: "soft" }, `${(100 * share).toFixed(1)}%`)]);
    $("output").replaceChildren(element("div", { class: "labels" }, ...rows));
    $("ran").textContent = `mean depth ${answer.mean_depth.toFixed(2)} of ${state.model.layers} layers, ${ms(answer.milliseconds)} ms` + (answer.cut ? "; the text is longer than the model reads, and was cut" : "");
    $("words").replaceChildren(...answer.words.map(word => {
      const space = word.text.match(/^\s*/)[0];
      return element("span", {}, space, element("span", { class: "word", title: `${word.depth} layers`, style: `--part:${depth_share(word.depth)}` }, word.text.slice(space.length)));
    }));
  } catch (error) { report(error); }
}

const depth_share = depth => Math.round(100 * (depth - 1) / Math.max(1, state.model.layers - 1));

function set_up_classification() {
  const { depths, layers } = state.model;
  $("text-label").textContent = "Text";
  $("output-title").textContent = "Label";
  $("words-section").hidden = false;
  $("class-depth").replaceChildren(...depths.map(one => element("option", { selected: one.name === state.model.default }, one.name)));
  const scaled = () => {
    const scale = 2 ** Number($("scale").value);
    $("scale-value").textContent = scale === 1 ? "as trained" : `${scale.toFixed(2)} times as deep`;
    $("scale-label").hidden = $("scale-value").hidden = !depths.find(one => one.name === $("class-depth").value).by_word;
    changed();
  };
  $("class-depth").addEventListener("change", scaled);
  $("scale").addEventListener("input", scaled);
  $("legend").replaceChildren("layers:", ...Array.from({ length: layers }, (_, i) => element("span", { class: "word", style: `--part:${depth_share(i + 1)}` }, String(i + 1))));
  scaled();
}

async function copy() {
  if (!$("output").textContent) return;
  try {
    await navigator.clipboard.writeText($("output").textContent);
  } catch {  // not allowed on plain http
    getSelection().selectAllChildren($("output"));
    document.execCommand("copy");
  }
  $("copy").textContent = "copied";
  setTimeout(() => { $("copy").textContent = "copy"; }, 1500);
}

// -- set up -----------------------------------------------------------------

function set_up_pair(name) {
  state.pair = state.model.pairs[name];
  state.depth = state.pair.default;
  state.budget = state.fitting = null;
  const called = code => state.model.languages.find(one => one.code === code)?.name ?? code;
  $("text-label").textContent = called(state.pair.source);
  $("output-title").textContent = called(state.pair.target);
  $("text").lang = state.pair.source;
  $("output").lang = state.pair.target;
  $("examples").replaceChildren(...state.pair.examples.slice(0, 3).map(text => element("button", { title: text, onclick: () => { $("text").value = text; changed(); } }, text)));
  $("budget").disabled = !state.pair.has_budget;
  if (!state.pair.has_budget) $("budget-note").textContent = "There is no budget: the depths of this model have not been measured (anydepth sweep).";
  draw_grid();
  draw_compare();
  changed();
}

async function start() {
  const model = state.model = await (await fetch("model.json")).json();
  $("key-choice").hidden = !model.key_required;
  show_about();
  $("text").addEventListener("input", typed);
  $("clear").addEventListener("click", () => { $("text").value = ""; $("text").focus(); changed(); });
  $("copy").addEventListener("click", copy);
  show_count();
  $("key").addEventListener("change", changed);
  $("key-choice").addEventListener("submit", event => event.preventDefault());
  if (model.kind === "classification") return set_up_classification();
  navigator.serviceWorker?.register("service-worker.js").catch(() => null);  // refused on plain http: no use without a network
  for (const id of ["slider-section", "depth-section", "compare-section"]) $(id).hidden = false;
  const names = Object.keys(model.pairs);
  $("pair-choice").hidden = names.length < 2;
  $("pair").replaceChildren(...names.map(name => element("option", { value: name }, name)));
  $("pair").addEventListener("change", () => set_up_pair($("pair").value));
  $("by-bleu").addEventListener("click", () => colour_by("bleu"));
  $("by-ms").addEventListener("click", () => colour_by("ms"));
  $("budget").addEventListener("input", set_budget);
  $("no-budget").addEventListener("click", () => choose(state.depth));
  $("depth-slider").addEventListener("input", () => choose(steps()[Number($("depth-slider").value)].name));
  $("place").addEventListener("change", () => { choose_place(); draw_grid(); changed(); });
  const retry = () => {
    if (!state.tab) return;
    state.tab.retries = 0;
    state.tab.retry();
  };
  $("retry").addEventListener("click", () => { $("alert").textContent = ""; retry(); });
  addEventListener("online", retry);
  if (!model.in_tab || new URLSearchParams(location.search).get("on") === "server") $("place").value = "server";
  $("place-choice").hidden = !model.in_tab || model.server === false;
  state.pair = model.pairs[names[0]];
  choose_place();
  set_up_pair(names[0]);
}
start().catch(report);
