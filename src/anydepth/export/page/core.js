// The core, compiled to WebAssembly, and a model file that arrives piece by piece.

const SUCCESS = 0, UNSUPPORTED = 52, BAD_FILE = 8;
const NOT_YET = -3, TOO_LONG = -5;  // as in anydepth.h

// Of the system interface the core uses the clock alone: nothing is read, and nothing written.
function systemInterface(memory) {
  const refused = () => BAD_FILE;
  return {
    clock_time_get(clock, precision, place) {
      new DataView(memory().buffer).setBigUint64(place, BigInt(Math.round(performance.now() * 1e6)), true);
      return SUCCESS;
    },
    proc_exit(code) { throw new Error(`the core stopped (${code})`); },
    fd_close: refused, fd_read: refused, fd_write: refused, fd_seek: refused, fd_fdstat_get: refused,
    fd_fdstat_set_flags: refused, fd_prestat_get: refused, fd_prestat_dir_name: refused, path_open: () => UNSUPPORTED,
    environ_get: () => SUCCESS,
    environ_sizes_get(count, size) {
      const view = new DataView(memory().buffer);
      view.setUint32(count, 0, true);
      view.setUint32(size, 0, true);
      return SUCCESS;
    },
  };
}

export class CoreError extends Error {
  constructor(message, code) {
    super(message);
    this.code = code;
  }
  get isTooLong() { return this.code === TOO_LONG; }
  get isNotYet() { return this.code === NOT_YET; }
}

export class Core {
  static async load(source) {
    let instance;
    const imports = { wasi_snapshot_preview1: systemInterface(() => instance.exports.memory) };
    const made = await WebAssembly.instantiate(source, imports);
    instance = made.instance ?? made;
    instance.exports._initialize();
    return new Core(instance.exports);
  }

  constructor(exports) {
    this.exports = exports;
    this.model = exports.anydepth_begin(0);
    if (!this.model) this.fail();
  }

  get kernels() { return this.text(this.exports.anydepth_kernels(0)); }
  get isComplete() { return this.exports.anydepth_complete(this.model) === 1; }

  fail() { throw new CoreError(this.text(this.exports.anydepth_error()), this.exports.anydepth_error_code()); }

  text(place) {
    const all = new Uint8Array(this.exports.memory.buffer);
    return new TextDecoder().decode(all.subarray(place, all.indexOf(0, place)));
  }

  // Calls `use` with the places of these bytes in the core's memory.
  with(pieces, use) {
    const places = pieces.map(bytes => bytes && this.exports.web_allocate(bytes.length + 1));
    try {
      pieces.forEach((bytes, i) => {
        if (!bytes) return;
        if (!places[i]) throw new CoreError("there is not enough memory", -6);
        const memory = new Uint8Array(this.exports.memory.buffer);
        memory.set(bytes, places[i]);
        memory[places[i] + bytes.length] = 0;
      });
      return use(places.map(place => place ?? 0));
    } finally {
      for (const place of places) if (place) this.exports.web_free(place);
    }
  }

  append(bytes) {
    this.with([bytes], ([place]) => {
      if (this.exports.anydepth_append(this.model, place, bytes.length) !== SUCCESS) this.fail();
    });
  }

  // The depths that are there, in the order of the menu; none before the header has arrived.
  readyDepths() {
    const place = this.exports.anydepth_header(this.model);
    if (!place) return [];
    this.names ??= JSON.parse(this.text(place)).depths.depths.map(one => one.name);
    return this.names.filter((name, i) => this.exports.web_ready(this.model, i) === 1);
  }

  // The outputs of a sentence, the best first.
  translate(sentence, depth, pair = null, beam = 1, nbest = 1) {
    const bytes = text => text == null ? null : new TextEncoder().encode(text);
    const source = bytes(sentence);
    return this.with([source, bytes(depth), bytes(pair)], ([place, depthPlace, pairPlace]) => {
      const found = this.exports.web_translate(this.model, place, source.length, depthPlace, pairPlace, beam, nbest);
      if (!found) this.fail();
      try {
        const count = this.exports.anydepth_outputs(found, 0);
        return Array.from({ length: count }, (_, rank) => this.text(this.exports.web_output(found, rank)));
      } finally {
        this.exports.anydepth_translations_free(found);
      }
    });
  }
}
