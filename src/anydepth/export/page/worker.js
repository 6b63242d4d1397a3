// Runs the model, so that the page never waits: streams its file into the core, and translates piece by piece.
import { Core, CoreError } from "./core.js";
import { halves, split } from "./sentences.js";

const CACHE = `anydepth-model ${new URL(".", location.href).pathname}`;  // other sites may have the same origin
const REMEMBERED = 2000;  // sentences
const memory = new Map();
let core = null, current = 0;
let arrived = [], received = 0;  // what has come of the model's file, and its bytes

onmessage = ({ data }) => {
  if (data.kind === "open") open(data).catch(stopped);
  if (data.kind === "translate") translate(data).catch(error => postMessage({ kind: "error", id: data.id, message: error.message }));
  if (data.kind === "cancel") current = data.id;
};

const REFUSALS = [CoreError, WebAssembly.CompileError, WebAssembly.LinkError, WebAssembly.RuntimeError];

// A file that was cut off can be asked for again, and one that the core refuses cannot. What has arrived stays.
function stopped(error) {
  const isRefused = REFUSALS.some(kind => error instanceof kind);
  const message = error instanceof TypeError ? "the connection was lost" : error.message;  // as fetch throws it
  postMessage({ kind: isRefused ? "failed" : "cut", message });
}

// Asked again after a cut, it goes on where the file ended.
async function open({ program, model, size }) {
  core ??= await load(program);
  const kept = received ? null : await keptModel(model);
  if (kept) {
    try {
      await receive(kept, size);
      arrived = [];
      return postMessage({ kind: "kept" });
    } catch {  // of another version, or damaged
      await (await modelCache())?.delete(model);
      core = null, arrived = [], received = 0, current = 0;
      postMessage({ kind: "arrived", received, size, ready: [] });
      core = await load(program);
    }
  }
  await receive(await fetched(model, received), size);
  await keep(model).catch(() => null);
  arrived = [];
}

async function load(program) {
  try {
    return await Core.load(await (await fetched(program)).arrayBuffer());
  } catch (error) {
    if (!(error instanceof WebAssembly.CompileError)) throw error;
    const advice = "take Chrome 95, Firefox 100, Safari 16.4 or later";
    throw new WebAssembly.CompileError(`this browser lacks SIMD or exceptions of WebAssembly: ${advice}`);
  }
}

// A server that knows no ranges sends the file from its start: then what is there already is skipped.
async function receive(response, given) {
  const start = response.status === 206 ? Number(/^bytes (\d+)-/.exec(response.headers.get("Content-Range"))?.[1]) : 0;
  if (!(start <= received)) throw new Error("the server sent another part of the file");
  const size = given ?? start + Number(response.headers.get("Content-Length"));
  const reader = response.body.getReader();
  let place = start, known = core.readyDepths().length;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    const bytes = value.subarray(Math.min(value.length, received - place));
    place += value.length;
    if (!bytes.length) continue;
    core.append(bytes);
    arrived.push(bytes);
    received += bytes.length;
    const ready = core.readyDepths();
    postMessage({ kind: "arrived", received, size, ready: ready.length === known ? null : ready });
    known = ready.length;
  }
  if (!core.isComplete) throw new Error("the file ended too early");
  postMessage({ kind: "complete", received, size: received, ready: core.readyDepths() });
}

async function fetched(address, start = 0) {
  const response = await fetch(address, start ? { headers: { Range: `bytes=${start}-` } } : {});
  if (!response.ok) throw new Error(`${address} could not be loaded (${response.status})`);
  return response;
}

// Kept in the browser once it is known to work, so that it is there without a network. A browser may refuse, and keeps
// none on plain http.
const modelCache = async () => await globalThis.caches?.open(CACHE).catch(() => null);
const keptModel = async address => await (await modelCache())?.match(address);

async function keep(address) {
  const cache = await modelCache();
  if (!cache) return;
  await cache.put(address, new Response(new Blob(arrived), { headers: { "Content-Length": received } }));
  for (const request of await cache.keys())  // earlier versions of it
    if (request.url !== new URL(address, location.href).href) await cache.delete(request);
  postMessage({ kind: "kept" });
}

// A task of its own after each piece, so that a newer request is seen.
const pause = () => new Promise(done => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = done;
  port2.postMessage(null);
});

async function translate({ id, text, depth, pair, language }) {
  current = id;
  let milliseconds = 0;
  const fresh = { milliseconds: 0, sentences: 0 };  // of those that ran now
  for (const pieces = split(text, language).reverse(); pieces.length;) {
    const piece = pieces.pop();
    const found = piece.text ? remembered(piece.text, depth, pair) : { output: "", milliseconds: 0, isNew: false };
    milliseconds += found.milliseconds;
    if (found.isTooLong) pieces.push(...parts(piece).reverse());
    else postMessage({ kind: "sentence", id, text: piece.before + found.output + piece.after });
    if (!found.isNew) continue;
    fresh.milliseconds += found.milliseconds, fresh.sentences += found.isTooLong ? 0 : 1;
    await pause();
    if (current !== id) return postMessage({ kind: "canceled", id });
  }
  postMessage({ kind: "done", id, milliseconds, fresh });
}

function parts({ before, text, after }) {
  const [first, second] = halves(text);
  return [{ before, text: first, after: " " }, { before: "", text: second, after }];
}

// At each key all sentences but one are as they were.
function remembered(text, depth, pair) {
  const key = JSON.stringify([pair, depth, text]), known = memory.get(key);
  if (known) return { ...known, isNew: false };
  const began = performance.now(), result = translateOne(text, depth, pair);
  const found = { ...result, milliseconds: performance.now() - began };
  if (memory.size >= REMEMBERED) memory.delete(memory.keys().next().value);
  memory.set(key, found);
  return { ...found, isNew: true };
}

function translateOne(text, depth, pair) {
  try {
    return { output: core.translate(text, depth, pair)[0], isTooLong: false };
  } catch (error) {
    if (!error.isTooLong || text.length < 2) throw error;
    return { output: "", isTooLong: true };
  }
}
