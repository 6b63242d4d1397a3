"""What a program shows of long work where there is no terminal."""

import io

from rich.console import Console

from anydepth.progress import hide_progress, progress_bar, show_progress


def shown(total: int | None, done: int, steps: list[int]) -> list[str]:
    out = io.StringIO()
    show_progress(Console(file=out))
    try:
        with progress_bar("work", total, done) as advance:
            for step in steps:
                advance(step)
    finally:
        hide_progress()
    return out.getvalue().splitlines()


def test_a_line_for_each_tenth_of_the_work():
    assert shown(1000, 0, [50, 50, 60, 840]) == ["work: 100 of 1,000", "work: 1,000 of 1,000"]


def test_work_that_goes_on_counts_what_was_done():
    assert shown(1000, 700, [50, 50]) == ["work: 800 of 1,000"]


def test_nothing_to_do_and_work_without_an_end_are_silent():
    assert shown(0, 0, [0]) == shown(None, 0, [1000, 1000]) == []
