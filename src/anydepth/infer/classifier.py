"""The Classifier: texts in, labels out, at any depth of the menu; each word may have its own."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack, get_args, overload

from anydepth.artifact.model import LoadedModel, load_model
from anydepth.config.section import Special, Unseen
from anydepth.data.words import split_words, word_spans, words_of_pieces
from anydepth.depth import SubNetwork
from anydepth.engines.auto import make_classifier_engine
from anydepth.engines.base import Classified, ClassifierDepths, ClassifierEngine, ExitRule
from anydepth.errors import UserError
from anydepth.infer.classifier_budget import make_budget, time_depths
from anydepth.infer.options import Progress, check_progress
from anydepth.infer.text_model import (
    DEFERRED,
    TextModel,
    batches_by_length,
    check_texts,
    describe_depths,
    describe_engine,
    in_chunks,
    set_threads,
)
from anydepth.selectors import Selector
from anydepth.selectors.budget import BudgetSelector, parse_budget
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

    depth: str | Selector | None
    scale: float | None
    lambda_: float | None
    exit: str | None
    batch_size: int
    progress: Progress | None


class _Layers(NamedTuple):
    """The layers that run, and how deep each token goes where that is open."""

    sub: SubNetwork
    depths: ClassifierDepths


class Classifier(TextModel):
    """A model that classifies texts, and the engine that runs it. `Classifier.load` makes one from a model folder."""

    def __init__(self, loaded: LoadedModel, engine: ClassifierEngine) -> None:
        if loaded.kind != "classifier":
            raise UserError("this model does not classify texts: it has no labels")
        super().__init__(loaded)
        self.labels, self.max_tokens = loaded.labels, loaded.max_tokens
        self.engine = engine

    @classmethod
    def load(
        cls, path: Path | str, *, engine: str = "auto", device: str = "auto", threads: int | None = None
    ) -> "Classifier":
        """Load a model folder, the folder of a finished run, or a model file (`anydepth export --to runtime`).

        Args:
            path: The folder, or the file.
            engine: "native" (int8), "torch", or "auto", the faster of them that is here.
            device: "auto", "cpu" or "cuda".
            threads: CPU threads, by default all cores. PyTorch has one number of threads for the whole process.
        """
        set_threads(threads)
        loaded = load_model(path, device, defer=engine in DEFERRED)
        if loaded.kind != "classifier":
            raise UserError(f"{path} does not classify texts: give a model that was trained on labelled ones")
        return cls(loaded, make_classifier_engine(loaded, engine, threads))

    def __repr__(self) -> str:
        return f"Classifier({len(self.labels)} labels, {describe_depths(self.menu)}, {describe_engine(self.engine)})"

    def with_word_depths(
        self,
        table: WordDepths | None = None,
        depth: str | None = None,
        *,
        special: str | None = None,
        unseen: str | None = None,
    ) -> "Classifier":
        """The same model with another table of word depths, for use at `depth`, or another rule for what is no word or
        for unseen words; what is not given stays as in the model."""
        sub = self.menu[depth].subnetwork
        if not sub.by_word:
            raise UserError(f"at depth {sub.name} all words run all layers: word depths have no effect, leave them out")
        for name, value, allowed in (("special", special, get_args(Special)), ("unseen", unseen, get_args(Unseen))):
            if value is not None and value not in allowed:
                raise UserError(f"{name} is {value!r}: use one of {', '.join(allowed)}")
        own = self.token_depths
        if table is None and own is None:
            raise UserError("this model has a halting unit: special and unseen have no effect, leave them out")
        rule: dict[str, Any] = {"special": special or (own.special if own else "deepest")}
        rule["unseen"] = unseen or (own.unseen if own else "deepest")
        if table is None and own is not None:
            given = replace(own, **rule)
        else:
            assert table is not None
            given = TokenDepths(table, self.tokenizer, **rule)
        given.check_layers(self.loaded.config.encoder_layers)
        return Classifier(replace(self.loaded, token_depths=given), self.engine)

    @property
    def depths(self) -> list[str]:
        """The names that `depth` can have: those of the menu and, where each word has its own depth, every exit."""
        return list(dict.fromkeys([*self.exits, *self.menu.names]))

    @property
    def exits(self) -> dict[str, SubNetwork]:
        """Where a whole text may leave: after the first layers, if the model was trained to classify there. Word depths
        train every exit, as words leave at each of them."""
        exits = [SubNetwork.prefix(layers, 0) for layers in range(1, self.loaded.config.encoder_layers + 1)]
        there = {entry.subnetwork for entry in self.menu}
        by_word = any(sub.by_word for sub in there)
        return {sub.name: sub for sub in exits if by_word or sub in there}

    def subnetwork(self, depth: str | None) -> SubNetwork:
        """The layers that a depth runs."""
        exits = self.exits
        if isinstance(depth, str) and depth.strip() in exits and depth.strip() not in self.menu.names:
            return exits[depth.strip()]
        return self.menu[depth].subnetwork

    def within_budget(self, budget: str, *, batch_size: int = 32) -> BudgetSelector:
        """For `depth`: takes the best depth within a time per text, such as "5ms" or "200/s", on this machine, where it
        times every depth for a second or two."""
        return make_budget(parse_budget(budget), time_depths(self, batch_size), self.menu)

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
        depth: str | Selector | None = None,
        scale: float | None = None,
        lambda_: float | None = None,
        exit: str | None = None,
        batch_size: int = 32,
        progress: Progress | None = None,
    ) -> Classification | list[Classification]:
        """The label of a text, or of each of several. A text that is too long is cut.

        Args:
            texts: A string, which gives one Classification; or an iterable of strings, which gives a list.
            depth: An entry of the menu, such as "6-0"; of a model whose words have their own depths also any exit, such
                as "4-0"; a Selector, such as `within_budget` makes. By default that of the menu.
            scale: Where each word has its own depth: all deeper or shallower, such as 2 or 0.5.
            lambda_: The same, for depths from reconstruction: larger is shallower.
            exit: Let whole texts leave early: "confidence:0.9", at the first exit that is so sure, or
                "patience:2", once so many exits in a row agree. For models that were trained at several exits.
            batch_size: Texts classified together.
            progress: Called with the number of texts that have become ready.
        """
        if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
            raise UserError(f"batch_size is {batch_size!r}: use a whole number, at least 1")
        check_progress(progress)
        if not isinstance(depth, Selector):
            self.check(depth, scale, lambda_, exit)
        sources = self.read([texts] if isinstance(texts, str) else texts)
        found: dict[int, Classification] = {}
        for name, group in _group(depth, sources).items():
            run = self._run(name, scale, lambda_, exit)
            for chosen in batches_by_length(group, sources, batch_size):
                results = self.engine.classify(run.sub, [sources[i] for i in chosen], run.depths)
                found.update(zip(chosen, map(self._classification, results), strict=True))
                if progress is not None:
                    progress(len(chosen))
        return found[0] if isinstance(texts, str) else [found[i] for i in range(len(sources))]

    def check(
        self,
        depth: str | None,
        scale: float | None = None,
        lambda_: float | None = None,
        exit: str | None = None,
    ) -> str:
        """Refuse what `classify` would refuse, before anyone waits for it; returns the name of the depth."""
        return self._run(depth, scale, lambda_, exit).sub.name

    def stream(
        self, lines: Iterable[str], chunk: int = 2048, **options: Unpack[ClassifyKeywords]
    ) -> Iterator[Classification]:
        """The same for any number of lines with bounded memory. Broken input ends it, after all that came before."""
        self.classify([], **options)  # refuses bad options before it waits for a line
        return in_chunks(lines, chunk, lambda texts: self.classify(texts, **options))

    def explain(
        self,
        text: str,
        *,
        depth: str | None = None,
        scale: float | None = None,
        lambda_: float | None = None,
        exit: str | None = None,
    ) -> tuple[Classification, list[WordWithDepth]]:
        """The label of a text, and its words with the depth of each; subwords of one word may differ only where the
        model itself decides, and the deepest then counts."""
        run = self._run(depth, scale, lambda_, exit)
        (source,) = self.read([text])
        (found,) = self.engine.classify(run.sub, [source], run.depths)
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

    def _run(self, depth: str | None, scale: float | None, lambda_: float | None, exit: str | None) -> _Layers:
        if exit is not None:
            if scale is not None or lambda_ is not None:
                raise UserError("an early exit is of whole texts: leave out scale and lambda, or the exit")
            return self._early_exit(depth, exit)
        sub = self.subnetwork(depth)
        if not sub.by_word:
            if scale is not None or lambda_ is not None:
                raise UserError(f"at depth {sub.name} all words run all layers: scale and lambda have no effect")
            return _Layers(sub, ClassifierDepths())
        if self.token_depths is not None:
            return _Layers(sub, ClassifierDepths(self.token_depths.changed(scale, lambda_)))
        if lambda_ is not None:
            raise UserError("this model has a halting unit and no lambda: use scale")
        factor = 1.0 if scale is None else scale
        if not 0 < factor < float("inf"):
            raise UserError(f"depths cannot be scaled by {factor}: give a number above 0, such as 0.5 or 2")
        return _Layers(sub, ClassifierDepths(halting_scale=factor))

    def _early_exit(self, depth: str | None, exit: str) -> _Layers:
        """From the exits up to a depth, by default the deepest."""
        exits, rule = self.exits, ExitRule.parse(exit)
        if len(exits) < 2:
            raise UserError(
                "this model was trained to classify at one depth alone: for early exits train one with the objective "
                "tied-multi or halting"
            )
        sub = list(exits.values())[-1] if depth is None else self.subnetwork(depth)
        if sub.name not in exits:
            raise UserError(
                f"at depth {sub.name} there are no exits of whole texts: leave out the depth, or give one of "
                f"{', '.join(exits)}"
            )
        allowed = tuple(len(one.encoder) for one in exits.values() if len(one.encoder) <= len(sub.encoder))
        return _Layers(sub, ClassifierDepths(exit_rule=replace(rule, exits=allowed)))

    def _classification(self, found: Classified) -> Classification:
        row, depths = found
        best = max(range(len(row)), key=row.__getitem__)
        mean, total = float(depths.mean()), int(depths.sum())
        return Classification(self.labels[best], row[best], mean, total, len(depths), tuple(row))


def _group(depth: str | Selector | None, sources: Sequence[list[int]]) -> dict[str | None, list[int]]:
    """Which texts run at each depth."""
    if not isinstance(depth, Selector):
        return {depth: list(range(len(sources)))}
    groups: dict[str | None, list[int]] = {}
    for number, name in enumerate(depth.choose(sources) if sources else []):
        groups.setdefault(name, []).append(number)
    return groups


def _as_written(text: str, names: Sequence[str]) -> list[str] | None:
    """The words as the text has them, each with the spaces before it; None if the tokenizer reads other words."""
    if split_words(text)[: len(names)] != list(names):
        return None
    ends = [0, *(end for _, end in word_spans(text))]
    return [text[start:end] for start, end in pairwise(ends)]
