// A text as sentences to translate and what stands between them: put together again, nothing is lost. As the server
// does it (serve/segments.py), but with the browser's own rules for the ends of sentences.

const BREAKS = /(\r\n|[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029])/;
const CLAUSE_ENDS = /[,;:)\]»”—–…،、，；：。！？]\s*|(?<=\s)-\s+/g;
const WORD_ENDS = /\s+/g;
// What a name follows, and no new sentence: a title or an initial.
const BEFORE_NAMES = new RegExp(
  "(?:^|[\\s('’\"«“-])(?:\\p{Lu}|M[Mr]|M[mr]?e?s?|Mlles?|Mgr|D[Rr][as]?|Pr|Prof|Ste?|Mrs|Ms|Messrs|S[Rr]" +
  "|Sra|Srta|Sres|Hr|Fr|Sig|Dott|Gen|Gén|Col|Lt|Capt|Sgt|Rev|Hon|Gov|Sen)\\.\\s*$", "u");
const SOMETHING = /[\p{L}\p{N}]/u;  // symbols alone stay as they are

// Pieces as {before, text, after}: `text` goes to the model if there is any, and the rest is white space or symbols.
export function split(text, language) {
  return text.split(BREAKS).filter(line => line).flatMap(line => sentences(line, language).map(segment));
}

function sentences(line, language) {
  const found = [];
  for (const sentence of rawSentences(line, language)) {
    if (found.length && BEFORE_NAMES.test(found.at(-1))) found[found.length - 1] += sentence;
    else found.push(sentence);
  }
  return found;
}

function rawSentences(line, language) {
  if (typeof Intl.Segmenter !== "function") return line.match(/.*?(?:[.!?…]+["'”»)\]]*\s+|[。！？]+|$)/gsu).filter(one => one);
  let segmenter;
  try {
    segmenter = new Intl.Segmenter(language, { granularity: "sentence" });
  } catch {
    segmenter = new Intl.Segmenter("en", { granularity: "sentence" });
  }
  return Array.from(segmenter.segment(line), one => one.segment);
}

function segment(piece) {
  const text = piece.trim();
  if (!SOMETHING.test(text)) return { before: piece, text: "", after: "" };
  const start = piece.indexOf(text);
  return { before: piece.slice(0, start), text, after: piece.slice(start + text.length) };
}

// The two halves of a text that is too long for the model: divided after a clause, a word or any character.
export function halves(text) {
  const half = text.length / 2;
  for (const [ends, tolerance] of [[CLAUSE_ENDS, 0.35], [WORD_ENDS, 0.5]]) {
    const places = Array.from(text.matchAll(ends), match => match.index + match[0].length)
      .filter(place => place > 0 && place < text.length && Math.abs(place - half) <= tolerance * text.length);
    if (places.length) return cut(text, places.reduce((a, b) => Math.abs(b - half) < Math.abs(a - half) ? b : a));
  }
  const middle = Math.floor(half);
  return cut(text, /[\udc00-\udfff]/.test(text[middle]) ? middle + 1 : middle);  // not within a character
}

const cut = (text, place) => [text.slice(0, place), text.slice(place)];
