"""`anydepth serve`: serves a model over HTTP."""

from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from anydepth.artifact import bundled_model
from anydepth.cli.options import (
    Beam,
    Device,
    EngineOption,
    ModelFileOrBundled,
    Quantize,
    Speculate,
    UseShortlist,
    complete_depths,
    stderr,
)
from anydepth.errors import UserError


def serve(
    model: ModelFileOrBundled = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8080,
    engine: EngineOption = "auto",
    quantize: Quantize = None,
    speculate: Speculate = False,
    shortlist: UseShortlist = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Batches run in parallel, each on one core.")] = 1,
    depth: Annotated[
        str | None,
        typer.Option(
            help="Depth of requests that name none, such as 6-2, or auto.  [default: the model's default depth]",
            show_default=False,
            autocompletion=complete_depths,
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Instead of --depth: use the best depth within this time per sentence, such as 20ms.",
            show_default=False,
        ),
    ] = None,
    beam: Beam = 1,
    batch_size: Annotated[int, typer.Option(min=1, help="Maximum sentences per batch.")] = 32,
    char_limit: Annotated[int, typer.Option(min=1, help="Maximum characters per request.")] = 20_000,
    batch_limit: Annotated[int, typer.Option(min=1, help="Maximum texts per request.")] = 200,
    sentence_limit: Annotated[
        int,
        typer.Option(min=1, help="Maximum subwords per sentence; a longer one is split at commas or between words."),
    ] = 128,
    queue_limit: Annotated[
        int, typer.Option(min=1, help="Maximum sentences in the queue; beyond it clients get HTTP 429.")
    ] = 2000,
    timeout: Annotated[float, typer.Option(min=0.1, max=86400, help="Request timeout in seconds.")] = 60,
    api_keys: Annotated[
        Path | None,
        typer.Option(
            help="File with one API key per line. Requests without a valid key are refused.", show_default=False
        ),
    ] = None,
    cors: Annotated[
        list[str] | None,
        typer.Option(help="Origin allowed to call the API from a browser (CORS); may be repeated.", show_default=False),
    ] = None,
    log_level: Annotated[str, typer.Option(help="debug, info, warning or error.")] = "info",
    device: Device = "auto",
) -> None:
    """Serve a model over HTTP: a web page, and the API of LibreTranslate for existing clients.

    The page is at `/`, the API documentation at `/docs`, metrics for Prometheus at `/metrics`. On SIGTERM, running
    requests are finished first.
    """
    _check_installed()
    from anydepth.artifact.model import resolve
    from anydepth.selectors.budget import parse_budget
    from anydepth.serve.monitoring import configure_logging
    from anydepth.serve.schemas import RequestLimits, ServerSettings
    from anydepth.serve.server import build_app, listen, run
    from anydepth.serve.workers import ModelSource

    if log_level not in ("debug", "info", "warning", "error"):
        raise UserError(f"there is no log level {log_level!r}: use debug, info, warning or error")
    if depth is not None and budget is not None:
        raise UserError(f"--depth {depth} and --budget {budget} both choose the depth: give one of the two")
    settings = ServerSettings(
        batch_size=batch_size,
        beam=beam,
        depth=depth,
        budget=None if budget is None else parse_budget(budget),
        limits=RequestLimits(
            characters=char_limit, texts=batch_limit, sentence=sentence_limit, seconds=timeout, waiting=queue_limit
        ),
        api_keys=frozenset() if api_keys is None else _keys(api_keys),
        origins=tuple(cors or ()),
    )
    given = bundled_model() if model is None else model
    source = ModelSource(resolve(given), device, engine, quantize, speculate, shortlist)
    with listen(host, port) as listening:
        app = build_app(given, source, workers, settings)
        shown = f"[{host}]" if ":" in host else host
        stderr.print(f"http://{shown}:{listening.getsockname()[1]}/ (Ctrl+C stops it)")
        configure_logging(log_level)
        run(app, listening, settings.limits)


def _keys(path: Path) -> frozenset[str]:
    from anydepth.data.corpus import read_lines

    keys = frozenset(line.strip() for line in read_lines(path) if line.strip()) if path.stat().st_size else None
    if not keys:
        raise UserError(f"{path} has no key in it: write one per line")
    return keys


def _check_installed() -> None:
    from anydepth.export import EXTRAS

    missing = [name for name in EXTRAS["serve"] if not find_spec(name)]
    if missing:
        raise UserError(f"serving needs {', '.join(missing)}: pip install 'anydepth[serve]'")
