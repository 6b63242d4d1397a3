"""Writing so that a reader sees the old file or the new one, never half of it."""

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    temporary = final.with_name(f".{final.name}.tmp-{os.getpid()}")
    shutil.rmtree(temporary, ignore_errors=True)
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


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
