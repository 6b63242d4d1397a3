"""Writing so that a reader sees the old file or the new one, never half of it."""

import fcntl
import glob
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anydepth.errors import UserError


def sync_path(path: Path) -> None:
    """Force a file or a folder's list of names to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def atomic_folder(final: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `final`; once the block succeeds it is synced and takes that name.

    A folder already there is moved aside first and removed last, so that a crash leaves one whole copy.
    """
    final.parent.mkdir(parents=True, exist_ok=True)
    tidy_up_after_killed(final)
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    temporary.mkdir()
    try:
        yield temporary
        for path in temporary.rglob("*"):
            sync_path(path)
        sync_path(temporary)
        aside = final.with_name(f".{final.name}.old-{os.getpid()}")
        if final.exists():
            final.rename(aside)
        temporary.rename(final)
        sync_path(final.parent)
        shutil.rmtree(aside, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextmanager
def checked_file(final: Path) -> Iterator[Path]:
    """Yield where to write a file beside `final`, and to try it; once the block succeeds it is synced and takes its
    place."""
    tidy_up_after_killed(final)
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    try:
        yield temporary
        sync_path(temporary)
        temporary.replace(final)
        sync_path(final.parent)
    finally:
        temporary.unlink(missing_ok=True)


def tidy_up_after_killed(final: Path) -> None:
    """Remove what processes that are no more left beside `final`; put it back if they had just moved it aside."""
    for left in final.parent.glob(f".{glob.escape(final.name)}.*-*"):
        kind, _, process = left.name.removeprefix(f".{final.name}.").partition("-")
        if kind not in ("tmp", "old") or not process.isdigit() or _is_running(int(process)):
            continue
        if kind == "old" and not final.exists():
            left.rename(final)
        elif left.is_file():
            left.unlink(missing_ok=True)
        else:
            shutil.rmtree(left, ignore_errors=True)


def _is_running(process: int) -> bool:
    if process == os.getpid():
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def write_atomically(path: Path, content: str | bytes) -> None:
    """Replace the file at `path` by `content` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    data = content.encode("utf-8") if isinstance(content, str) else content
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
        sync_path(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def only_process(folder: Path, doing: str) -> Iterator[None]:
    """Two processes in one folder would spoil each other's files. The lock goes with the process."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(f"another process is {doing} in {folder}: wait for it, or use another folder") from None
        yield


def read_json(path: Path, advice: str) -> dict[str, Any]:
    """The object in a JSON file of ours; if it is damaged, `advice` says what to do about it."""
    try:
        content = json.loads(path.read_text("utf-8"))
    except (ValueError, OSError) as error:
        raise UserError(f"{path} is damaged: {advice}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} is damaged: {advice}")
    return content


def file_sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
