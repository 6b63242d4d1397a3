"""The Translator: texts in, texts out, at any depth of the menu."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from copy import copy
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from anydepth.data import Tokenizer
from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.infer.decoding import Candidate
from anydepth.infer.engine import Engine, SearchBatch, TorchEngine
from anydepth.infer.hypothesis import Hypothesis, TooLongError
from anydepth.infer.languages import LanguagePair, ambiguous, differ, encoder_alone, matching
from anydepth.infer.loaded import LoadedModel
from anydepth.infer.options import TranslationOptions
from anydepth.model import Transformer
from anydepth.selectors import Selector
from anydepth.selectors.budget import within_budget
from anydepth.selectors.learned import LearnedSelector
from anydepth.word_depths.table import TokenDepths

AUTO = "auto"
Depth = str | Sequence[str] | Selector | None


class Translator(LoadedModel):
    """A model that translates, or an encoder alone. `anydepth.load` makes one from a model folder.

    `pairs` are given where it has several, and `tag` where its sources begin with one; `between` chooses a pair.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        menu: DepthMenu,
        languages: tuple[str, str] = ("source", "target"),
        folder: Path | None = None,
        find_selector: Callable[[], LearnedSelector | None] = lambda: None,
        pairs: Sequence[LanguagePair] = (),
        tag: str | None = None,
        token_depths: TokenDepths | None = None,
    ) -> None:
        super().__init__(model, tokenizer, menu, folder, token_depths)
        self.languages, self._find_selector = languages, find_selector
        self.pairs = tuple(pairs) or (LanguagePair(*languages, tag),)
        self.tag = tag
        self.engine: Engine = TorchEngine(model)
        self.pair: str | None = None  # the name of the one that was chosen among several

    def between(self, source: str | None = None, target: str | None = None) -> "Translator":
        """The same model for one of its language pairs: with the depths of that, under short names, and its tag.

        Where it does not matter which one a text is of, as in a model of one pair, there is nothing to choose.
        """
        found = matching(self.pairs, source, target, self.translates)
        if len(found) > 1 and self.must_choose:
            raise ambiguous(found)
        if len(found) > 1 or len(self.pairs) == 1:
            return self
        chosen, (pair,) = copy(self), found
        chosen.menu, chosen.pairs, chosen.pair, chosen.tag = self.menu.of_pair(pair.name), (pair,), pair.name, pair.tag
        chosen.languages = (pair.source, pair.target)
        return chosen

    def on(self, engine: Engine) -> "Translator":
        """The same model run by another engine."""
        moved = copy(self)
        moved.engine = engine
        return moved

    @property
    def translates(self) -> bool:
        """Or is an encoder alone."""
        return self.model.config.decoder_layers > 0

    @property
    def must_choose(self) -> bool:
        """Whether it can translate nothing before a language pair is chosen."""
        return differ(self.pairs, self.menu)

    @property
    def choices(self) -> "list[Translator]":
        """Of a model that asks for a language pair each; else itself."""
        return [self.between(pair.source, pair.target) for pair in self.pairs] if self.must_choose else [self]

    @property
    def why_no_selector(self) -> str | None:
        """If none can be trained for it, the reason."""
        weighted = [entry.name for entry in self.menu if entry.subnetwork.is_weighted]
        if not self.translates:
            return "this model is an encoder alone: a selector is for models that translate"
        if len(self.menu) == 1:
            return f"this model has one depth only, {self.menu.deepest.name}: there is nothing to choose"
        if self.must_choose or self.tag is not None or any(entry.pair for entry in self.menu.whole):
            return "a selector cannot be trained for a model of several language pairs yet: name a depth instead"
        if any(entry.subnetwork.by_word for entry in self.menu):
            return "a selector cannot be trained where each word has its own depth: name a depth instead"
        if weighted:
            return (
                f"a selector cannot be trained for depths whose layers have weights, such as {weighted[0]}: "
                "it is for models with several plain depths, such as tied-multi"
            )
        return None

    @cached_property
    def selector(self) -> LearnedSelector | None:
        """Its own, behind `auto`."""
        return self._find_selector()

    def translate(self, texts: Sequence[str], **options: Any) -> list[str]:
        """The best translation of each text; options as for `hypotheses`."""
        return [best.text for best, *_ in self.hypotheses(texts, **{"scores": False, **options})]

    def hypotheses(self, texts: Sequence[str], *, depth: Depth = None, **options: Any) -> list[list[Hypothesis]]:
        """The `nbest` best translations of each text, in order; the options are those of `TranslationOptions`.

        `depth` is an entry of the menu, such as "6-2"; one for each text; a Selector; "auto" for the model's own
        selector; None is the menu's default.
        """
        checked = TranslationOptions(**options)
        self._check_can_translate()
        self._check_depth(depth)
        self._word_depths(checked)
        sources = self._encode(texts, checked)
        found = [[Hypothesis("", (), 0.0)] for _ in texts]
        for name, group in self._grouped(depth, _waiting(sources), sources).items():
            for i, (hypotheses,) in self._search([name], group, sources, checked):
                found[i] = hypotheses
        return found

    def every_depth(
        self, texts: Sequence[str], *, depths: Sequence[str] | None = None, **options: Any
    ) -> dict[str, list[list[Hypothesis]]]:
        """What `hypotheses` gives for each of `depths`, by default all, in one pass that shares what it can."""
        checked = TranslationOptions(**options)
        self._check_can_translate()
        names = self.menu.names if depths is None else [self.menu[name].name for name in depths]
        sources = self._encode(texts, checked)
        found = {name: [[Hypothesis("", (), 0.0)] for _ in texts] for name in names}
        for i, of_each in self._search(names, _waiting(sources), sources, checked):
            for name, hypotheses in zip(names, of_each, strict=True):
                found[name][i] = hypotheses
        return found

    def _search(
        self, names: Sequence[str], group: list[int], sources: list[list[int]], options: TranslationOptions
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """For each text of the group its place, and its hypotheses at each of these depths."""
        subnetworks = [self.menu[name].subnetwork for name in names]
        depths = self._word_depths(options)
        batches = list(_batches(group, sources, options.batch_size))
        asked = (self._to_search([sources[i] for i in chosen], options) for chosen in batches)
        found = self.engine.search(subnetworks, asked, options.search, depths)
        for chosen, of_each in zip(batches, found, strict=True):
            for i, *candidates_of in zip(chosen, *of_each, strict=True):
                yield i, [self._hypotheses(one, name) for name, one in zip(names, candidates_of, strict=True)]
            options.ready(len(chosen))

    def _to_search(self, batch: list[list[int]], options: TranslationOptions) -> SearchBatch:
        longest = self.model.config.max_length
        return SearchBatch(batch, [options.longest_output(len(source), longest) for source in batch])

    def _word_depths(self, options: TranslationOptions) -> TokenDepths | None:
        if options.scale is None and options.lambda_ is None:
            return self.token_depths
        if self.token_depths is None:
            raise UserError("this model has no depths of words: scale and lambda have no effect, leave them out")
        return self.token_depths.changed(options.scale, options.lambda_)

    def within_budget(self, budget: str, *, beam: int = 1, batch_size: int = 32) -> Selector:
        """For `depth`: takes the best depth within a time per sentence, such as "20ms" or "50/s", on this machine."""
        return within_budget(self, budget, beam=beam, batch_size=batch_size)

    def _hypotheses(self, candidates: Iterable[Candidate], depth: str) -> list[Hypothesis]:
        return [Hypothesis(self.tokenizer.decode(c.tokens), c.tokens, c.score, c.ended, depth) for c in candidates]

    def _check_can_translate(self) -> None:
        if not self.translates:
            raise encoder_alone()
        if self.must_choose:
            raise ambiguous(self.pairs)

    def _check_depth(self, depth: Depth) -> None:
        """Refuse what cannot be, before anyone waits for it."""
        if depth == AUTO and self.selector is None:
            if self.why_no_selector is not None:
                raise UserError(f"`auto` needs a selector; {self.why_no_selector}")
            raise UserError("this model has no selector for `auto`: make one with `anydepth select`, or name a depth")
        if depth != AUTO and (isinstance(depth, str) or not isinstance(depth, Sequence | Selector)):
            self.engine.prepare([self.menu[depth].subnetwork])

    def _grouped(self, depth: Depth, waiting: list[int], sources: list[list[int]]) -> dict[str, list[int]]:
        """The texts that are to run at each depth."""
        if depth == AUTO:
            depth = self.selector
        if depth is None or isinstance(depth, str):
            return {self.menu[depth].name: waiting}
        if isinstance(depth, Selector):
            names = depth.choose([sources[i] for i in waiting]) if waiting else []
        elif len(depth) == len(sources):
            names = [depth[i] for i in waiting]
        else:
            raise UserError(f"there are {len(sources):,} texts but {len(depth):,} depths: give one for each text")
        groups: dict[str, list[int]] = {}
        for i, name in zip(waiting, names, strict=True):
            groups.setdefault(self.menu[name].name, []).append(i)
        return groups

    def stream(self, lines: Iterable[str], chunk: int = 2048, **options: Any) -> Iterator[list[Hypothesis]]:
        """Translate any number of lines with bounded memory, in order; options as for `hypotheses`.

        A line that is too long or broken ends the stream with its number, after everything before it is given out.
        """
        self.hypotheses([], **options)  # refuses bad options before it waits for a line
        lines, done = iter(lines), 0
        problem: UserError | None = None
        while problem is None:
            texts: list[str] = []
            try:
                texts.extend(islice(lines, chunk))
            except UserError as error:  # such as broken UTF-8: first what came before it
                problem = error
            if not texts and problem is None:
                return
            try:
                yield from self.hypotheses(texts, **options)
            except TooLongError as error:
                yield from self.hypotheses(texts[: error.number - 1], **options)
                problem = TooLongError(done + error.number, error.length, error.limit)
            done += len(texts)
        raise problem

    @property
    def longest_source(self) -> int:
        """Leaving room for the tag, too, where there is one."""
        return super().longest_source - (0 if self.tag is None else 1)

    def as_read(self, ids: Sequence[int]) -> list[int]:
        """An empty text has no tag: it needs no search."""
        if self.tag is None or not ids:
            return super().as_read(ids)
        tag = self.tokenizer.id_of(self.tag)
        if tag is None:
            raise UserError(f"the tokenizer does not know {self.tag}: take the one that the model was trained with")
        return super().as_read([tag, *ids])

    def _encode(self, texts: Sequence[str], options: TranslationOptions) -> list[list[int]]:
        """As the encoder reads them. Empty ones need no search: they are ready."""
        if isinstance(texts, str):
            raise UserError("translate takes a list of texts: write [text]")
        limit = min(options.max_source or self.longest_source, self.longest_source)
        sources = []
        whole = [options.source_prefix + text if text else "" for text in texts]
        for number, ids in enumerate(self.tokenizer.encode_many(whole), 1):
            if len(ids) > limit and not options.cut_long:
                raise TooLongError(number, len(ids), limit)
            sources.append(self.as_read(ids[:limit]))
        options.ready(len(sources) - len(_waiting(sources)))
        return sources


def _waiting(sources: list[list[int]]) -> list[int]:
    """All but empty lines, which stay empty."""
    return [i for i, source in enumerate(sources) if len(source) > 1]


def _batches(group: Iterable[int], sources: list[list[int]], size: int) -> Iterator[list[int]]:
    """The longest first, so that a batch holds sentences alike in length."""
    order = sorted(group, key=lambda i: -len(sources[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]
