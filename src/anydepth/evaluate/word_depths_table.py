"""How the words of a text spread over depths: the rows of a table and of a picture."""

from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from anydepth.evaluate.plain_table import plain_table
from anydepth.word_depths.table import WordDepths

EXAMPLES = 6


@dataclass(frozen=True)
class DepthRow:
    """The words of one depth, the most frequent first."""

    depth: int
    words: tuple[str, ...]
    occurrences: int
    share: float  # of all occurrences

    @property
    def telling(self) -> tuple[str, ...]:
        """Those that say something to people: of letters, and more than one."""
        return tuple(word for word in self.words if len(word) > 1 and word.isalpha())

    @property
    def examples(self) -> tuple[str, ...]:
        return self.telling[:EXAMPLES]


def depth_rows(depths: WordDepths, words: Mapping[str, int]) -> list[DepthRow]:
    """A row for each depth, the unused ones too. `words` says how often each word occurs."""
    ordered = sorted(words, key=lambda word: (-words[word], word))
    of_depth: dict[int, list[str]] = {depth: [] for depth in range(1, depths.layers + 1)}
    for word, depth in zip(ordered, depths.depths(ordered), strict=True):
        of_depth[depth].append(word)
    total = max(sum(words.values()), 1)
    rows = []
    for depth, those in of_depth.items():
        occurrences = sum(words[word] for word in those)
        rows.append(DepthRow(depth, tuple(those), occurrences, occurrences / total))
    return rows


def mean_depth(rows: list[DepthRow]) -> float:
    """Over occurrences."""
    return sum(row.depth * row.share for row in rows)


def print_word_depths(console: Console, rows: list[DepthRow], title: str = "") -> None:
    table = plain_table(console, title, "depth", "words", "occurrences", "share")
    table.add_column("examples", no_wrap=True, overflow="ellipsis")
    for row in rows:
        examples = Text(", ".join(row.examples))
        table.add_row(str(row.depth), f"{len(row.words):,}", f"{row.occurrences:,}", f"{row.share:.1%}", examples)
    console.print(table)
    mean = f"mean depth by occurrence: {mean_depth(rows):.2f} of {len(rows)}"
    console.print(mean, highlight=False, soft_wrap=True)
