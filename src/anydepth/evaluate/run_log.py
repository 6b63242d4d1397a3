"""What a run wrote while it trained: RUN/log.jsonl, a record per line."""

import json
import math
from pathlib import Path
from typing import Any

from anydepth.errors import UserError

LOG = "log.jsonl"


def read_log(run: Path) -> list[dict[str, Any]]:
    """The records in order. The last line may be torn: a run may be writing it, or have been killed over it."""
    path = run / LOG
    lines = path.read_text("utf-8", "replace").splitlines() if path.exists() else []
    records = []
    for number, line in enumerate(lines, 1):
        if math.isfinite(step_of(line)):
            records.append(json.loads(line))
        elif number < len(lines):
            raise UserError(f"{path} is damaged in line {number}: that is no record of a run; remove the line")
    return records


def is_foreign(run: Path) -> bool:
    """Whether there is something, but neither a record nor the beginning of one."""
    start = '{"kind": "'
    text = (run / LOG).read_text("utf-8", "replace")
    return text[: len(start)] != start[: len(text)]


def step_of(line: str) -> float:
    """Infinite for what is no record, such as a torn last line."""
    try:
        return float(json.loads(line)["step"])
    except (ValueError, KeyError, TypeError):
        return math.inf
