// Translates lines with the WebAssembly core under Node: node translate.mjs CORE.JS WASM MODEL < jobs.json > answers.json
// jobs: {"texts": [...], "depths": [...], "pieces": bytes appended at a time, "beam": 1, "rounds": 1}
import { readFileSync } from "node:fs";

const [script, program, model] = process.argv.slice(2);
// Node takes a file that ends in .js for a script of the old kind.
const { Core } = await import("data:text/javascript," + encodeURIComponent(readFileSync(script, "utf-8")));
const job = JSON.parse(readFileSync(0, "utf-8"));
const core = await Core.load(readFileSync(program));
const data = readFileSync(model), step = job.pieces ?? data.length, arrivals = [];
for (let at = 0; at < data.length; at += step) {
  core.append(data.subarray(at, at + step));
  const ready = core.readyDepths();
  if (ready.length !== (arrivals.at(-1)?.ready.length ?? 0)) arrivals.push({ bytes: Math.min(at + step, data.length), ready });
}
const outputs = {}, seconds = {};
for (let round = 0; round < (job.rounds ?? 1); round++)
  for (const depth of job.depths) {
    const before = process.cpuUsage().user;
    outputs[depth] = job.texts.map(text => {
      try {
        return core.translate(text, depth, null, job.beam ?? 1)[0];
      } catch (error) {
        return { code: error.code, message: error.message };
      }
    });
    (seconds[depth] ??= []).push((process.cpuUsage().user - before) / 1e6);
  }
console.log(JSON.stringify({ kernels: core.kernels, complete: core.isComplete, size: data.length, arrivals, outputs, seconds }));
