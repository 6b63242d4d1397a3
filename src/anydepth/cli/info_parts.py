"""What `anydepth info` says alike of all models."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console

if TYPE_CHECKING:
    from anydepth.artifact.model import LoadedModel


def sizes_of(loaded: "LoadedModel") -> dict[str, int]:
    parameters, folder = list(loaded.model.parameters()), loaded.folder
    return {
        "parameters": sum(one.numel() for one in parameters),
        "bytes_in_memory": sum(one.numel() * one.element_size() for one in parameters),
        "bytes_on_disk": 0 if folder is None else sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()),
    }


def size_rows(facts: dict[str, Any]) -> dict[str, str]:
    return {
        "parameters": f"{facts['parameters']:,}, each counted once",
        "on disk": f"{megabytes(facts['bytes_on_disk'])} MB",
        "in memory": f"{megabytes(facts['bytes_in_memory'])} MB",
    }


def numbered(pattern: Iterable[int]) -> list[int]:
    """For each layer the number, from 1, of the weights that it has: layers of one number share them."""
    return [index + 1 for index in pattern]


def print_rows(rows: dict[str, str], console: Console) -> None:
    width = max(map(len, rows))
    for name, value in rows.items():
        console.print(f"{name:<{width}}  {value}", markup=False, highlight=False, soft_wrap=True)
    console.print()


def layers_in_words(weights: list[int]) -> str:
    if not weights:
        return "none"
    count = f"{len(weights)} layer{'s' if len(weights) > 1 else ''}"
    if len(set(weights)) == len(weights):
        return count
    if len(set(weights)) == 1:
        return f"{count}, all with the same weights"
    layers_of: dict[int, list[str]] = {}
    for layer, number in enumerate(weights, 1):
        layers_of.setdefault(number, []).append(str(layer))
    alike = ("=".join(layers) for layers in layers_of.values() if len(layers) > 1)
    return f"{count}; those that share weights: {', '.join(alike)}"


def megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
