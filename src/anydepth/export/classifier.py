"""Export of a model that classifies: a depth as ONNX or as a model folder of its own, or all depths in one file.

An export is checked as soon as it is written: it must find the labels of its source on a sample.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from anydepth import __version__
from anydepth.artifact.folder import WORD_DEPTHS, read_config
from anydepth.artifact.saving import ModelContent, save
from anydepth.data import Tokenizer
from anydepth.data.corpus import is_csv, read_labelled, read_lines
from anydepth.data.tokenizer import PretrainedTokenizer
from anydepth.depth import DepthMenu, MenuEntry, SubNetwork
from anydepth.engines.auto import make_classifier_engine
from anydepth.errors import UserError
from anydepth.export.export import MARK, STORED, check_out, require
from anydepth.export.runtime import check_file
from anydepth.export.sample import SampleText, find_sample
from anydepth.files import atomic_folder, checked_file
from anydepth.infer.classifier import Classification, Classifier
from anydepth.model.pruning import cut

FORMATS = ("onnx", "anydepth", "runtime")
CLOSE = 1e-3  # probabilities of an export in float32 are no further from those of its source


@dataclass(frozen=True)
class LabelComparison:
    """What two engines find at a depth: how many labels are the same, the largest difference of a probability, and,
    where the right labels are known, the accuracy of both in percent."""

    depth: str
    texts: int
    same: int
    furthest: float
    accuracy: tuple[float, float] | None

    @property
    def lost(self) -> float:
        """Points of accuracy; without labels, the share of other labels in percent."""
        if self.accuracy is None:
            return 100 * (1 - self.same / self.texts)
        return self.accuracy[0] - self.accuracy[1]


def compare_labels(
    expected: Classifier, found: Classifier, depth: str, sample: SampleText, found_depth: str | None = None
) -> LabelComparison:
    texts = sample.sources
    before, after = expected.classify(texts, depth=depth), found.classify(texts, depth=found_depth or depth)
    pairs = list(zip(before, after, strict=True))
    accuracy = None
    if sample.references is not None:
        accuracy = _accuracy(before, sample.references), _accuracy(after, sample.references)
    return LabelComparison(
        depth,
        len(texts),
        sum(one.label == other.label for one, other in pairs),
        max(float(np.abs(np.subtract(one.probabilities, other.probabilities)).max()) for one, other in pairs),
        accuracy,
    )


def _accuracy(found: list[Classification], labels: list[str]) -> float:
    return 100 * sum(one.label == label for one, label in zip(found, labels, strict=True)) / len(labels)


def find_texts(classifier: Classifier, given: Path, source: Path | None = None, size: int = 500) -> SampleText:
    """At most `size` texts, with their labels where these are known: of a file of labelled texts, or of plain ones."""
    if source is None:
        return find_sample(classifier, given, size=size)
    with_labels = is_csv(source) or "\t" in next(iter(read_lines(source)), "")
    if not with_labels:
        return find_sample(classifier, given, source, size=size)
    texts, labels = zip(*read_labelled(source), strict=True)
    return SampleText(list(texts[:size]), list(labels[:size]), source.name)


@dataclass(frozen=True)
class ClassifierExport:
    """What to export; `quantization` as for models that translate."""

    classifier: Classifier  # on torch
    depth: str
    quantization: str = "float32"
    threads: int = 1

    @property
    def sub(self) -> SubNetwork:
        return self.classifier.subnetwork(self.depth)


def export_classifier(request: ClassifierExport, to: str, out: Path, sample: SampleText) -> LabelComparison:
    """Write one depth; if it does not classify as its source does, nothing is kept."""
    if to not in WRITERS:
        raise UserError(f"{to} is for models that translate; this one classifies: use one of {', '.join(FORMATS)}")
    check_out(out, request.classifier)
    with atomic_folder(out.resolve()) as folder:
        exported = WRITERS[to](request, folder)
        there = request.depth if to == "onnx" else exported.menu.default.name
        result = compare_labels(request.classifier, exported, request.depth, sample, there)
        if request.quantization == "float32" and result.furthest > CLOSE:
            raise UserError(
                f"the export does not classify as its source: a probability is {result.furthest:.3f} from its own; "
                "nothing was written: please report this"
            )
        _add_our_files(request, to, folder, sample)
    return result


def export_file(
    classifier: Classifier, out: Path, sample: SampleText, threads: int, *, int4: bool = False
) -> list[LabelComparison]:
    """All depths in one file for the native engine, and what int8, or int4, costs at each. In int8 they must be the
    same to the bit from the file as from the model folder."""
    check_file(out)
    native = Classifier(classifier.loaded, make_classifier_engine(classifier.loaded, "native", threads))
    with checked_file(out) as written:
        written.write_bytes(build_classifier_file(classifier, int4=int4))
        exported = Classifier.load(written, engine="native", threads=threads)
        if int4:
            return [compare_labels(classifier, exported, depth, sample) for depth in native.depths]
        for depth in native.depths:
            if exported.classify(sample.sources, depth=depth) != native.classify(sample.sources, depth=depth):
                raise UserError(
                    f"the file does not classify as its source at depth {depth}; nothing was written: please report "
                    "this"
                )
    return [compare_labels(classifier, native, depth, sample) for depth in native.depths]


def build_classifier_file(classifier: Classifier, *, int4: bool = False) -> bytes:
    """All that is needed to classify: weights, tokenizer, labels, depths of words, the menu with its figures."""
    from anydepth.engines.native_format import packed

    loaded, folder = classifier.loaded, classifier.folder
    if folder is None:
        raise UserError("only a model that was loaded from a folder can be exported")
    header = {
        "made_by": f"anydepth {__version__}",
        "fingerprint": loaded.fingerprint,
        "config": json.loads((folder / "config.json").read_text("utf-8")),
        "depths": loaded.menu.whole.to_json(),
    }
    words = folder / WORD_DEPTHS
    depths = words.read_bytes() if words.is_file() else None
    return packed(loaded.arrays, header, loaded.tokenizer.to_bytes(), word_depths=depths, int4=int4)


def _to_onnx(request: ClassifierExport, folder: Path) -> Classifier:
    require("onnxscript", "onnx")
    require("onnxruntime", "onnx")
    from anydepth.engines.onnx import CLASSIFIER, OnnxClassifier, write_onnx_classifier

    if request.quantization != "float32":
        raise UserError(f"ONNX is exported in float32, not {request.quantization}")
    classifier, sub, path = request.classifier, request.sub, folder / CLASSIFIER
    write_onnx_classifier(classifier.model, sub, path, classifier.tokenizer)
    return Classifier(classifier.loaded, OnnxClassifier(sub, path, request.threads, classifier.tokenizer))


def _to_anydepth(request: ClassifierExport, folder: Path) -> Classifier:
    """A model folder with this depth alone. Weights may be stored in half precision; loaded they are float32 again."""
    classifier, sub, dtype = request.classifier, request.sub, STORED.get(request.quantization)
    if dtype is None:
        raise UserError(f"a model of anydepth is stored as {', '.join(STORED)}, not {request.quantization}")
    if classifier.folder is None:
        raise UserError("only a model that was loaded from a folder can be exported")
    tensors = {name: value.detach() for name, value in classifier.model.named_parameters()}
    config, tensors = cut(classifier.model.config, tensors, sub)
    words = classifier.token_depths if sub.by_word else None
    if config.halting and not sub.by_word:
        config = config.model_copy(update={"halting": False})
        tensors = {name: value for name, value in tensors.items() if not name.startswith("halting.")}
    alone = SubNetwork(tuple(range(len(sub.encoder))), (), sub.encoder_weights, None, sub.by_word)
    known = classifier.menu[request.depth] if request.depth in classifier.menu.names else MenuEntry(alone.name, alone)
    menu = DepthMenu([replace(known, name=alone.name, subnetwork=alone)], classifier.menu.measured_on)
    content = ModelContent(
        config,
        {name: value.to(dtype) for name, value in tensors.items()},
        classifier.tokenizer,
        menu,
        classifier.loaded.languages,
        labels=classifier.labels,
        token_depths=words,
        max_tokens=classifier.max_tokens,
    )
    place = folder / "model"
    save(place, content, read_config(classifier.folder).facts)
    for path in place.iterdir():
        path.rename(folder / path.name)
    place.rmdir()
    return Classifier.load(folder, engine="torch", device="cpu")


WRITERS: dict[str, Callable[[ClassifierExport, Path], Classifier]] = {"onnx": _to_onnx, "anydepth": _to_anydepth}


def _add_our_files(request: ClassifierExport, to: str, folder: Path, sample: SampleText) -> None:
    classifier = request.classifier
    record: dict[str, Any] = {
        "made_by": f"anydepth {__version__}",
        "format": to,
        "quantization": request.quantization,
        "depth": request.depth,
        "labels": list(classifier.labels),
        "source_model": classifier.fingerprint,
        "facts": {} if classifier.folder is None else read_config(classifier.folder).facts,
    }
    (folder / MARK).write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", "utf-8")
    if to == "onnx":
        (folder / classifier.tokenizer.file_name).write_bytes(classifier.tokenizer.to_bytes())
        (folder / "README.md").write_text(_make_card(record, classifier), "utf-8")


PROGRAM = """import numpy as np
import onnxruntime
{imported}

labels = {labels}
{tokenizer}
text = "..."
ids = [{opening}*{split}[:{longest}], {eos}]  # longer texts are cut
tokens = np.array([ids])
mask = np.ones_like(tokens)  # 0 where shorter texts of a batch are padded
(logits,) = onnxruntime.InferenceSession("model.onnx").run(None, {{"input_ids": tokens, "attention_mask": mask}})
shares = np.exp(logits[0] - logits[0].max())
best = int(logits[0].argmax())
print(labels[best], round(float(shares[best] / shares.sum()), 4))"""
SENTENCEPIECE = {
    "imported": "import sentencepiece",
    "tokenizer": 'tokenizer = sentencepiece.SentencePieceProcessor(model_file="tokenizer.model")',
    "split": "tokenizer.encode(text)",
}
TOKENIZERS = {
    "imported": "from tokenizers import Tokenizer",
    "tokenizer": 'tokenizer = Tokenizer.from_file("tokenizer.json")\ntokenizer.no_truncation()\n'
    "tokenizer.no_padding()\ntokenizer.encode_special_tokens = True",
    "split": "tokenizer.encode(text, add_special_tokens=False).ids",
}


def _make_card(record: dict[str, Any], classifier: Classifier) -> str:
    """`record` is the content of export.json."""
    tokenizer = classifier.tokenizer
    is_theirs = isinstance(tokenizer, PretrainedTokenizer)
    number = tokenizer.order.__getitem__ if isinstance(tokenizer, PretrainedTokenizer) else int
    program = PROGRAM.format(
        labels=json.dumps(record["labels"], ensure_ascii=False),
        opening="".join(f"{number(token)}, " for token in tokenizer.opening),
        longest=classifier.longest_source,
        eos=number(Tokenizer.EOS),
        **(TOKENIZERS if is_theirs else SENTENCEPIECE),
    )
    packages = f"onnxruntime numpy {'tokenizers' if is_theirs else 'sentencepiece'}"
    data = [f"- {name.replace('_', ' ')}: {value}" for name, value in record["facts"].get("data", {}).items()]
    head = {"pipeline_tag": "text-classification", "tags": ["text-classification", "onnx"]}
    parts = [
        f"---\n{yaml.safe_dump(head, sort_keys=False)}---",
        f"# Text classification, depth {record['depth']}, for onnx",
        f"Weights are {record['quantization']}. Exported by {record['made_by']}.",
        f"Run it in this folder, with `pip install {packages}`:",
        f"```python\n{program}\n```",
        "## Data",
        "\n".join(data) or "Not recorded.",
    ]
    return "\n\n".join(parts) + "\n"
