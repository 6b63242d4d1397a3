"""`anydepth translate`: standard input to standard output."""

import math
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from anydepth.cli.options import (
    BatchSize,
    Beam,
    CutLong,
    Device,
    EngineOption,
    From,
    Lambda,
    LengthPenalty,
    MaxLength,
    ModelFileOrBundled,
    Quantize,
    ScaleOption,
    Speculate,
    Threads,
    To,
    TokenExit,
    UseShortlist,
    complete_depths,
)
from anydepth.errors import UserError
from anydepth.progress import stderr_console

if TYPE_CHECKING:
    from anydepth.infer.options import Depth
    from anydepth.infer.translator import Hypothesis, Translator


DepthOrAuto = Annotated[
    str | None,
    typer.Option(
        help="Depth, such as 6-2, or auto: the model's selector chooses one per sentence.  [default: the model's "
        "default depth]",
        show_default=False,
        autocompletion=complete_depths,
    ),
]


def translate(
    model: ModelFileOrBundled = None,
    depth: DepthOrAuto = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Use the best depth within this time per sentence, such as 20ms or 50/s. With --depth auto: the best "
            "trade-off of the selector.",
            show_default=False,
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="With --depth auto: trade-off between quality and speed; 0 is best quality, larger is faster. For a "
            "selector trained on labels: minimum probability, below which the deepest depth runs.  [default: the "
            "selector's own]",
            show_default=False,
        ),
    ] = None,
    scale: ScaleOption = None,
    lambda_: Lambda = None,
    exit: TokenExit = None,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Early exit by a promise: such a share of sentences, as 99%, keeps the text of the full depth, or "
            "nearly so, by the rule that `anydepth calibrate --keep` has found. 100% is the full depth, with drafts "
            "where they are faster.",
            show_default=False,
        ),
    ] = None,
    beam: Beam = 1,
    nbest: Annotated[int, typer.Option(min=1, help="Output the N best hypotheses, as `line ||| text ||| score`.")] = 1,
    length_penalty: LengthPenalty = 0.6,
    batch_size: BatchSize = 32,
    max_length: MaxLength = None,
    max_source: Annotated[
        int | None, typer.Option(min=1, help="Maximum source length in subwords.  [default: the model's limit]")
    ] = None,
    cut_long: CutLong = False,
    source_prefix: Annotated[str, typer.Option(help="Prefix added to every source line.")] = "",
    from_language: From = None,
    to_language: To = None,
    engine: EngineOption = "auto",
    quantize: Quantize = None,
    speculate: Speculate = False,
    shortlist: UseShortlist = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate standard input to standard output, line by line."""
    from anydepth.data.corpus import decode_lines
    from anydepth.infer.translator import Translator, on_engine

    if sys.stdin is None or sys.stdout is None:
        raise UserError("translate reads standard input and writes standard output: one of them is closed")
    if speculate and beam > 1:
        raise UserError("--speculate is for greedy search: leave out --beam, or --speculate")
    everything = _is_everything(keep, exit, depth, budget)
    at_a_terminal = sys.stdin.isatty()
    together = 1 if at_a_terminal else batch_size  # there, sentences come one by one
    translator = Translator.load(
        model,
        engine=engine,
        device=device,
        threads=threads,
        quantize=quantize,
        speculate=speculate,
        shortlist=shortlist,
        source_language=from_language,
        target_language=to_language,
    ).between()
    if everything and together == beam == 1 and translator.engine.name == "native":
        translator = on_engine(translator, "native", threads, speculate=True, shortlist=shortlist)
    if speculate and together > 1:
        stderr_console().print(
            f"batches of {together} run without drafts, which would take longer: give --batch-size 1 to see each "
            "sentence sooner"
        )
    found = translator.stream(
        decode_lines(sys.stdin.buffer, "standard input"),
        chunk=1 if at_a_terminal else 2048,
        depth=_choose_depth(translator, depth, budget, threshold, beam, together),
        beam=beam,
        nbest=nbest,
        length_penalty=length_penalty,
        batch_size=together,
        max_length=max_length,
        max_source=max_source,
        cut_long=cut_long,
        source_prefix=source_prefix,
        scores=nbest > 1,
        scale=scale,
        lambda_=lambda_,
        exit=exit,
        keep=keep,
    )
    mean = _write_translations(sys.stdout.buffer, found, nbest)
    if mean is not None and (exit is not None or (keep is not None and not everything)):
        stderr_console().print(f"tokens left after {mean:.2f} decoder layers on average")


def _write_translations(out: BinaryIO, translations: "Iterator[list[Hypothesis]]", nbest: int) -> float | None:
    """All that come before an error are written, and the error says where to go on. Returns the mean number of decoder
    layers of the best hypotheses' tokens."""
    done, layers, tokens = 0, 0.0, 0
    try:
        for number, hypotheses in enumerate(translations):
            for one in hypotheses:
                line = one.text if nbest == 1 else f"{number} ||| {one.text} ||| {one.score:.4f}"
                out.write(line.encode("utf-8") + b"\n")
            done = number + 1
            if hypotheses[0].depth:  # else the line is empty
                length = len(hypotheses[0].tokens) + hypotheses[0].ended
                layers, tokens = layers + length * hypotheses[0].decoder_layers, tokens + length
            if sys.stdin.isatty():
                out.flush()
    except UserError as error:
        if not done:
            raise
        raise UserError(
            f"{error}; the lines before it are translated and written: fix the line, then translate the rest with "
            f"`tail -n +{done + 1} FILE | anydepth translate ... >> OUT`"
        ) from error
    finally:
        out.flush()
    return layers / tokens if tokens else None


def _is_everything(keep: str | None, exit: str | None, depth: str | None, budget: str | None) -> bool:
    """Whether --keep is 100%. Refused with what chooses the exit rule or the depth, too."""
    if keep is None:
        return False
    from anydepth.selectors.promise import parse_keep

    if exit is not None:
        raise UserError("--keep and --exit both choose the exit rule: give one of the two")
    if budget is not None or depth == "auto":
        raise UserError("a promise is for one depth: give --keep with --depth NAME, or alone")
    return parse_keep(keep) == 1


def _choose_depth(
    translator: "Translator",
    depth: str | None,
    budget: str | None,
    threshold: float | None,
    beam: int,
    batch_size: int,
) -> "Depth":
    """What picks the depth: a name, the model's selector, or a budget."""
    from anydepth.infer.options import AUTO

    if threshold is not None and (depth != AUTO or budget is not None):
        raise UserError("--threshold is for --depth auto, without --budget")
    if threshold is not None and not math.isfinite(threshold):
        raise UserError(f"a threshold of {threshold} is not a finite number: give one such as 0.5 or 3")
    if budget is not None and depth not in (None, AUTO):
        raise UserError(f"--depth {depth} and --budget {budget} both choose the depth: give one of the two")
    if depth == AUTO and translator.selector is not None:
        if budget is not None:
            from anydepth.selectors.budget import AutoWithinBudget, within_budget

            fixed = within_budget(translator, budget, beam=beam, batch_size=batch_size)
            return AutoWithinBudget(translator.selector, fixed)
        return translator.selector if threshold is None else translator.selector.with_threshold(threshold)
    if budget is not None and depth is None:
        from anydepth.selectors.budget import within_budget

        return within_budget(translator, budget, beam=beam, batch_size=batch_size)
    return depth
