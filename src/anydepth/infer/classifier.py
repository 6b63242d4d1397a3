"""The Classifier: texts in, labels out, at any depth of the menu; each word may have its own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple, TypedDict, Unpack, overload

from anydepth.artifact.model import LoadedModel, load_model
from anydepth.data import alike
from anydepth.data.words import split_words, word_spans, words_of_pieces
from anydepth.depth import SubNetwork
from anydepth.engines.auto import make_classifier_engine
from anydepth.engines.base import Classified, ClassifierEngine
from anydepth.engines.torch import TorchEngine
from anydepth.errors import UserError
from anydepth.infer.options import Progress
from anydepth.infer.text_model import TextModel, check_texts, describe_depths, describe_engine, in_chunks, set_threads
from anydepth.word_depths.table import TokenDepths, WordDepths


@dataclass(frozen=True)
class Classification:
    """What a text was found to be. `depth` is the mean over its tokens, `computed` the layers that they ran in all."""

    label: str
    probability: float
    depth: float
    computed: int
    tokens: int
    probabilities: tuple[float, ...]  # of all labels, in their order


@dataclass(frozen=True)
class WordWithDepth:
    """A word as the text has it, with the spaces before it, and how deep it went."""

    text: str
    depth: int


class ClassifyKeywords(TypedDict, total=False):
    """The keyword arguments of `Classifier.classify`, where they are explained."""

    depth: str | None
    scale: float | None
    lambda_: float | None
    batch_size: int
    progress: Progress | None


class _WordDepths(NamedTuple):
    """How deep the words of a text go: by a table, or by the halting unit of the model times a scale."""

    table: TokenDepths | None = None
    halting_scale: float = 1.0


class Classifier(TextModel):
    """A model that classifies texts, and the engine that runs it. `Classifier.load` makes one from a model folder."""

    def __init__(self, loaded: LoadedModel, engine: ClassifierEngine | None = None) -> None:
        """By default on the torch engine."""
        if loaded.kind != "classifier":
            raise UserError("this model does not classify texts: it has no labels")
        super().__init__(loaded)
        self.labels, self.max_tokens = loaded.labels, loaded.max_tokens
        self.engine: ClassifierEngine = TorchEngine(loaded.model) if engine is None else engine

    @classmethod
    def load(
        cls, path: Path | str, *, engine: str = "auto", device: str = "auto", threads: int | None = None
    ) -> "Classifier":
        """Load a model folder, or the folder of a finished run.

        Args:
            path: The folder.
            engine: "auto" or "torch": the other engines take models that translate.
            device: "auto", "cpu" or "cuda".
            threads: CPU threads, by default all cores. PyTorch has one number of threads for the whole process.
        """
        set_threads(threads)
        loaded = load_model(path, device)
        if loaded.kind != "classifier":
            raise UserError(f"{path} does not classify texts: give a model that was trained on labelled ones")
        return cls(loaded, make_classifier_engine(loaded, engine))

    def __repr__(self) -> str:
        return f"Classifier({len(self.labels)} labels, {describe_depths(self.menu)}, {describe_engine(self.engine)})"

    def with_word_depths(self, table: WordDepths, depth: str | None = None) -> "Classifier":
        """The same model with other depths of words, for use at `depth`; what is no word keeps what the model's own
        rule says."""
        sub = self.menu[depth].subnetwork
        if not sub.by_word:
            raise UserError(f"at depth {sub.name} all words run all layers: word depths have no effect, leave them out")
        own = self.token_depths
        given = TokenDepths(table, self.tokenizer, own.special if own else "deepest")
        given.check_layers(self.model.config.encoder_layers)
        return Classifier(replace(self.loaded, token_depths=given), self.engine)

    @overload
    def classify(  # type: ignore[overload-overlap]  # a string is an iterable of strings, too
        self, texts: str, **options: Unpack[ClassifyKeywords]
    ) -> Classification: ...

    @overload
    def classify(self, texts: Iterable[str], **options: Unpack[ClassifyKeywords]) -> list[Classification]: ...

    def classify(
        self,
        texts: str | Iterable[str],
        *,
        depth: str | None = None,
        scale: float | None = None,
        lambda_: float | None = None,
        batch_size: int = 32,
        progress: Progress | None = None,
    ) -> Classification | list[Classification]:
        """The label of a text, or of each of several. A text that is too long is cut.

        Args:
            texts: A string, which gives one Classification; or an iterable of strings, which gives a list.
            depth: An entry of the menu, such as "6-0"; by default that of the menu.
            scale: Where each word has its own depth: all deeper or shallower, such as 2 or 0.5.
            lambda_: The same, for depths from reconstruction: larger is shallower.
            batch_size: Texts classified together.
            progress: Called with the number of texts that have become ready.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise UserError(f"batch_size is {batch_size!r}: use a whole number, at least 1")
        sub = self.menu[depth].subnetwork
        words = self._word_depths(sub, scale, lambda_)
        sources = self.read([texts] if isinstance(texts, str) else texts)
        found: dict[int, Classification] = {}
        for chosen in alike([len(source) for source in sources], batch_size):
            results = self.engine.classify(sub, [sources[i] for i in chosen], *words)
            found.update(zip(chosen, map(self._classification, results), strict=True))
            if progress is not None:
                progress(len(chosen))
        return found[0] if isinstance(texts, str) else [found[i] for i in range(len(sources))]

    def check_scale(self, depth: str | None, scale: float | None, lambda_: float | None = None) -> None:
        """Refuse what `classify` would refuse, before anyone waits for it."""
        self._word_depths(self.menu[depth].subnetwork, scale, lambda_)

    def stream(
        self, lines: Iterable[str], chunk: int = 2048, **options: Unpack[ClassifyKeywords]
    ) -> Iterator[Classification]:
        """The same for any number of lines with bounded memory. Broken input ends it, after all that came before."""
        self.classify([], **options)  # refuses bad options before it waits for a line
        return in_chunks(lines, chunk, lambda texts: self.classify(texts, **options))

    def explain(
        self, text: str, *, depth: str | None = None, scale: float | None = None, lambda_: float | None = None
    ) -> tuple[Classification, list[WordWithDepth]]:
        """The label of a text, and its words with the depth of each; subwords of one word may differ only where the
        model itself decides, and the deepest then counts."""
        sub = self.menu[depth].subnetwork
        (source,) = self.read([text])
        (found,) = self.engine.classify(sub, [source], *self._word_depths(sub, scale, lambda_))
        surfaces = self.tokenizer.surfaces(source)
        names, number_of = words_of_pieces(surfaces)
        parts: dict[int, list[int]] = {}
        for position, (token, number) in enumerate(zip(source, number_of, strict=True)):
            if token not in self.tokenizer.specials and number >= 0:
                parts.setdefault(number, []).append(position)
        written = _as_written(text, names)
        if written is None:
            written = ["".join(surfaces[i] for i in parts.get(number, ())) for number in range(len(names))]
        words: list[WordWithDepth] = []
        for number in range(len(names)):
            positions = parts.get(number)  # none if a subword of the word before is of this one too
            deepest = words[-1].depth if positions is None else int(max(found.depths[i] for i in positions))
            words.append(WordWithDepth(written[number], deepest))
        return self._classification(found), [word for word in words if word.text]

    def read(self, texts: Iterable[str]) -> list[list[int]]:
        """As the encoder reads them."""
        limit = self.longest_source
        return [self.as_read(ids[:limit]) for ids in self.tokenizer.encode_many(check_texts(texts))]

    def _word_depths(self, sub: SubNetwork, scale: float | None, lambda_: float | None) -> _WordDepths:
        if not sub.by_word:
            if scale is not None or lambda_ is not None:
                raise UserError(f"at depth {sub.name} all words run all layers: scale and lambda have no effect")
            return _WordDepths()
        if self.token_depths is not None:
            return _WordDepths(self.token_depths.changed(scale, lambda_))
        if lambda_ is not None:
            raise UserError("this model says itself how deep each word goes, and has no lambda: use scale")
        factor = 1.0 if scale is None else scale
        if not 0 < factor < float("inf"):
            raise UserError(f"depths cannot be scaled by {factor}: give a number above 0, such as 0.5 or 2")
        return _WordDepths(halting_scale=factor)

    def _classification(self, found: Classified) -> Classification:
        row, depths = found
        best = max(range(len(row)), key=row.__getitem__)
        mean, total = float(depths.mean()), int(depths.sum())
        return Classification(self.labels[best], row[best], mean, total, len(depths), tuple(row))


def _as_written(text: str, names: Sequence[str]) -> list[str] | None:
    """The words as the text has them, each with the spaces before it; None if the tokenizer reads other words."""
    if split_words(text)[: len(names)] != list(names):
        return None
    ends = [0, *(end for _, end in word_spans(text))]
    return [text[start:end] for start, end in pairwise(ends)]
