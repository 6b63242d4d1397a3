"""The Translator: texts in, texts out, at any depth of the menu."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from anydepth.artifact import bundled_model
from anydepth.artifact.model import ENCODER_ALONE, LoadedModel, ambiguous_pair, load_model
from anydepth.data.capitals import is_in_capitals, to_capitals, to_sentence_case
from anydepth.depth import DepthMenu
from anydepth.engines.auto import EngineOptions, make_engine
from anydepth.engines.base import Candidate, Engine, ExitRule, SearchBatch
from anydepth.errors import UserError
from anydepth.infer.options import AUTO, Depth, HypothesesKeywords, Progress, TranslateKeywords, TranslationOptions
from anydepth.infer.text_model import (
    DEFERRED,
    TextModel,
    TooLongError,
    batches_by_length,
    check_texts,
    describe_depths,
    describe_engine,
    in_chunks,
    set_threads,
)
from anydepth.selectors import Selector

if TYPE_CHECKING:
    from anydepth.selectors.learned import LearnedSelector
    from anydepth.selectors.promise import Promise, TextCheck
    from anydepth.word_depths.table import TokenDepths


@dataclass(frozen=True)
class Hypothesis:
    """One translation. The score is its log-probability over the length penalty.

    One that ran into the length limit has not ended. An empty text was translated at no depth. `decoder_layers` is the
    mean of its tokens, which have fewer than the depth with an exit rule.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    ended: bool = True
    depth: str = ""
    decoder_layers: float = 0.0


class Translator(TextModel):
    """A model that translates, and the engine that runs it. `Translator.load` makes one from a model folder."""

    def __init__(self, loaded: LoadedModel, engine: Engine) -> None:
        if loaded.kind == "classifier":
            raise UserError("this model classifies texts: use Classifier")
        if loaded.kind == "encoder":
            raise UserError(ENCODER_ALONE)
        super().__init__(loaded)
        self.languages, self.pairs = loaded.languages, loaded.pairs
        self.pair, self.tag = loaded.pair, loaded.tag
        self.engine = engine

    @classmethod
    def load(
        cls,
        path: Path | str | None = None,
        *,
        engine: str = "auto",
        device: str = "auto",
        threads: int | None = None,
        quantize: str | None = None,
        speculate: bool = False,
        shortlist: bool | None = None,
        source_language: str | None = None,
        target_language: str | None = None,
    ) -> "Translator":
        """Load a model folder, the folder of a finished run, or a model file (`anydepth export --to runtime`).

        By default it is the bundled model, Portuguese to English.

        Args:
            path: The folder, or the file.
            engine: "native" (int8), "ctranslate2", "torch", or "auto", the fastest that is here.
            device: "auto", "cpu" or "cuda".
            threads: CPU threads, by default all cores. PyTorch has one number of threads for the whole process.
            quantize: The compute type: "int8" on the native engine, "int8", "float32" or another of CTranslate2.
            speculate: On the native engine, the shallowest depth drafts and the asked one verifies: the same output,
                sooner, for texts that are translated one at a time (batch_size=1).
            shortlist: Search among the outputs of the model's lexical shortlist, which is faster. By default where the
                model has one, on the native engine.
            source_language: Of a model that has several, the one to translate from.
            target_language: Of a model that has several, the one to translate to.
        """
        set_threads(threads)
        folder = bundled_model() if path is None else path
        loaded = load_for_engine(folder, device, engine)
        if source_language is not None or target_language is not None:
            loaded = loaded.choose_pair(source_language, target_language)
        if loaded.kind == "encoder":
            raise UserError(ENCODER_ALONE)
        options = EngineOptions(threads, quantize, speculate, shortlist)
        return cls(loaded, make_engine(loaded, engine, options))

    def __repr__(self) -> str:
        pairs = ", ".join(pair.name for pair in self.pairs)
        return f"Translator({pairs}, {describe_depths(self.menu)}, {describe_engine(self.engine)})"

    def between(self, source: str | None = None, target: str | None = None) -> "Translator":
        """The same model for one of its language pairs, by the names of the languages; itself if it has one pair."""
        chosen = self.loaded.choose_pair(source, target)
        return self if chosen is self.loaded else Translator(chosen, self.engine)

    def on(self, engine: Engine) -> "Translator":
        """The same model run by another engine."""
        return Translator(self.loaded, engine)

    @property
    def must_choose(self) -> bool:
        """Whether it can translate nothing before a language pair is chosen."""
        return self.loaded.must_choose

    @property
    def choices(self) -> "list[Translator]":
        """Of a model that asks for a language pair each; else itself."""
        return [self.between(pair.source, pair.target) for pair in self.pairs] if self.must_choose else [self]

    @property
    def selector(self) -> "LearnedSelector | None":
        """Its own, behind depth="auto"; read when it is first asked for."""
        return self.loaded.selector

    @overload
    def translate(  # type: ignore[overload-overlap]  # a string is an iterable of strings, too
        self, texts: str, *, depth: Depth = None, **options: Unpack[TranslateKeywords]
    ) -> str: ...

    @overload
    def translate(
        self, texts: Iterable[str], *, depth: Depth = None, **options: Unpack[TranslateKeywords]
    ) -> list[str]: ...

    def translate(
        self,
        texts: str | Iterable[str],
        *,
        depth: Depth = None,
        beam: int = 1,
        length_penalty: float = 0.6,
        batch_size: int = 32,
        max_length: int | None = None,
        max_source: int | None = None,
        cut_long: bool = False,
        source_prefix: str = "",
        scale: float | None = None,
        lambda_: float | None = None,
        exit: str | ExitRule | None = None,
        keep: str | float | None = None,
        progress: Progress | None = None,
    ) -> str | list[str]:
        """The best translation of a text, or of each of several.

        Args:
            texts: A string, which gives a string; or an iterable of strings, which gives a list.
            depth: An entry of the menu, such as "6-2"; one for each text; "auto" for the model's own selector; any
                other Selector. By default that of the menu.
            beam: Beam size; 1 is greedy search.
            length_penalty: GNMT's, from 0 to 10, used with a beam.
            batch_size: Texts decoded together.
            max_length: Longest output in subwords; by default twice the source and 10 more.
            max_source: Longest source in subwords; by default what the model takes.
            cut_long: Cut texts that are too long instead of refusing them.
            source_prefix: Put before every text.
            scale: Where each word has its own depth: all deeper or shallower, such as 2 or 0.5.
            lambda_: The same, for depths from reconstruction: larger is shallower.
            exit: Let tokens leave the decoder early, at the first exit that is sure enough: "margin:2", where the best
                logit is so far above the second, "confidence:0.9", where the best token is so probable, or
                "patience:2", once so many exits in a row agree. For models trained at several decoder depths.
            keep: The same, by the rule that `anydepth calibrate --keep` has found: such a share of texts, as "99%" or
                0.99, is that of the full depth, or nearly so. "100%" is the full depth.
            progress: Called with the number of texts that have become ready.
        """
        options = TranslationOptions(
            beam=beam,
            length_penalty=length_penalty,
            batch_size=batch_size,
            max_length=max_length,
            max_source=max_source,
            cut_long=cut_long,
            source_prefix=source_prefix,
            scores=False,
            scale=scale,
            lambda_=lambda_,
            exit=exit,
            keep=keep,
            progress=progress,
        )
        found = [
            best.text for best, *_ in self._translate([texts] if isinstance(texts, str) else texts, depth, options)
        ]
        return found[0] if isinstance(texts, str) else found

    def hypotheses(
        self, texts: Iterable[str], *, depth: Depth = None, **options: Unpack[HypothesesKeywords]
    ) -> list[list[Hypothesis]]:
        """The `nbest` best translations of each text, in order, with their scores.

        Arguments as for `translate`; besides `nbest`, at most the beam, and `scores`, without which greedy search is a
        little faster.
        """
        return self._translate(texts, depth, TranslationOptions.check(options))

    def stream(
        self, lines: Iterable[str], chunk: int = 2048, *, depth: Depth = None, **options: Unpack[HypothesesKeywords]
    ) -> Iterator[list[Hypothesis]]:
        """The same for any number of lines with bounded memory, `chunk` lines at a time.

        A line that is too long or broken ends the stream with its number, after everything before it is given out.
        """
        checked, check = self._with_promise(depth, TranslationOptions.check(options))
        self._translate([], depth, checked)  # refuses bad options before it waits for a line
        found = in_chunks(lines, chunk, lambda texts: self._translate(texts, depth, checked, check))
        return found if check is None else check.over(found)

    def every_depth(
        self, texts: Iterable[str], *, depths: Sequence[str] | None = None, **options: Unpack[HypothesesKeywords]
    ) -> dict[str, list[list[Hypothesis]]]:
        """What `hypotheses` gives for each of `depths`, by default all, in one pass that shares what it can."""
        checked = TranslationOptions.check(options)
        if checked.exit is not None or checked.keep is not None:
            raise UserError("every_depth runs fixed depths: leave out exit and keep")
        self._check_pair()
        names = self.menu.names if depths is None else [self.menu[name].name for name in depths]
        sources, capitals = self._encode(texts, checked)
        found = {name: [[Hypothesis("", (), 0.0)] for _ in sources] for name in names}
        for i, of_each in self._search(names, _waiting(sources), sources, checked):
            for name, hypotheses in zip(names, of_each, strict=True):
                found[name][i] = _in_capitals(hypotheses) if i in capitals else hypotheses
        return found

    def within_budget(self, budget: str, *, beam: int = 1, batch_size: int = 32) -> Selector:
        """For `depth`: takes the best depth within a time per sentence, such as "20ms" or "50/s", on this machine."""
        from anydepth.selectors.budget import within_budget

        return within_budget(self, budget, beam=beam, batch_size=batch_size)

    def promise(
        self, keep: str | float, *, depth: str | None = None, beam: int = 1, length_penalty: float = 0.6
    ) -> "Promise | None":
        """What `keep` runs: the exit rule of a calibration that is strict enough, and what was measured of it. None is
        the full depth, for "100%".

        Raises:
            UserError: If `anydepth calibrate --keep` has not been run for this depth, beam and engine.
        """
        from anydepth.selectors.promise import find_for, parse_keep

        if self.engine.why_no_exits is not None and parse_keep(keep) < 1:
            raise self._no_exits()
        return find_for(self, parse_keep(keep), self.menu[depth].name, beam, length_penalty)

    def _with_promise(self, depth: Depth, options: TranslationOptions) -> "tuple[TranslationOptions, TextCheck | None]":
        """With the exit rule in place of `keep`, and what compares the texts with those of the calibration."""
        if options.keep is None:
            return options, None
        if (depth is not None and not isinstance(depth, str)) or depth == AUTO:
            raise UserError("a promise is for one depth: with keep, name the depth or leave it out")
        self._check_pair()
        found = self.promise(options.keep, depth=depth, beam=options.beam, length_penalty=options.length_penalty)
        if found is None or found.margin is None:
            return replace(options, keep=None), None
        from anydepth.selectors.promise import TextCheck

        rule = ExitRule("margin", found.margin, found.exits)
        return replace(options, keep=None, exit=rule), TextCheck(found)

    def _translate(
        self, texts: Iterable[str], depth: Depth, options: TranslationOptions, check: "TextCheck | None" = None
    ) -> list[list[Hypothesis]]:
        if options.keep is not None:
            options, own = self._with_promise(depth, options)
            texts = check_texts(texts)
            found = self._translate(texts, depth, options, own)
            if own is not None:
                own.finish()
            return found
        self._check_pair()
        if isinstance(depth, str) and depth == AUTO:
            if self.selector is None:
                raise self._no_selector()
            depth = self.selector
        elif isinstance(depth, str) or not isinstance(depth, Sequence | Selector):
            sub = self.menu[depth].subnetwork
            self.engine.prepare([sub])  # refuses what cannot be, before anyone waits for it
            if options.exit is not None and not self.menu.exits(sub):
                raise UserError(
                    f"at depth {sub.name} tokens cannot leave early: the model has no depth with fewer decoder layers "
                    "and the same encoder; leave out the exit, or give a deeper depth of a tied-multi model"
                )
        if options.exit is not None and self.engine.why_no_exits is not None:
            raise self._no_exits()
        self._word_depths(options)
        texts = check_texts(texts)
        sources, capitals = self._encode(texts, options)
        found = [[Hypothesis("", (), 0.0)] for _ in sources]
        for name, group in _group_by_depth(self.menu, depth, sources, _waiting(sources)).items():
            for i, (hypotheses,) in self._search([name], group, sources, options):
                found[i] = _in_capitals(hypotheses) if i in capitals else hypotheses
        if check is not None:
            for i in _waiting(sources):
                check.add(texts[i], len(sources[i]), found[i][0].decoder_layers)
        return found

    def _no_exits(self) -> UserError:
        return UserError(
            f"tokens cannot leave early here, as {self.engine.why_no_exits}: leave out the exit, or use "
            'engine="native" or engine="torch" without speculate'
        )

    def _no_selector(self) -> UserError:
        reason = self.loaded.why_no_selector()
        if reason is not None:
            return UserError(f"`auto` needs a selector; {reason}")
        return UserError("this model has no selector for `auto`: make one with `anydepth select`, or name a depth")

    def _check_pair(self) -> None:
        if self.must_choose:
            raise ambiguous_pair(self.pairs)

    def _word_depths(self, options: TranslationOptions) -> "TokenDepths | None":
        if options.scale is None and options.lambda_ is None:
            return self.token_depths
        if self.token_depths is None:
            raise UserError("this model has no depths of words: scale and lambda have no effect, leave them out")
        return self.token_depths.changed(options.scale, options.lambda_)

    def subwords(self, texts: Sequence[str]) -> list[list[int]]:
        """Of each text, without tag and EOS. With `data.lowercase_capitals` a text in capitals is read in lowercase."""
        return self.tokenizer.encode_many([to_sentence_case(one) if self._is_lowered(one) else one for one in texts])

    def _is_lowered(self, text: str) -> bool:
        return self.loaded.lowercase_capitals and is_in_capitals(text)

    def _encode(self, texts: Iterable[str], options: TranslationOptions) -> tuple[list[list[int]], set[int]]:
        """As the encoder reads them, and which of them were in capitals. Empty ones need no search: they are ready."""
        limit = min(options.max_source or self.longest_source, self.longest_source)
        sources, given = [], check_texts(texts)
        capitals = {i for i, text in enumerate(given) if self._is_lowered(text)}
        for i in capitals:
            given[i] = to_sentence_case(given[i])
        whole = [options.source_prefix + text if text else "" for text in given]
        for number, ids in enumerate(self.tokenizer.encode_many(whole), 1):
            if len(ids) > limit and not options.cut_long:
                raise TooLongError(number, len(ids), limit)
            sources.append(self.as_read(ids[:limit]))
        options.ready(len(sources) - len(_waiting(sources)))
        return sources, capitals

    def _search(
        self, names: Sequence[str], group: list[int], sources: list[list[int]], options: TranslationOptions
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        """For each text of the group its position, and its hypotheses at each of these depths."""
        subnetworks = [self.menu[name].subnetwork for name in names]
        first = self.loaded.first_output
        longest = self.loaded.config.max_length - (first is not None)
        batches = list(batches_by_length(group, sources, options.batch_size))
        asked = (
            SearchBatch(batch, [options.longest_output(len(source), longest) for source in batch])
            for batch in ([sources[i] for i in chosen] for chosen in batches)
        )
        exits = self.menu.exits(subnetworks[0]) if options.exit is not None else ()
        how = replace(options.search(exits), first=first)
        found = self.engine.search(subnetworks, asked, how, self._word_depths(options))
        for chosen, of_each in zip(batches, found, strict=True):
            for i, *candidates_of in zip(chosen, *of_each, strict=True):
                yield i, [self._hypotheses(one, name) for name, one in zip(names, candidates_of, strict=True)]
            options.ready(len(chosen))

    def _hypotheses(self, candidates: Iterable[Candidate], depth: str) -> list[Hypothesis]:
        layers = len(self.menu[depth].subnetwork.decoder)
        return [
            Hypothesis(
                self.tokenizer.decode(c.tokens),
                c.tokens,
                c.score,
                c.ended,
                depth,
                layers if c.layers is None else c.layers,
            )
            for c in candidates
        ]


def load_for_engine(path: Path | str, device: str, engine: str) -> LoadedModel:
    """A model that translates; its weights are read if the engine asks for them."""
    loaded = load_model(path, device, defer=engine in DEFERRED)
    if loaded.kind == "classifier":
        raise UserError(
            f"{path} classifies texts: use `anydepth classify`, `evaluate` or `explain`; in Python, Classifier.load"
        )
    return loaded


def on_engine(
    translator: Translator,
    name: str,
    threads: int | None = None,
    quantize: str | None = None,
    *,
    speculate: bool = False,
    shortlist: bool | None = None,
) -> Translator:
    """The same model run by the engine of this name; see `EngineOptions`."""
    options = EngineOptions(threads, quantize, speculate, shortlist)
    return translator.on(make_engine(translator.loaded, name, options))


def _group_by_depth(
    menu: DepthMenu, depth: Depth, sources: Sequence[list[int]], waiting: Sequence[int]
) -> dict[str, list[int]]:
    """Which of the texts that are `waiting` run at each depth."""
    if depth is None or isinstance(depth, str):
        return {menu[depth].name: list(waiting)}
    if isinstance(depth, Selector):
        names: Sequence[str] = depth.choose([sources[i] for i in waiting]) if waiting else []
        if len(names) != len(waiting):
            raise UserError(f"{depth!r} chose {len(names):,} depths for {len(waiting):,} texts: one for each is needed")
    elif len(depth) == len(sources):
        names = [depth[i] for i in waiting]
    else:
        raise UserError(_wrong_number(depth, len(sources), menu))
    groups: dict[str, list[int]] = {}
    for i, name in zip(waiting, names, strict=True):
        groups.setdefault(menu[name].name, []).append(i)
    return groups


def _wrong_number(depths: Sequence[object], texts: int, menu: DepthMenu) -> str:
    if len(depths) == 2 and all(isinstance(layers, int) for layers in depths):
        return f"{depths!r} is not a depth: write encoder-decoder, '{depths[0]}-{depths[1]}'"
    counts = f"{texts:,} text{'' if texts == 1 else 's'} but {len(depths):,} depth{'' if len(depths) == 1 else 's'}"
    return f"{counts}: give one for all, such as '{menu.default.name}', or one for each text"


def _in_capitals(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    return [replace(one, text=to_capitals(one.text)) for one in hypotheses]


def _waiting(sources: list[list[int]]) -> list[int]:
    """All but empty lines, which stay empty."""
    return [i for i, source in enumerate(sources) if len(source) > 1]
