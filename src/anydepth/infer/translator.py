"""The Translator: texts in, texts out, at any depth of the menu."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

import torch

from anydepth.depth import DepthMenu
from anydepth.errors import UserError
from anydepth.infer.decoding import Candidate, SearchOptions
from anydepth.infer.search import search, search_each
from anydepth.model import Transformer
from anydepth.select import Selector
from anydepth.select.budget import within_budget
from anydepth.select.learnt import LearntSelector
from anydepth.text import Tokenizer

AUTO = "auto"
Depth = str | Sequence[str] | Selector | None


@dataclass(frozen=True)
class Hypothesis:
    """One translation. The score is its log-probability over the length penalty.

    One that ran into the length limit has not ended. An empty text was translated at no depth.
    """

    text: str
    tokens: tuple[int, ...]
    score: float
    ended: bool = True
    depth: str = ""


class TooLongError(UserError):
    """A text is longer than the limit."""

    def __init__(self, number: int, length: int, limit: int) -> None:
        super().__init__(
            f"line {number:,} has {length:,} sub-words, the limit is {limit:,}: "
            "split it into sentences, or have long lines cut (cut_long=True, --cut-long)"
        )
        self.number, self.length, self.limit = number, length, limit


class Translator:
    """A model with its tokenizer and its depth menu. `anydepth.load` makes one from a model folder."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        menu: DepthMenu,
        languages: tuple[str, str] = ("source", "target"),
        folder: Path | None = None,
        find_selector: Callable[[], LearntSelector | None] = lambda: None,
    ) -> None:
        self.model, self.tokenizer, self.menu = model, tokenizer, menu
        self.languages, self.folder, self._find_selector = languages, folder, find_selector

    @cached_property
    def selector(self) -> LearntSelector | None:
        """Its own, behind `auto`."""
        return self._find_selector()

    def translate(self, texts: Sequence[str], **options: object) -> list[str]:
        """The best translation of each text; options as for `hypotheses`."""
        found = self.hypotheses(texts, scores=False, **options)  # type: ignore[arg-type]
        return [hypotheses[0].text for hypotheses in found]

    def hypotheses(
        self,
        texts: Sequence[str],
        *,
        depth: Depth = None,
        beam: int = 1,
        nbest: int = 1,
        length_penalty: float = 0.6,
        batch_size: int = 32,
        max_length: int | None = None,
        max_source: int | None = None,
        cut_long: bool = False,
        source_prefix: str = "",
        scores: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The `nbest` best translations of each text, in order.

        depth          an entry of the menu, such as "6-2"; one for each text; a Selector; "auto" for the model's own
                       selector; None is the deepest
        max_length     longest output in sub-words; by default twice the source and 10 more
        max_source     longest source in sub-words; longer ones are refused, or cut if `cut_long`
        source_prefix  put before every text
        scores         without them greedy search is a little faster; a score is then not a number
        progress       called with the number of texts that have become ready
        """
        options = _search_options(texts, beam, nbest, length_penalty, batch_size, max_length, max_source, scores)
        self._check_depth(depth)
        sources = self._encode(texts, source_prefix, max_source, cut_long)
        waiting = [i for i in range(len(texts)) if len(sources[i]) > 1]  # an empty line stays empty
        found = [[Hypothesis("", (), 0.0)] for _ in texts]
        if progress:
            progress(len(texts) - len(waiting))
        for name, group in self._grouped(depth, waiting, sources).items():
            subnetwork = self.menu[name].subnetwork
            for chosen in _batches(group, sources, batch_size):
                batch = [sources[i] for i in chosen]
                limits = [self._limit(len(source), max_length) for source in batch]
                for i, candidates in zip(chosen, search(self.model, subnetwork, batch, limits, options), strict=True):
                    found[i] = self._hypotheses(candidates, name)
                if progress:
                    progress(len(chosen))
        return found

    def every_depth(
        self,
        texts: Sequence[str],
        *,
        depths: Sequence[str] | None = None,
        beam: int = 1,
        nbest: int = 1,
        length_penalty: float = 0.6,
        batch_size: int = 32,
        max_length: int | None = None,
        max_source: int | None = None,
        cut_long: bool = False,
        source_prefix: str = "",
        scores: bool = True,
        progress: Callable[[int], None] | None = None,
    ) -> dict[str, list[list[Hypothesis]]]:
        """What `hypotheses` gives for each of `depths`, by default all, in one pass that shares what it can."""
        options = _search_options(texts, beam, nbest, length_penalty, batch_size, max_length, max_source, scores)
        entries = list(self.menu) if depths is None else [self.menu[name] for name in depths]
        sources = self._encode(texts, source_prefix, max_source, cut_long)
        waiting = [i for i in range(len(texts)) if len(sources[i]) > 1]
        found = {entry.name: [[Hypothesis("", (), 0.0)] for _ in texts] for entry in entries}
        if progress:
            progress(len(texts) - len(waiting))
        for chosen in _batches(waiting, sources, batch_size):
            batch = [sources[i] for i in chosen]
            limits = [self._limit(len(source), max_length) for source in batch]
            of_each = search_each(self.model, [entry.subnetwork for entry in entries], batch, limits, options)
            for entry, candidates_of in zip(entries, of_each, strict=True):
                for i, candidates in zip(chosen, candidates_of, strict=True):
                    found[entry.name][i] = self._hypotheses(candidates, entry.name)
            if progress:
                progress(len(chosen))
        return found

    def within_budget(self, budget: str, *, beam: int = 1, batch_size: int = 32) -> Selector:
        """For `depth`: takes the best depth within a time per sentence, such as "20ms" or "50/s", on this machine."""
        return within_budget(self, budget, beam=beam, batch_size=batch_size)

    def _hypotheses(self, candidates: Iterable[Candidate], depth: str) -> list[Hypothesis]:
        return [Hypothesis(self.tokenizer.decode(c.tokens), c.tokens, c.score, c.ended, depth) for c in candidates]

    def _check_depth(self, depth: Depth) -> None:
        """Refuse what cannot be, before anyone waits for it."""
        if depth == AUTO and self.selector is None:
            raise UserError("this model has no selector for `auto`: make one with `anydepth select`, or name a depth")
        if depth != AUTO and (isinstance(depth, str) or not isinstance(depth, Sequence | Selector)):
            self.menu[depth]

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

    def stream(self, lines: Iterable[str], chunk: int = 2048, **options: object) -> Iterator[list[Hypothesis]]:
        """Translate any number of lines with bounded memory, in order; options as for `hypotheses`.

        A line that is too long or broken ends the stream with its number, after everything before it is given out.
        """
        self.hypotheses([], **options)  # type: ignore[arg-type]  # refuses bad options before it waits for a line
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
                yield from self.hypotheses(texts, **options)  # type: ignore[arg-type]
            except TooLongError as error:
                yield from self.hypotheses(texts[: error.number - 1], **options)  # type: ignore[arg-type]
                problem = TooLongError(done + error.number, error.length, error.limit)
            done += len(texts)
        raise problem

    @property
    def longest_source(self) -> int:
        """In sub-words."""
        return self.model.config.max_length - 1

    def _encode(self, texts: Sequence[str], prefix: str, max_source: int | None, cut_long: bool) -> list[list[int]]:
        limit = min(max_source or self.longest_source, self.longest_source)
        sources = []
        for number, ids in enumerate(self.tokenizer.encode_many([prefix + text if text else "" for text in texts]), 1):
            if len(ids) > limit and not cut_long:
                raise TooLongError(number, len(ids), limit)
            sources.append([*ids[:limit], Tokenizer.EOS])
        return sources

    def _limit(self, source_length: int, max_length: int | None) -> int:
        wanted = 2 * source_length + 10 if max_length is None else max_length
        return max(1, min(wanted, self.model.config.max_length))

    @cached_property
    def fingerprint(self) -> str:
        """A checksum of weights and tokenizer: two models with the same give the same output at the same layers."""
        digest = hashlib.sha256(self.tokenizer.to_bytes())
        config = self.model.config
        if (config.encoder_shared, config.decoder_shared) != ("none", "none"):
            digest.update(repr((config.encoder_pattern, config.decoder_pattern)).encode())
        for name, value in self.model.named_parameters():
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def parameters(self, depth: str | None = None) -> int:
        """How many parameters a depth uses, each counted once."""
        return sum(p.numel() for p in self.model.parameters_of(self.menu[depth].subnetwork))

    def bytes(self, depth: str | None = None) -> int:
        """How much memory those take."""
        return sum(p.numel() * p.element_size() for p in self.model.parameters_of(self.menu[depth].subnetwork))


def _search_options(
    texts: Sequence[str],
    beam: int,
    nbest: int,
    length_penalty: float,
    batch_size: int,
    max_length: int | None,
    max_source: int | None,
    scores: bool,
) -> SearchOptions:
    """Checked: callers pass on what users wrote."""
    if isinstance(texts, str):
        raise UserError("translate takes a list of texts: write [text]")
    if beam < 1 or batch_size < 1:
        raise UserError("beam and batch size must be at least 1")
    if not 1 <= nbest <= beam:
        raise UserError(f"nbest is {nbest} but the beam is {beam}: use 1 <= nbest <= beam")
    if not 0 <= length_penalty <= 10:
        raise UserError(f"the length penalty {length_penalty} is out of range: use 0 to 10")
    if min(max_length or 1, max_source or 1) < 1:
        raise UserError("the longest source and output must be at least 1")
    return SearchOptions(beam, nbest, length_penalty, scores=scores)


def _batches(group: Iterable[int], sources: list[list[int]], size: int) -> Iterator[list[int]]:
    """The longest first, so that a batch holds sentences alike in length."""
    order = sorted(group, key=lambda i: -len(sources[i]))
    for start in range(0, len(order), size):
        yield order[start : start + size]
