"use strict";
const $ = id => document.getElementById(id);
const state = { model: null, pair: null, depth: null, budget: null, colour: "bleu", waiting: {} };
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

async function ask(route, fields, slot) {
  stop(slot);
  const control = state.waiting[slot] = new AbortController();
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
  try {
    await show_lines(await begin(), output);
  } catch (error) {
    if (error.name !== "AbortError") forget();
    report(error);
  }
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

const timed = () => state.pair.depths.filter(one => one.ms != null && one.bleu != null);

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
  const isChosenByServer = state.budget != null || state.depth === "auto";  // else it is the one that was chosen
  for (const cell of document.querySelectorAll("[data-depth]")) cell.classList.toggle("ran", isChosenByServer && depths.has(cell.dataset.depth));
}

function later(job, slot, wait = 200) {
  clearTimeout(state.waiting[slot + "-timer"]);
  state.waiting[slot + "-timer"] = setTimeout(job, wait);
}

function changed() {
  if (state.model.kind === "classification") return later(classify, "classify");
  later(translate, "translate");
  later(compare, "compare", 450);
}

// -- the grid ---------------------------------------------------------------

function choose(name) {
  state.depth = name;
  state.budget = null;
  mark_choice();
  changed();
}

function mark_choice() {
  const free = state.budget == null;
  for (const cell of document.querySelectorAll("[data-depth]")) {
    const chosen = free && cell.dataset.depth === state.depth;
    cell.setAttribute("aria-checked", chosen);
    const time = state.pair.depths.find(one => one.name === cell.dataset.depth)?.ms;
    cell.classList.toggle("over", !free && time > state.budget);
    cell.tabIndex = cell.dataset.depth === state.depth ? 0 : -1;
    cell.classList.remove("ran");
  }
  $("no-budget").hidden = free;
  if (free) { $("budget").value = 100; $("budget-value").textContent = "no limit"; }
}

function draw_grid() {
  const depths = state.pair.depths, plain = depths.filter(one => /^\d+-\d+$/.test(one.name));
  const rows = [...new Set(plain.map(one => one.encoder))].sort((a, b) => a - b);
  const columns = [...new Set(plain.map(one => one.decoder))].sort((a, b) => a - b);
  const values = plain.map(one => one[state.colour]).filter(one => one != null);
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
    : `milliseconds for one sentence of usual length, from ${state.pair.times_from}`;
  mark_choice();
}

function cell(one, least, most) {
  const value = one[state.colour];
  const part = value == null || most === least ? 50 : Math.round(100 * (value - least) / (most - least));
  const shown = value == null ? "" : state.colour === "bleu" ? value.toFixed(1) : ms(value);
  const description = `${one.encoder} encoder and ${one.decoder} decoder layers` + (one.bleu != null ? `, ${one.bleu.toFixed(1)} BLEU` : "") + (one.ms != null ? `, ${ms(one.ms)} ms` : "");
  return element("button", { class: "cell", role: "radio", "data-depth": one.name, "aria-label": `depth ${one.name}: ${description}`, title: description,
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
  const times = timed().map(one => one.ms);
  const least = 1.2 * Math.min(...times), most = 1.6 * Math.max(...times), place = Number($("budget").value);
  if (place >= 100) return choose(state.depth);
  state.budget = least * (most / least) ** (place / 100);
  $("budget-value").textContent = `at most ${ms(state.budget)} ms per sentence`;
  mark_choice();
  later(translate, "translate", 60);
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
    for (const column of columns)
      answers.push(await (await ask("translate", fields({ depth: column.firstChild.value }), "compare")).json());
    const right = answers[answers.length - 1].translatedText;
    columns.forEach((column, place) => {
      column.children[1].textContent = ` ${ms(answers[place].milliseconds)} ms`;
      column.lastChild.replaceChildren(...marked(answers[place].translatedText, right));
    });
  } catch (error) {
    if (error.name !== "AbortError") forget_columns();
    report(error);
  }
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
      return element("span", {}, space, element("span", { class: "word", title: `${word.depth} layers`, style: `--part:${part_of(word.depth)}` }, word.text.slice(space.length)));
    }));
  } catch (error) { report(error); }
}

const part_of = depth => Math.round(100 * (depth - 1) / Math.max(1, state.model.layers - 1));

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
  $("legend").replaceChildren("layers:", ...Array.from({ length: layers }, (_, i) => element("span", { class: "word", style: `--part:${part_of(i + 1)}` }, String(i + 1))));
  scaled();
}

// -- set up -----------------------------------------------------------------

function set_up_pair(name) {
  state.pair = state.model.pairs[name];
  state.depth = state.pair.default;
  state.budget = null;
  const called = code => state.model.languages.find(one => one.code === code)?.name ?? code;
  $("text-label").textContent = called(state.pair.source);
  $("output-title").textContent = called(state.pair.target);
  $("text").lang = state.pair.source;
  $("output").lang = state.pair.target;
  $("examples").replaceChildren(...state.pair.examples.slice(0, 3).map(text => element("button", { onclick: () => { $("text").value = text; changed(); } }, text)));
  $("budget").disabled = !state.pair.has_budget;
  if (!state.pair.has_budget) $("budget-note").textContent = "There is no budget: the depths of this model have not been measured (anydepth sweep).";
  draw_grid();
  draw_compare();
  changed();
}

async function start() {
  const model = state.model = await (await fetch("model")).json();
  $("key-choice").hidden = !model.key_required;
  $("about").textContent = `${model.depths?.length ?? Object.values(model.pairs)[0].depths.length} depths of one model, run by ${model.engine}; anydepth ${model.version}`;
  $("text").addEventListener("input", changed);
  $("key").addEventListener("change", changed);
  $("key-choice").addEventListener("submit", event => event.preventDefault());
  if (model.kind === "classification") return set_up_classification();
  for (const id of ["depth-section", "compare-section"]) $(id).hidden = false;
  const names = Object.keys(model.pairs);
  $("pair-choice").hidden = names.length < 2;
  $("pair").replaceChildren(...names.map(name => element("option", { value: name }, name)));
  $("pair").addEventListener("change", () => set_up_pair($("pair").value));
  $("by-bleu").addEventListener("click", () => colour_by("bleu"));
  $("by-ms").addEventListener("click", () => colour_by("ms"));
  $("budget").addEventListener("input", set_budget);
  $("no-budget").addEventListener("click", () => choose(state.depth));
  set_up_pair(names[0]);
}
start().catch(report);
