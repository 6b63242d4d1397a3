"""The Classifier: texts in, labels out, at any depth of the menu; each word may have its own.

Shapes: b batch, s length, c classes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anydepth.data import Tokenizer, alike, stacked
from anydepth.data.words import split_words, word_spans, words_of_pieces
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.infer.loaded import LoadedModel
from anydepth.model import Transformer
from anydepth.model.stack import EncoderDepths as Depths
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
class ExplainedWord:
    """A word as the text has it, with the spaces before it, and how deep it went."""

    text: str
    depth: int


class Classifier(LoadedModel):
    """A model that classifies texts. `anydepth.load` makes one from a model folder."""

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        menu: DepthMenu,
        labels: Sequence[str],
        folder: Path | None = None,
        token_depths: TokenDepths | None = None,
        max_tokens: int | None = None,
    ) -> None:
        super().__init__(model, tokenizer, menu, folder, token_depths)
        self.labels = tuple(labels)
        self.max_tokens = max_tokens  # at which texts were cut in training

    @property
    def longest_source(self) -> int:
        """No more than it has learnt to read."""
        longest = super().longest_source
        return longest if self.max_tokens is None else min(longest, self.max_tokens - len(self.tokenizer.opening))

    def take_depths(self, table: WordDepths, depth: str | None = None) -> None:
        """Other depths of words, for use at `depth`; what is no word keeps what the model's own rule says."""
        sub = self.menu[depth].subnetwork
        if not sub.by_word:
            raise UserError(
                f"at depth {sub.name} all words run all layers: leave out --word-depths, or --depth if given"
            )
        own = self.token_depths
        given = TokenDepths(table, self.tokenizer, own.special if own else "deepest")
        given.check_layers(self.model.config.encoder_layers)
        self.token_depths = given

    def classify(
        self,
        texts: Sequence[str],
        *,
        depth: str | None = None,
        scale: float | None = None,
        lambda_: float | None = None,
        batch_size: int = 32,
        progress: Callable[[int], None] = lambda count: None,
    ) -> list[Classification]:
        """The label of each text, in order. A text that is too long is cut.

        `depth` is an entry of the menu, such as "6-0". Where each word has its own, `scale` makes all of them deeper
        or shallower, and so does `lambda_` if they come from reconstruction; by default they are as in training.
        """
        if isinstance(texts, str):
            raise UserError("classify takes a list of texts: write [text]")
        if batch_size < 1:
            raise UserError("the batch size must be at least 1")
        sub = self.menu[depth].subnetwork
        chosen_depths = self._depths(sub, scale, lambda_)
        sources = self.read(texts)
        found: dict[int, Classification] = {}
        for chosen in alike([len(source) for source in sources], batch_size):
            run = self._run([sources[i] for i in chosen], sub, chosen_depths)
            found.update(zip(chosen, self._classifications(*run), strict=True))
            progress(len(chosen))
        return [found[i] for i in range(len(texts))]

    def check_scale(self, depth: str | None, scale: float | None, lambda_: float | None = None) -> None:
        """Refuse what `classify` would refuse, before anyone waits for it."""
        self._depths(self.menu[depth].subnetwork, scale, lambda_)

    def stream(
        self,
        lines: Iterable[str],
        chunk: int = 2048,
        *,
        depth: str | None = None,
        scale: float | None = None,
        lambda_: float | None = None,
        batch_size: int = 32,
    ) -> Iterator[Classification]:
        """The same for any number of lines, with bounded memory. Broken input ends it, after all that came before."""
        self.check_scale(depth, scale, lambda_)  # before it waits for a line
        lines = iter(lines)
        problem: UserError | None = None
        while problem is None:
            texts: list[str] = []
            try:
                texts.extend(islice(lines, chunk))
            except UserError as error:
                problem = error
            if not texts and problem is None:
                return
            yield from self.classify(texts, depth=depth, scale=scale, lambda_=lambda_, batch_size=batch_size)
        raise problem

    def explain(
        self, text: str, *, depth: str | None = None, scale: float | None = None, lambda_: float | None = None
    ) -> tuple[Classification, list[ExplainedWord]]:
        """The label of a text, and its words with the depth of each; sub-words of one word may differ only where the
        model itself decides, and the deepest then counts."""
        sub = self.menu[depth].subnetwork
        (source,) = self.read([text])
        logits_bc, (depths,) = self._run([source], sub, self._depths(sub, scale, lambda_))
        surfaces = self.tokenizer.surfaces(source)
        names, number_of = words_of_pieces(surfaces)
        parts: dict[int, list[int]] = {}
        for place, (token, number) in enumerate(zip(source, number_of, strict=True)):
            if token not in self.tokenizer.specials and number >= 0:
                parts.setdefault(number, []).append(place)
        written = _as_written(text, names)
        if written is None:
            written = ["".join(surfaces[i] for i in parts.get(number, ())) for number in range(len(names))]
        words: list[ExplainedWord] = []
        for number in range(len(names)):
            places = parts.get(number)  # none if a sub-word of the word before is of this one too
            deepest = words[-1].depth if places is None else int(max(depths[i] for i in places))
            words.append(ExplainedWord(written[number], deepest))
        return self._classifications(logits_bc, [depths])[0], [word for word in words if word.text]

    def read(self, texts: Sequence[str]) -> list[list[int]]:
        """As the encoder reads them."""
        limit = self.longest_source
        return [self.as_read(ids[:limit]) for ids in self.tokenizer.encode_many(texts)]

    def _depths(self, sub: SubNetwork, scale: float | None, lambda_: float | None) -> Callable[[Tensor], Depths]:
        """What says how deep each token of a batch goes, given its tokens."""
        if not sub.by_word:
            if scale is not None or lambda_ is not None:
                raise UserError(f"at depth {sub.name} all words run all layers: scale and lambda have no effect")
            return lambda source_bs: None
        if self.token_depths is not None:
            return self.token_depths.changed(scale, lambda_).tensor
        if lambda_ is not None:
            raise UserError("this model says itself how deep each word goes, and has no lambda: use scale")
        factor = 1.0 if scale is None else scale
        if not 0 < factor < float("inf"):
            raise UserError(f"depths cannot be scaled by {factor}: give a number above 0, such as 0.5 or 2")

        def halts(first_bsd: Tensor) -> Tensor:
            return torch.ceil(self.model.halts(first_bsd) * factor - 0.5).clamp(1, len(sub.encoder)).long()

        return lambda source_bs: halts

    @torch.inference_mode()
    def _run(
        self, sources: Sequence[list[int]], sub: SubNetwork, depths: Callable[[Tensor], Depths]
    ) -> tuple[Tensor, list[NDArray[np.int64]]]:
        """Logits [b, c], and the depth of each token of each text."""
        device, source_bs = next(self.model.parameters()).device, stacked(sources)
        longest = source_bs.shape[1]
        padding_bs = (source_bs == Tokenizer.PAD).to(device) if any(len(row) < longest for row in sources) else None
        states = self.model.encode(source_bs.to(device), sub, padding_bs, depths=depths(source_bs))
        logits_bc = self.model.output(self.model.read_out(states[-1], padding_bs))
        ran = states.depths
        if ran is None:
            ran = np.full((len(sources), longest), len(sub.encoder))
        return logits_bc, [ran[row, : len(source)] for row, source in enumerate(sources)]

    def _classifications(self, logits_bc: Tensor, depths: Sequence[NDArray[np.int64]]) -> list[Classification]:
        probabilities = torch.softmax(logits_bc.float(), dim=-1).tolist()
        found = []
        for row, of_tokens in zip(probabilities, depths, strict=True):
            best = max(range(len(row)), key=row.__getitem__)
            mean, total = float(of_tokens.mean()), int(of_tokens.sum())
            found.append(Classification(self.labels[best], row[best], mean, total, len(of_tokens), tuple(row)))
        return found


def _as_written(text: str, names: Sequence[str]) -> list[str] | None:
    """The words as the text has them, each with the spaces before it; None if the tokenizer reads other words."""
    if split_words(text)[: len(names)] != list(names):
        return None
    ends = [0, *(end for _, end in word_spans(text))]
    return [text[start:end] for start, end in pairwise(ends)]
