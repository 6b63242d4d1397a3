"""`anydepth explain`: shows how deep each word of a text goes."""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from anydepth.cli.classify import ClassifierDepth, ClassifierEngineOption, WordDepthsFile, WordOptions, load_classifier
from anydepth.cli.options import Device, Lambda, ModelArgument, ScaleOption, Threads, stderr
from anydepth.errors import UserError

if TYPE_CHECKING:
    from anydepth.evaluate.explain import Explanation
    from anydepth.infer.classifier import Classifier

PIPED_WIDTH = 80


def explain(
    model: ModelArgument,
    texts: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, each in quotes.  [default: lines of standard input]", show_default=False),
    ] = None,
    others: Annotated[
        list[Path] | None,
        typer.Option("--with", metavar="MODEL", help="Another model to compare with; may be repeated."),
    ] = None,
    html: Annotated[
        Path | None, typer.Option(help="Also write an HTML page, with a bar for each word.", show_default=False)
    ] = None,
    depth: ClassifierDepth = None,
    scale: ScaleOption = None,
    lambda_: Lambda = None,
    word_depths: WordDepthsFile = None,
    engine: ClassifierEngineOption = "auto",
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Show the depth of each word of a text, in colour, and the predicted label.

    With several models, --scale and --lambda apply to those with a depth per word, --word-depths to MODEL only.
    """
    from anydepth.evaluate.explain import depth_scale, explain_report, explain_sections
    from anydepth.evaluate.explain import explain as explain_one
    from anydepth.evaluate.render import print_sections, to_html

    if html is not None:
        _check_page(html)
    named = _load([model, *(others or [])], word_depths, depth, device, threads, engine)
    scales = _for_takers(scale, [one.menu[depth].subnetwork.by_word for one in named.values()])
    lambdas = _for_takers(lambda_, [_has_lambdas(one) for one in named.values()])
    console = Console() if sys.stdout.isatty() else Console(width=PIPED_WIDTH)
    layers = max(one.loaded.config.encoder_layers for one in named.values())
    found: list[list[Explanation]] = []
    for number, text in enumerate(texts or _lines()):
        those = [
            explain_one(one, text, name, depth=depth, scale=of_scale, lambda_=of_lambda)
            for (name, one), of_scale, of_lambda in zip(named.items(), scales, lambdas, strict=True)
        ]
        if number == 0:
            print_sections([depth_scale(layers)], console)
        print_sections(explain_sections(those, layers), console)
        if html is not None:
            found.append(those)
    if html is not None:
        _write_page(html, to_html(explain_report(found)))
        stderr.print(f"page: {html}")


def _load(
    paths: Sequence[Path],
    word_depths: Path | None,
    depth: str | None,
    device: str,
    threads: int | None,
    engine: str,
) -> "dict[str, Classifier]":
    from anydepth.artifact import short_name

    loaded = [
        load_classifier(path, device, threads, WordOptions(None if number else word_depths), depth, engine)
        for number, path in enumerate(paths)
    ]
    names = [short_name(path) for path in paths]
    if word_depths is not None:
        names[0] += f" with {word_depths.name}"
    if len(set(names)) < len(names):
        names = [f"{name} ({number})" for number, name in enumerate(names, 1)]
    return dict(zip(names, loaded, strict=True))


def _for_takers(value: float | None, takers: Sequence[bool]) -> list[float | None]:
    """The value for those that can have it; for all if none can, and that is refused."""
    return [value if takes or not any(takers) else None for takes in takers]


def _has_lambdas(classifier: "Classifier") -> bool:
    return classifier.token_depths is not None and bool(classifier.token_depths.table.lambdas)


def _lines() -> Iterator[str]:
    from anydepth.data.corpus import decode_lines

    if sys.stdin is None:
        raise UserError("there is no text to explain: give one in quotes, or lines on standard input")
    return decode_lines(sys.stdin.buffer, "standard input")


def _write_page(path: Path, page: str) -> None:
    from anydepth.files import write_atomically

    try:
        write_atomically(path, page)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}; give another file with --html") from error


def _check_page(path: Path) -> None:
    """Before any work: whether the page may be written where it would go."""
    if path.is_dir() or path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"{path} is not the name of an HTML file: give one that ends in .html with --html")
