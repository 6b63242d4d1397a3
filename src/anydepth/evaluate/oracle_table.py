"""What the oracle found as tables on the terminal."""

from statistics import median

from rich.console import Console
from rich.table import Table

from anydepth.evaluate.oracle_result import ModelOracle, OracleResult
from anydepth.evaluate.plain_table import plain_table


def print_oracle(result: OracleResult, console: Console) -> None:
    """The oracle against what needs none, and over n x m the share of sentences that each depth is best for."""
    for model in result.models:
        console.print(_choices(model, console))
        console.print()
        console.print(_distribution(model, console))
        _say(console, f"{ties_of(model)}\n")
    for name, signature in result.signatures.items():
        _say(console, f"{name}: {signature}")


def ties_of(model: ModelOracle) -> str:
    ties = model.ties
    if len(model.layers) == 1:
        return "The model has one depth only: there is nothing to choose."
    return (
        f"Several depths tie for the best on {ties['several']:.0%} of the sentences, all {len(model.layers)} on "
        f"{ties['all']:.0%}; ties count for the fastest."
    )


def _choices(model: ModelOracle, console: Console) -> Table:
    table = plain_table(console, model.label, "", "depth", "BLEU", "chrF", "mean n", "mean m", "seconds", "time")
    whole = median(model.timing.deepest)
    for key, one in model.choices.items():
        table.add_row(
            key,
            one.name,
            f"{one.bleu:.2f}",
            f"{one.chrf:.2f}",
            f"{one.encoder_layers:.2f}",
            f"{one.decoder_layers:.2f}",
            "" if one.seconds is None else f"{one.seconds:.2f}",
            "" if one.seconds is None else f"{one.seconds / whole:.2f}",
            style="bold" if key == "oracle" else None,
        )
    return table


def _distribution(model: ModelOracle, console: Console) -> Table:
    title = f"{model.label}: % of sentences that a depth is best for"
    table = plain_table(console, title, "n \\ m", *(str(m) for m in model.columns), "all")
    for n in model.rows:
        shares = [model.share_at(n, m) for m in model.columns]
        table.add_row(str(n), *map(_percent, shares), _percent(_sum(shares)))
    table.add_section()
    columns = [_sum([model.share_at(n, m) for n in model.rows]) for m in model.columns]
    table.add_row("all", *map(_percent, columns), _percent(_sum(columns)))
    return table


def _sum(shares: list[float | None]) -> float | None:
    return sum(share for share in shares if share is not None)


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.1f}"


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
