"""The model file for anydepth-run, the runtime package and the browser: every depth, in one file, without PyTorch.

It is checked as soon as it is written: the native engine must give the same tokens from it as from the model folder,
and the core the same texts by itself. With int4 weights, which change the output, `compare_file` measures how much.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from anydepth import __version__
from anydepth.artifact.folder import WORD_DEPTHS
from anydepth.artifact.model_file import SUFFIX, Kind, is_model_file
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.engines.native import NativeEngine
from anydepth.engines.native_format import assemble, packed
from anydepth.engines.packed import packed_weights
from anydepth.engines.shortlist import Shortlist
from anydepth.errors import UserError
from anydepth.export.sample import SampleText
from anydepth.files import checked_file
from anydepth.infer.translator import Translator, on_engine

CHECKED = 100  # sentences at every depth


@dataclass(frozen=True)
class FileComparison:
    """What a file with int4 weights changes at a depth, against int8."""

    depth: str
    sentences: int
    same: int  # of those, with the same tokens
    bleu: tuple[float, float] | None  # of int8 and of the file, if there are references
    agreement: float  # BLEU of the file against the translations of int8

    @property
    def lost(self) -> float:
        return 100 - self.agreement if self.bleu is None else self.bleu[0] - self.bleu[1]


def export_runtime(
    translator: Translator, out: Path, sample: SampleText, threads: int, *, shortlist: bool = True, int4: bool = False
) -> int:
    """Write the file and return how many sentences were compared at each depth; if any differs, nothing is kept."""
    check_file(out)
    data = build_runtime_file(translator, shortlist=shortlist, int4=int4)
    texts = sample.sources[:CHECKED]
    with checked_file(out) as written:
        written.write_bytes(data)
        exported = Translator.load(written, engine="native", threads=threads)
        _check_same(exported if int4 else _on_native(translator, threads, shortlist), exported, texts)
    return len(texts)


def compare_file(
    translator: Translator, file: Path, sample: SampleText, threads: int, *, shortlist: bool = True
) -> list[FileComparison]:
    """A file with int4 weights against the model in int8, at every depth."""
    from anydepth.evaluate.metrics import score

    exported, references, texts = (
        Translator.load(file, engine="native", threads=threads),
        sample.references,
        sample.sources,
    )
    found = []
    for before, after in zip(_on_native(translator, threads, shortlist).choices, exported.choices, strict=True):
        for depth in before.menu.names:
            both = [one.hypotheses(texts, depth=depth, cut_long=True, scores=False) for one in (before, after)]
            ours, theirs = ([best.text for best, *_ in each] for each in both)
            same = sum(one[0].tokens == other[0].tokens for one, other in zip(*both, strict=True))
            bleu = None if references is None else (score(ours, references).bleu, score(theirs, references).bleu)
            found.append(FileComparison(depth, len(texts), same, bleu, score(theirs, ours).bleu))
    return found


def _on_native(translator: Translator, threads: int, shortlist: bool) -> Translator:
    return on_engine(translator, "native", threads, shortlist=None if shortlist else False)


def build_runtime_file(translator: Translator, *, shortlist: bool = True, int4: bool = False) -> bytes:
    """All that is needed to translate: weights, tokenizer, languages, the menu with its figures, and the model's
    shortlist, unless it is to be left out. With `int4` the feed-forward weights have four bits.

    This needs no PyTorch, and in int8 with the packed form that a model folder keeps no NumPy either.
    """
    loaded, folder = translator.loaded, translator.folder
    if folder is None:
        raise UserError("only a model that was loaded from a folder can be exported")
    if isinstance(loaded.tokenizer, PretrainedTokenizer):
        raise UserError("the runtime reads tokenizers of SentencePiece, which this model does not have: use anydepth")
    kept = None if int4 else packed_weights(loaded)  # first: it knows the fingerprint
    header = {
        "made_by": f"anydepth {__version__}",
        "fingerprint": loaded.fingerprint,
        "config": json.loads((folder / "config.json").read_text("utf-8")),
        "depths": loaded.menu.whole.to_json(),
    }
    tokenizer, words = loaded.tokenizer.to_bytes(), folder / WORD_DEPTHS
    word_depths = words.read_bytes() if words.is_file() else None
    tags = [
        (pair.source, pair.target, None if pair.tag is None else loaded.tokenizer.symbol_id(pair.tag))
        for pair in loaded.pairs
    ]
    if kept is not None:
        core, weights = kept
        if not shortlist:
            weights = [section for section in weights if section.kind != Kind.SHORTLIST]
        return assemble(core, weights, header, tokenizer, word_depths, tags)
    found = Shortlist.find(loaded) if shortlist else None
    return packed(loaded.arrays, header, tokenizer, found, word_depths, tags, int4=int4)


def _check_same(native: Translator, exported: Translator, texts: list[str]) -> None:
    for before, after in zip(native.choices, exported.choices, strict=True):
        engine = after.engine
        assert isinstance(engine, NativeEngine)
        for entry in before.menu:
            expected = before.hypotheses(texts, depth=entry.name, cut_long=True, scores=False)
            found = after.hypotheses(texts, depth=entry.name, cut_long=True, scores=False)
            alone = [best.text for best, *_ in found]
            if not entry.subnetwork.by_word:
                alone = engine.native.translate(texts, entry.name, after.pair, cut_long=True)
            for text, (one, *_), (other, *_), again in zip(texts, expected, found, alone, strict=True):
                if one.tokens != other.tokens or one.text != again:
                    raise UserError(
                        f"the file does not translate as its source at depth {entry.name}: {text!r} became {again!r}, "
                        f"not {one.text!r}; nothing was written: please report this"
                    )


def check_file(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"{out} is a folder: name a file, such as {out / 'model'}{SUFFIX}")
    if out.exists() and not is_model_file(out):
        raise UserError(f"{out} exists already and is not an earlier export: choose another name")
    if not out.absolute().parent.is_dir():
        raise UserError(f"there is no folder {out.parent}: make it first, or choose another place")
