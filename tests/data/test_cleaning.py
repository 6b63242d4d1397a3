from anydepth.config import CorpusConfig, DataConfig
from anydepth.data.cleaning import Cleaner, CleaningCounts


def config(**keys) -> DataConfig:
    return DataConfig(train=CorpusConfig(tsv="unused.tsv"), **keys)


def test_every_reason_is_counted():
    cleaner = Cleaner(config(max_tokens=10, max_ratio=2.0))
    pairs = [
        (" one ", "un"),
        ("one", " un"),  # a duplicate after stripping
        ("one", "une"),
        ("", "rien"),
        ("rien", " \t "),
        ("x" * 101, "x" * 101),
        ("x" * 40, "x" * 10),
    ]
    assert list(cleaner.clean(pairs)) == [("one", "un"), ("one", "une")]
    assert cleaner.counts == CleaningCounts(read=7, kept=2, empty=2, too_long=1, ratio=1, duplicates=1)
    expected = "2 of 7 pairs kept (2 empty, 1 too long, 1 of unlike lengths, 1 duplicates)"
    assert cleaner.counts.summary() == expected


def test_limits_are_inclusive():
    cleaner = Cleaner(config(max_tokens=10, max_ratio=2.0))
    pairs = [("x" * 100, "x" * 100), ("x" * 30, "x" * 10)]
    assert list(cleaner.clean(pairs)) == pairs


def test_duplicates_stay_on_request():
    cleaner = Cleaner(config(deduplicate=False))
    assert len(list(cleaner.clean([("a", "b")] * 3))) == 3


def test_the_boundary_between_sides_counts():
    cleaner = Cleaner(config())
    assert len(list(cleaner.clean([("a b", "c"), ("a", "b c")]))) == 2


def test_controls_become_spaces():
    [pair] = Cleaner(config()).clean([("a\tb\x00\x07c\r\n", "d\u2028e\x85f\u00a0g")])
    assert pair == ("a b c", "d e f\u00a0g")
