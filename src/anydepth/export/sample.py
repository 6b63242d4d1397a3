"""Sentences to try a model on: given ones, those of the model or its run, or else random subwords."""

import random
from dataclasses import dataclass, replace
from pathlib import Path

from anydepth.data import Tokenizer
from anydepth.data.corpus import SAMPLE_FILE, read_lines
from anydepth.errors import UserError
from anydepth.infer.text_model import TextModel

RANDOM_LENGTHS = range(3, 28)
EXAMPLES, SHORT = 5, 60  # sentences, and characters of one that fits on a line
FEW_WORDS = range(4, 13)


@dataclass(frozen=True)
class SampleText:
    sources: list[str]
    references: list[str] | None
    origin: str
    in_model: bool = False  # published with the model, unlike its training data

    def examples(self) -> list[str]:
        """A few of them to show beside the page's text: the shortest plain ones, then the first short ones, then the
        first."""
        if not self.in_model:
            return []
        short = [text for text in self.sources if len(text) <= SHORT]
        plain = sorted(filter(_is_plain, short), key=len)
        return list(dict.fromkeys(plain + short + self.sources))[:EXAMPLES]


def _is_plain(text: str) -> bool:
    """A sentence of a few words, without numbers, marks or, after its first word, capitals: names have these."""
    first, *others = text.split() or [""]
    small = all(word == word.lower() and word.strip(",;:.!?").isalpha() for word in others)
    return small and first.isalpha() and 1 + len(others) in FEW_WORDS and text[-1] in ".!?"


def find_sample(
    model: TextModel, given: Path, source: Path | None = None, reference: Path | None = None, size: int = 500
) -> SampleText:
    """At most `size` sentences. `given` is what the user named: a run has validation text, a model perhaps a sample."""
    if source is not None:
        sources = list(read_lines(source))
        references = None if reference is None else list(read_lines(reference))
        if references is not None and len(references) != len(sources):
            raise UserError(f"{source} has {len(sources):,} lines, {reference} {len(references):,}: they must match")
        return _without_blanks(
            SampleText(sources[:size], None if references is None else references[:size], source.name)
        )
    if reference is not None:
        raise UserError("a reference needs a source: give both, or neither")
    own = model.folder and model.folder / SAMPLE_FILE
    if own and own.is_file():
        pairs = [line.partition("\t") for line in read_lines(own)][:size]
        texts, translations = [pair[0] for pair in pairs], [pair[2] for pair in pairs]
        return _without_blanks(SampleText(texts, translations, f"{SAMPLE_FILE} of the model", in_model=True))
    valid = given / "data" / "valid.source", given / "data" / "valid.target"
    if model.loaded.pair is None and all(path.is_file() for path in valid):
        sources, targets = (list(read_lines(path))[:size] for path in valid)
        if sources and len(sources) == len(targets):
            return SampleText(sources, targets, "the run's validation text")
    return SampleText(_random_subwords(model, min(size, 100)), None, "random subwords")


def _without_blanks(sample: SampleText) -> SampleText:
    """Blank lines test nothing."""
    kept = [i for i, text in enumerate(sample.sources) if text.strip()]
    if not kept:
        raise UserError(f"{sample.origin} has no sentence in it to try the model on: give another")
    references = None if sample.references is None else [sample.references[i] for i in kept]
    return replace(sample, sources=[sample.sources[i] for i in kept], references=references)


def _random_subwords(model: TextModel, size: int) -> list[str]:
    """Not a language, but two engines must still agree on it."""
    rng = random.Random(1)
    tokenizer = model.tokenizer
    usual = [i for i in range(Tokenizer.EOS + 1, tokenizer.vocabulary_size) if i not in tokenizer.specials]
    texts = (tokenizer.decode(rng.choices(usual, k=rng.choice(RANDOM_LENGTHS))) for _ in range(2 * size))
    longest = model.longest_source
    return [text for text in texts if text.strip() and len(tokenizer.encode(text)) <= longest][:size]
