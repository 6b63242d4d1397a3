"""One language pair on its way to training: cleaned, in text files, and without what is held out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from anydepth.config import DataConfig, PairConfig
from anydepth.data.cleaning import Cleaner, CleaningCounts, digest
from anydepth.data.corpus import Pair, read_lines, read_pairs
from anydepth.data.split import HoldOut
from anydepth.errors import UserError
from anydepth.progress import progress_bar

Item = TypeVar("Item")

SIDES = ("source", "target")
TEST = "test.tsv"  # in prepared data of one of several folds
FOLD_KEY = b"fold"
MOST_LABELS = 10_000


@dataclass
class PairCorpus:
    """A language pair: the pairs to validate with in memory, those to train on in text files, one for each corpus."""

    pair: PairConfig
    prefix: str  # of the names of its files; empty where it is the only one
    train_counts: CleaningCounts
    valid_counts: CleaningCounts = field(default_factory=CleaningCounts)
    valid: list[Pair] = field(default_factory=list)
    seen_in_train: set[int] = field(default_factory=set)  # digests of the validation sources that occur in train
    labels: set[str] = field(default_factory=set)  # of the whole corpus, what is held out included
    sizes: list[int] = field(default_factory=list)  # of the corpora, in pairs, once they are tokens

    @property
    def train(self) -> str:
        return f"{self.prefix}train"

    @property
    def files(self) -> list[str]:
        """The names of its text files, one for each training corpus."""
        return [self.train, *(f"{self.train}.{number}" for number in range(1, len(self.pair.training)))]

    def training_text(self, folder: Path) -> Iterator[Pair]:
        return (pair for name in self.files for pair in read_back(folder, name))

    @property
    def training_corpus(self) -> str:
        """As messages call it."""
        return f"{self.pair.name} training corpus" if self.prefix else "training corpus"

    @property
    def items(self) -> str:
        """What messages call its pairs."""
        return {"translation": "pairs", "text": "sentences", "labels": "texts"}[self.pair.kind]

    def check_training(self) -> None:
        self._check_usable(self.training_corpus, self.train_counts)

    def check_validation(self) -> None:
        self._check_usable(self.training_corpus.replace("training", "validation"), self.valid_counts)

    def _check_usable(self, corpus: str, counts: CleaningCounts) -> None:
        if counts.kept == 0:
            raise UserError(
                f"none of the {self.items} of the {corpus} is usable ({counts.summary(self.items)}): "
                "look at the files, or relax data.max_tokens and data.max_ratio"
            )

    def valid_seen_in_train(self) -> int:
        return sum(digest(source) in self.seen_in_train for source, _ in self.valid)


def write_pairs(folder: Path, name: str, pairs: Iterable[Pair]) -> None:
    with (
        open(folder / f"{name}.source", "w", encoding="utf-8", newline="\n") as sources,
        open(folder / f"{name}.target", "w", encoding="utf-8", newline="\n") as targets,
    ):
        for source, target in pairs:
            sources.write(source + "\n")
            targets.write(target + "\n")


def read_back(folder: Path, name: str) -> Iterator[Pair]:
    if not (folder / f"{name}.source").stat().st_size:
        return iter(())  # of one corpus among several nothing may be left
    return zip(read_lines(folder / f"{name}.source"), read_lines(folder / f"{name}.target"), strict=True)


def keep_pairs(folder: Path, name: str, keep: Callable[[Pair], bool]) -> None:
    """Keep in the files only the pairs for which `keep` is true."""
    write_pairs(folder, f"{name}.kept", filter(keep, read_back(folder, name)))
    for side in SIDES:
        (folder / f"{name}.kept.{side}").replace(folder / f"{name}.{side}")


def file_prefix(pair: PairConfig, pairs: Sequence[PairConfig]) -> str:
    return f"{pair.name}." if len(pairs) > 1 else ""


def clean_part(config: DataConfig, pair: PairConfig, folder: Path, seed: int) -> PairCorpus:
    """Write the cleaned pairs to train on, and find those to validate with."""
    cleaner = Cleaner(config)
    part = PairCorpus(pair, file_prefix(pair, config.corpora), cleaner.counts)
    what = f"cleaned {part.items} of the {part.training_corpus}"
    sources: set[int] = set()
    if pair.valid is not None:
        valid_cleaner = Cleaner(config.model_copy(update={"deduplicate": False}))
        part.valid, part.valid_counts = list(valid_cleaner.clean(read_pairs(pair.valid))), valid_cleaner.counts
        part.check_validation()
        sources = {digest(source) for source, _ in part.valid}
    hold_out = HoldOut(config.hold_out, seed, f"the {part.training_corpus}", part.items)
    for name, corpus in zip(part.files, pair.training, strict=True):
        cleaned = watched(what, cleaner.clean(read_pairs(corpus)))
        if config.is_labelled:
            cleaned = _collect_labels(cleaned, part.labels)
        if config.folds is not None:
            cleaned = _without_fold(cleaned, config.folds, config.fold, folder / TEST, cleaner.counts)
        noted = _offer(hold_out, cleaned) if pair.valid is None else _note_sources(cleaned, sources, part.seen_in_train)
        write_pairs(folder, name, noted)
    part.check_training()
    if pair.valid is None:
        _hold_out(part, hold_out, folder)
        part.check_training()
    return part


def _offer(hold_out: HoldOut, pairs: Iterable[Pair]) -> Iterator[Pair]:
    for pair in pairs:
        hold_out.see(pair[0])
        yield pair


def _collect_labels(pairs: Iterable[Pair], labels: set[str]) -> Iterator[Pair]:
    """Also those that occur only in a part that is not trained on."""
    for text, label in pairs:
        labels.add(label)
        yield text, label


def _without_fold(pairs: Iterable[Pair], folds: int, fold: int, test: Path, counts: CleaningCounts) -> Iterator[Pair]:
    """Put one of the folds aside to test with. Equal texts are always in the same one."""
    with open(test, "a", encoding="utf-8", newline="\n") as file:  # after that of the corpus before
        for text, label in pairs:
            if digest(text, FOLD_KEY) % folds + 1 == fold:
                file.write(f"{label}\t{text}\n")
                counts.held_out += 1
                counts.kept -= 1
            else:
                yield text, label


def _hold_out(part: PairCorpus, hold_out: HoldOut, folder: Path) -> None:
    """Of the held-out pairs one per source is for validation; all of them stay out of training."""
    counts, valid = part.train_counts, dict[str, str]()

    def keep(pair: Pair) -> bool:
        if pair[0] not in hold_out:
            return True
        counts.held_out += 1
        valid.setdefault(*pair)
        return False

    hold_out.choose()
    before = counts.held_out
    for name in part.files:
        keep_pairs(folder, name, keep)

    held_out = counts.held_out - before
    counts.kept -= held_out
    if held_out > counts.kept:
        raise hold_out.too_small(f"only {counts.kept} {part.items} that share no source with them")
    part.valid = list(valid.items())
    part.valid_counts = CleaningCounts(read=held_out, kept=len(valid), duplicates=held_out - len(valid))


def _note_sources(pairs: Iterable[Pair], sources: set[int], found: set[int]) -> Iterator[Pair]:
    """Yield the pairs, and add to `found` those of `sources` that occur."""
    for pair in pairs:
        source = digest(pair[0])
        if source in sources:
            found.add(source)
        yield pair


def list_labels(part: PairCorpus) -> list[str]:
    """All that occur in the training corpus."""
    labels = sorted(part.labels)
    if len(labels) < 2:
        raise UserError(f"all texts of the {part.training_corpus} have the label {labels[0]!r}: give texts of several")
    if len(labels) > MOST_LABELS:
        raise UserError(f"the {part.training_corpus} has {len(labels):,} labels, which are more than {MOST_LABELS:,}")
    return labels


def watched(description: str, items: Iterable[Item]) -> Iterator[Item]:
    """The same items, counted while they are read."""
    with progress_bar(description, None) as advance:
        for number, item in enumerate(items, start=1):
            if number % 1000 == 0:
                advance(1000)
            yield item
