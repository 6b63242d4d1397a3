"""A source and a reference that correspond line by line."""

from collections.abc import Sequence

from anydepth.errors import UserError


def check_paired(sources: Sequence[str], references: Sequence[str]) -> None:
    if len(sources) != len(references):
        raise UserError(
            f"the source has {len(sources)} lines but the reference has {len(references)}: "
            "give two files that correspond line by line"
        )
    if not any(source.strip() for source in sources):
        raise UserError("there are no lines to translate: give a source and a reference file with text")
