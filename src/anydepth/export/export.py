"""Export: one depth of a model as a model of its own, for another engine or for anydepth itself.

An export is checked as soon as it is written: it must translate a sample as its source does. Its README.md has a
program that runs it, without anydepth.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import yaml

from anydepth import __version__
from anydepth.artifact.folder import read_config
from anydepth.artifact.saving import ModelContent, save
from anydepth.data import Tokenizer
from anydepth.data.corpus import SAMPLE_FILE
from anydepth.depth import DepthMenu, MenuEntry, SubNetwork
from anydepth.engines.shortlist import VMAP, Shortlist
from anydepth.errors import UserError
from anydepth.evaluate.metrics import score
from anydepth.export.sample import SampleText
from anydepth.files import atomic_folder
from anydepth.infer.options import HypothesesKeywords
from anydepth.infer.text_model import TextModel
from anydepth.infer.translator import Hypothesis, Translator
from anydepth.model import Transformer
from anydepth.model.pruning import cut

MARK = "export.json"  # marks a folder as an export, and says where it comes from
ALL = "all"
STORED: dict[str, torch.dtype] = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
TIE = 1e-3  # logits closer than this are a tie, which rounding decides


@dataclass(frozen=True)
class TokenDifference:
    """A sentence with other tokens. `gap` is between the source model's logits of the first two tokens that differ."""

    source: str
    expected: str
    found: str
    gap: float

    @property
    def is_tie(self) -> bool:
        return self.gap < TIE


@dataclass(frozen=True)
class ExportCheck:
    """Greedy translations of a sample at a depth compared token by token; BLEU of both if there are references."""

    depth: str
    sample: SampleText
    differences: list[TokenDifference]
    bleu: tuple[float, float] | None  # of the source model, and of the export
    agreement: float  # BLEU of the export against the translations of the source model

    @property
    def same(self) -> int:
        return len(self.sample.sources) - len(self.differences)

    @property
    def wrong(self) -> list[TokenDifference]:
        return [one for one in self.differences if not one.is_tie]


def check_export(
    source: Translator, exported: Translator, depth: str, exported_depth: str, sample: SampleText
) -> ExportCheck:
    """Both translate the sample greedily, the source model with PyTorch in float32."""
    texts = sample.sources
    options: HypothesesKeywords = {"cut_long": True, "scores": False}
    expected = [best for best, *_ in source.hypotheses(texts, depth=depth, **options)]
    found = [best for best, *_ in exported.hypotheses(texts, depth=exported_depth, **options)]
    differences = list(_find_differences(source, source.menu[depth].subnetwork, texts, expected, found))
    outputs, own = [one.text for one in found], [one.text for one in expected]
    references = sample.references
    bleu = None if references is None else (score(own, references).bleu, score(outputs, references).bleu)
    return ExportCheck(depth, sample, differences, bleu, score(outputs, own).bleu)


def _find_differences(
    source: Translator, sub: SubNetwork, texts: list[str], expected: list[Hypothesis], found: list[Hypothesis]
) -> Iterator[TokenDifference]:
    for text, ours, theirs in zip(texts, expected, found, strict=True):
        if (ours.tokens, ours.ended) != (theirs.tokens, theirs.ended):
            ids = source.as_read(source.subwords([text])[0][: source.longest_source])
            gap = _gap(source.model, sub, ids, ours, theirs, source.loaded.first_output)
            yield TokenDifference(text, ours.text, theirs.text, gap)


def _gap(
    model: Transformer, sub: SubNetwork, source: list[int], one: Hypothesis, other: Hypothesis, begins: int | None
) -> float:
    """Between the logits of the two tokens at the first position where they differ. `begins` is what outputs begin
    with besides BOS."""
    first, second = ([*each.tokens, Tokenizer.EOS] for each in (one, other))
    position = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    with torch.inference_mode():
        begin = [Tokenizer.BOS, *([] if begins is None else [begins])]
        prefix = torch.tensor([[*begin, *first[:position]]])
        logits_v = model(torch.tensor([source]), prefix, sub)[0, -1]
    return float((logits_v[first[position]] - logits_v[second[position]]).abs())


@dataclass(frozen=True)
class ExportRequest:
    """What to export. `quantization` is the compute type, or for anydepth the type of the stored weights."""

    translator: Translator
    depth: str
    quantization: str
    threads: int = 1
    default: str | None = None  # the default depth of a model folder with all of them

    @property
    def entry(self) -> MenuEntry:
        return self.translator.menu[self.depth]


def _to_anydepth(request: ExportRequest, folder: Path) -> Translator:
    """A model folder. Weights may be stored in half precision; they become float32 again when loaded."""
    translator, dtype = request.translator, STORED.get(request.quantization)
    if dtype is None:
        raise UserError(f"a model of anydepth is stored as {', '.join(STORED)}, not {request.quantization}")
    if translator.folder is None:
        raise UserError("only a model that was loaded from a folder can be exported")
    tensors = {name: value.detach() for name, value in translator.model.named_parameters()}
    config, menu, words = translator.model.config, translator.menu, translator.token_depths
    if request.depth != ALL:
        sub = request.entry.subnetwork
        config, tensors = cut(config, tensors, sub)
        menu, words = _single_entry_menu(request.entry, menu), words if sub.by_word else None
    elif request.default is not None:
        menu = menu.with_default(request.default)
    stored = {name: value.to(dtype) for name, value in tensors.items()}
    alone, languages, pairs = folder / "model", translator.languages, translator.pairs
    content = ModelContent(
        config,
        stored,
        translator.tokenizer,
        menu,
        languages,
        pairs,
        token_depths=words,
        lowercase_capitals=translator.loaded.lowercase_capitals,
    )
    save(alone, content, read_config(translator.folder).facts)
    for path in alone.iterdir():
        path.rename(folder / path.name)
    alone.rmdir()
    return Translator.load(folder, engine="torch", device="cpu")


def _single_entry_menu(entry: MenuEntry, menu: DepthMenu) -> DepthMenu:
    """The one depth, whose layers are now all of the model; its measurements stay true."""
    sub = entry.subnetwork
    layers = tuple(range(len(sub.encoder))), tuple(range(len(sub.decoder)))
    alone = SubNetwork(*layers, sub.encoder_weights, sub.decoder_weights, sub.by_word)
    return DepthMenu([MenuEntry(alone.name, alone, entry.cost, entry.quality)], menu.measured_on)


def _to_ctranslate2(request: ExportRequest, folder: Path) -> Translator:
    require("ctranslate2", "ctranslate2")
    from anydepth.engines.ctranslate2 import COMPUTE_TYPES, CTranslate2Engine, convert, token_names, write

    if request.quantization not in COMPUTE_TYPES:
        raise UserError(f"CTranslate2 has no compute type {request.quantization}; it has: {', '.join(COMPUTE_TYPES)}")
    translator, sub = request.translator, request.entry.subnetwork
    names = token_names(translator.tokenizer)
    write(convert(translator.model, sub, names), folder, request.quantization, Shortlist.find(translator.loaded), names)
    engine = CTranslate2Engine(translator.loaded, request.threads, request.quantization)
    engine.take(sub, folder)
    return translator.on(engine)


def _to_onnx(request: ExportRequest, folder: Path) -> Translator:
    require("onnxscript", "onnx")
    require("onnxruntime", "onnx")
    from anydepth.engines.onnx import OnnxEngine, write_onnx

    if request.quantization != "float32":
        raise UserError(f"ONNX is exported in float32, not {request.quantization}")
    sub = request.entry.subnetwork
    write_onnx(request.translator.model, sub, folder)
    return request.translator.on(OnnxEngine(sub, folder, request.threads))


def _to_transformers(request: ExportRequest, folder: Path) -> Translator:
    require("transformers", "bert")
    from anydepth.export.to_transformers import export_transformers

    if request.quantization != "float32":
        raise UserError(f"models for transformers are exported in float32, not {request.quantization}")
    return request.translator.on(export_transformers(request.translator, request.entry.subnetwork, folder))


FORMATS: dict[str, Callable[[ExportRequest, Path], Translator]] = {
    "ctranslate2": _to_ctranslate2,
    "onnx": _to_onnx,
    "anydepth": _to_anydepth,
    "transformers": _to_transformers,
}


def export(request: ExportRequest, to: str, out: Path, sample: SampleText) -> ExportCheck:
    """Write an export and check it on the sample; if it does not translate as its source does, nothing is kept."""
    if to not in FORMATS:
        raise UserError(f"there is no format {to!r}; choose one of {', '.join([*FORMATS, 'runtime', 'web'])}")
    if request.depth == ALL and to != "anydepth":
        raise UserError(f"{to} has one depth per model: name one, such as {request.translator.menu.deepest.name}")
    check_out(out, request.translator)
    with atomic_folder(out.resolve()) as folder:
        exported = FORMATS[to](request, folder)
        result = _check_worst_depth(request, exported, sample)
        if request.quantization == "float32" and result.wrong:
            one = result.wrong[0]
            raise UserError(
                f"the export does not translate as its source: {one.source!r} became {one.found!r}, not "
                f"{one.expected!r}; nothing was written: please report this"
            )
        _add_our_files(request, to, folder, sample.sources[0] if sample.in_model else "...")
    return result


def _check_worst_depth(request: ExportRequest, exported: Translator, sample: SampleText) -> ExportCheck:
    """Of all depths and language pairs, the one with the most differences."""
    if request.depth != ALL:
        there = request.depth if request.depth in exported.menu.names else exported.menu.default.name
        return check_export(request.translator, exported, request.depth, there, sample)
    both = zip(request.translator.choices, exported.choices, strict=True)
    checks = [check_export(before, after, name, name, sample) for before, after in both for name in before.menu.names]
    return min(checks, key=lambda one: (-len(one.wrong), one.same))


def _add_our_files(request: ExportRequest, to: str, folder: Path, example: str) -> None:
    """Where it comes from; and what another engine's folder lacks: the tokenizer and a README."""
    translator = request.translator
    record: dict[str, Any] = {
        "made_by": f"anydepth {__version__}",
        "format": to,
        "quantization": request.quantization,
        "depth": request.depth,
        "languages": list(translator.languages),
        "longest": translator.model.config.max_length,
        **({"tag": translator.tag} if translator.tag else {}),
        **({"shortlist": True} if (folder / VMAP).is_file() else {}),
        "source_model": translator.fingerprint,
        "facts": {} if translator.folder is None else read_config(translator.folder).facts,
    }
    (folder / MARK).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    own = translator.folder and translator.folder / SAMPLE_FILE
    if own and own.is_file() and to == "anydepth":
        shutil.copy(own, folder / SAMPLE_FILE)
    if to != "anydepth":
        if to != "transformers":  # which has its own files
            (folder / translator.tokenizer.file_name).write_bytes(translator.tokenizer.to_bytes())
        (folder / "README.md").write_text(_make_card(record, request.entry, example), "utf-8")


def check_out(out: Path, model: TextModel) -> None:
    """Only an earlier export may be replaced, never the model itself."""
    if out.resolve() in (Path.cwd(), *Path.cwd().parents):
        raise UserError(f"{out} is the current folder: choose a new one")
    source = model.folder and model.folder.resolve()
    if source and (out.resolve() == source or out.resolve() in source.parents or source in out.resolve().parents):
        raise UserError(f"{out} is where the model itself is: choose another folder")
    if out.is_dir() and not any(out.iterdir()):
        return
    if out.exists() and not (out / MARK).is_file():
        raise UserError(f"{out} exists already and is not an earlier export: choose another folder")


def require(package: str, extra: str) -> None:
    if find_spec(package) is None:
        raise UserError(f"{package} is not installed: pip install 'anydepth[{extra}]'")


CTRANSLATE2_PROGRAM = """import ctranslate2
import sentencepiece

tokenizer = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
model = ctranslate2.Translator(".", inter_threads=2, intra_threads=1)
text = {text}
pieces = {tag}tokenizer.encode(text, out_type=str)  # at most {longest}: divide longer texts into sentences
limit = min(2 * len(pieces) + 12, {longest})
best = model.translate_batch([pieces], beam_size=1, max_input_length=0, max_decoding_length=limit)[0].hypotheses[0]
print(tokenizer.decode(best))"""

ONNX_PROGRAM = """import numpy as np
import onnxruntime
import sentencepiece

tokenizer = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")
encoder, decoder = (onnxruntime.InferenceSession(name) for name in ("encoder.onnx", "decoder.onnx"))
text = {text}
source = np.array([{tag}tokenizer.encode(text) + [tokenizer.eos_id()]])  # at most {longest}: divide longer texts
mask = np.ones(source.shape, bool)  # False where shorter sentences of a batch are padded
(memory,) = encoder.run(None, {{"source_ids": source, "source_mask": mask}})
layers, batch, heads, _, width = memory.shape
past = np.zeros((layers, batch, heads, 0, width), np.float32)
token, output = np.array([tokenizer.bos_id()]), []
for step in range(min(2 * source.shape[1] + 10, {longest})):
    logits, past = decoder.run(None, {{"token_ids": token, "memory": memory, "source_mask": mask, "past": past}})
    if step == 0:
        logits[:, tokenizer.eos_id()] = -np.inf  # no empty output
    token = logits.argmax(-1)
    if token[0] == tokenizer.eos_id():
        break
    output.append(int(token[0]))
print(tokenizer.decode(output))"""

TRANSFORMERS_PROGRAM = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained(".")
model = AutoModelForSeq2SeqLM.from_pretrained(".")
texts = [{text}]  # at most {longest} subwords each: divide longer texts into sentences
batch = tokenizer(texts, return_tensors="pt", padding=True)
outputs = model.generate(**batch)
print(*tokenizer.batch_decode(outputs, skip_special_tokens=True), sep="\\n")"""

VMAP_NOTE = (
    "`vmap.txt` is a lexical shortlist. With `use_vmap=True`, `translate_batch` computes only the outputs it lists "
    "for the batch: faster, at nearly the same quality."
)
PROGRAMS = {
    "ctranslate2": (CTRANSLATE2_PROGRAM, "ctranslate2 sentencepiece"),
    "onnx": (ONNX_PROGRAM, "onnxruntime sentencepiece numpy"),
    "transformers": (TRANSFORMERS_PROGRAM, "transformers sentencepiece torch"),
}
TAG_CODE = {"ctranslate2": "['{tag}'] + ", "onnx": "[tokenizer.piece_to_id('{tag}')] + ", "transformers": ""}


def _make_card(record: dict[str, Any], entry: MenuEntry, example: str) -> str:
    """`record` is the content of export.json; `example` a sentence for the program to translate."""
    source, target = record["languages"]
    program, packages = PROGRAMS[record["format"]]
    tag = TAG_CODE[record["format"]].format(tag=record["tag"]) if "tag" in record else ""
    facts, text = record["facts"], json.dumps(example, ensure_ascii=False)
    data = [f"- {name.replace('_', ' ')}: {value}" for name, value in facts.get("data", {}).items()]
    figures = {
        "BLEU": entry.quality.get("bleu"),
        "chrF": entry.quality.get("chrf"),
    }
    measured = ", ".join(f"{name} {value:.1f}" for name, value in figures.items() if value is not None)
    head = {"language": [source, target], "pipeline_tag": "translation", "tags": ["translation", record["format"]]}
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# {source} to {target}, depth {record['depth']}, for {record['format']}",
        f"Weights are {record['quantization']}. Exported by {record['made_by']}"
        + (f"; before that, the model had {measured} at this depth." if measured else "."),
        *([facts["about"]["text"]] if "about" in facts else []),
        f"Run it in this folder, with `pip install {packages}`:",
        f"```python\n{program.format(text=text, tag=tag, longest=record['longest'])}\n```",
        *([VMAP_NOTE] if record.get("shortlist") else []),
        "## Data",
        "\n".join(data) or "Not recorded.",
    ]
    return "\n\n".join(parts) + "\n"
