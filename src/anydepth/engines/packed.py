"""The packed form of a model, for the native engine: made once, kept beside the weights, and made again when it no
longer fits them.

packed.anydepth    in the model folder or, where that is read-only, <checksum>.anydepth in the user's cache: a model
                   file (artifact/model_file.py) whose header names the files that it was made of
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from anydepth.artifact.model import LoadedModel
from anydepth.artifact.model_file import FileSection, ModelFile
from anydepth.artifact.weights import FileWeights, StoredWeights
from anydepth.depth import SubNetwork
from anydepth.engines.base import check_native
from anydepth.engines.core import NativeModel
from anydepth.errors import UserError
from anydepth.files import file_sha256, write_atomically

log = logging.getLogger(__name__)
NAME, SHORTLIST = "packed.anydepth", "shortlist.safetensors"
PACKING = 6  # a higher number where the same weights are packed to other bytes, or the header has something new


def native_model(loaded: LoadedModel) -> NativeModel:
    """The model in the core, from its file, from its packed form, or packed here and now."""
    check_native(loaded.config, classifies=loaded.kind == "classifier")
    if isinstance(loaded.weights, FileWeights):
        return NativeModel(loaded.weights.file.path)
    if loaded.folder is None or loaded.checksum is None or not isinstance(loaded.weights, StoredWeights):
        return NativeModel(_pack(loaded))
    made_of = _origin(loaded.folder, loaded.checksum)
    for file in _fitting(loaded):
        with suppress(UserError):  # it is damaged
            native = NativeModel(file.path)
            loaded.weights.fingerprints |= file.header.get("fingerprints", {})
            return native
    fingerprints = {loaded.text_parts: loaded.fingerprint}  # kept, because it takes all weights
    data = _pack(loaded, {"made_of": made_of, "fingerprints": fingerprints})
    for path in _places(loaded.folder, loaded.checksum):
        with suppress(OSError):
            write_atomically(path, data)
            log.debug("the packed form of the model is %s", path)
            return NativeModel(path)
    return NativeModel(data)


def packed_weights(loaded: LoadedModel) -> tuple[dict[str, Any], list[FileSection]] | None:
    """The packed form of a model folder, if it was made and still fits: the header's `core`, and all sections."""
    for file in _fitting(loaded):
        with suppress(UserError, OSError):  # it is damaged
            sections = [FileSection(one.kind, one.index, file.read_place(one)) for one in file.places]
            assert isinstance(loaded.weights, StoredWeights)
            loaded.weights.fingerprints |= file.header.get("fingerprints", {})
            return file.header["core"], sections
    return None


def weights_size(loaded: LoadedModel, sub: SubNetwork) -> int | None:
    """Bytes that the native engine holds of a sub-network; None if the packed form could be kept nowhere."""
    own = loaded.weights.file if isinstance(loaded.weights, FileWeights) else next(_fitting(loaded), None)
    return None if own is None else own.weights_size(sub.encoder, sub.decoder)


def _fitting(loaded: LoadedModel) -> Iterator[ModelFile]:
    if loaded.folder is None or loaded.checksum is None or not isinstance(loaded.weights, StoredWeights):
        return
    made_of = _origin(loaded.folder, loaded.checksum)
    for path in _places(loaded.folder, loaded.checksum):
        with suppress(UserError, OSError):  # it is damaged
            if path.is_file() and (file := ModelFile.open(path)).header.get("made_of") == made_of:
                yield file


def _places(folder: Path, checksum: str) -> Iterator[Path]:
    yield folder / NAME
    from platformdirs import user_cache_path  # rarely needed

    yield user_cache_path("anydepth") / "packed" / f"{checksum[:32]}.anydepth"


def _pack(loaded: LoadedModel, header: dict[str, Any] | None = None) -> bytes:
    from anydepth.engines.native_format import packed  # NumPy, which only packing needs
    from anydepth.engines.shortlist import Shortlist

    return packed(loaded.arrays, header, shortlist=Shortlist.find(loaded))


def _origin(folder: Path, checksum: str) -> dict[str, Any]:
    shortlist = folder / SHORTLIST
    lists = {"shortlist": file_sha256(shortlist)} if shortlist.is_file() else {}
    return {"packing": PACKING, "weights": checksum, **lists}
