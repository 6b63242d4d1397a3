"""What to show of the oracle: what it would be worth to know the best depth of each sentence, and where that is."""

from anydepth.evaluate.experiment import counted
from anydepth.evaluate.figures import Frame, Scale, depth_map
from anydepth.evaluate.oracle import ModelOracle, OracleResult
from anydepth.evaluate.report import (
    Column,
    Details,
    Figure,
    Heading,
    Report,
    Row,
    Section,
    Table,
    Terms,
    Text,
    Tile,
    Tiles,
    Value,
    file_stems,
)

EXAMPLES = 6
HEADER = ("line", "best depth", "chrF", "chrF at the deepest", "source", "best output")
LEAD = (
    "The oracle sees the reference. It takes, for each sentence, the depth whose translation has the best chrF, and "
    "the fastest of them where several have it. No other choice has a better chrF: this is the most there is to gain. "
    "Part of it is luck, since the best of many translations beats each of them even where no depth is better than "
    "another."
)


def oracle_report(result: OracleResult) -> Report:
    conditions = result.conditions
    files = tsv_files(result)
    several = len(result.models) > 1
    sections: list[Section] = [Text(LEAD, where="page")]
    for model in result.models:
        sections += [Heading(model.label, 3)] if several else []
        sections.append(_tiles(model))
    sections += [Heading("Where the best translations are"), *_maps(result)]
    for model in result.models:
        sections += [_choices(model), _distribution(model)]
        sections.append(Text(f"{model.label}: {ties(model)}" if several else ties(model)))
    sections.append(Details("Every depth", [_shares(model) for model in result.models]))
    sections.append(_examples(result))
    sections += [Text(f"{name}: {text}", where="terminal") for name, text in result.signatures.items()]
    passes = counted(conditions.repeats, "pass")
    more = {
        "time": f"median of {passes} with each sentence at its best depth, sentences of a depth in batches together, "
        "and of as many at the deepest, in turn, after a warm-up",
        "each line": f"{', '.join(files)} beside this page",
    }
    sections.append(conditions.details(result.signatures, more))
    title = f"Which depth is best for which sentence: {', '.join(result.labels)}"
    return Report(title, sections, result.to_json(), conditions.lead, files)


def ties(model: ModelOracle) -> str:
    if len(model.layers) == 1:
        return "The model has one depth only: there is nothing to choose."
    return (
        f"Several depths tie for the best on {model.ties['several']:.0%} of the sentences, all {len(model.layers)} on "
        f"{model.ties['all']:.0%}; ties count for the fastest."
    )


def tsv_files(result: OracleResult) -> dict[str, str]:
    if len(result.models) == 1:
        return {"oracle.tsv": lines(result.models[0])}
    stems = file_stems(result.labels)
    return {f"oracle.{stems[model.label]}.tsv": lines(model) for model in result.models}


def lines(model: ModelOracle) -> str:
    """A line for each sentence, its cells split by tabs; a tab within a text becomes a space."""
    table = model.table
    rows = [HEADER]
    for row, place in enumerate(model.chosen.tolist()):
        best, deepest = (f"{table.chrf_nk[row, k]:.2f}" for k in (place, model.deepest))
        rows.append((str(row + 1), table.depths[place], best, deepest, table.sources[row], table.outputs[place][row]))
    return "".join("\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in row) + "\n" for row in rows)


def _tiles(model: ModelOracle) -> Tiles:
    oracle, deepest = model.choices["oracle"], model.choices["deepest"]
    return Tiles(
        [
            Tile(
                "Quality with an oracle",
                f"{oracle.bleu - deepest.bleu:+.1f} BLEU",
                f"{oracle.bleu:.1f}, where {deepest.name} has {deepest.bleu:.1f}",
            ),
            Tile(
                "Time with an oracle, measured",
                f"{100 * model.timing.ratio:.0f} %",
                f"of what {deepest.name} takes for the same sentences",
            ),
            Tile(
                "Layers with an oracle, on average",
                f"{oracle.encoder_layers:.1f} and {oracle.decoder_layers:.1f}",
                f"encoder and decoder; {deepest.name} is the deepest",
            ),
        ]
    )


def _maps(result: OracleResult) -> list[Figure]:
    """Figure 2 of the paper, for each model: the share of sentences that each depth is best for."""
    frame, stems = Frame.around(result.models), file_stems(result.labels)
    grids = {model.label: 100 * frame.fill(model.share_at) for model in result.models}
    scale = Scale.over(grids.values(), "Blues", "% of the sentences", low=0.0)
    title, several = "Sentences that a depth is best for (%)", len(grids) > 1
    return [
        depth_map(
            f"distribution-{stems[label]}" if several else "distribution",
            f"{label}: {title.lower()}" if several else title,
            frame,
            grid,
            scale,
        )
        for label, grid in grids.items()
    ]


def _choices(model: ModelOracle) -> Table:
    columns = [
        Column(""),
        Column("depth"),
        Column("BLEU", format=".2f"),
        Column("chrF", "mean over the sentences", ".2f"),
        Column("mean n", "encoder layers on average", ".2f"),
        Column("mean m", "decoder layers on average", ".2f"),
        Column("seconds", "of the oracle and the deepest depth alone; the sweep measures every depth", ".2f"),
        Column("time", "in times of the deepest depth's", ".2f"),
    ]
    whole = model.choices["deepest"].seconds or 1.0
    rows = [
        Row(
            [
                key,
                one.name,
                one.bleu,
                one.chrf,
                one.encoder_layers,
                one.decoder_layers,
                one.seconds,
                None if one.seconds is None else one.seconds / whole,
            ],
            strong=key == "oracle",
        )
        for key, one in model.choices.items()
    ]
    return Table(columns, rows, model.label)


def _distribution(model: ModelOracle) -> Table:
    def percent(shares: list[float | None]) -> Value:
        return 100 * sum(share for share in shares if share is not None)

    columns = [Column("n \\ m"), *(Column(str(m), format=".1f") for m in model.columns), Column("all", format=".1f")]
    rows: list[list[Value]] = []
    for n in model.rows:
        shares = [model.share_at(n, m) for m in model.columns]
        rows.append([str(n), *(None if one is None else 100 * one for one in shares), percent(shares)])
    of_columns = [percent([model.share_at(n, m) for n in model.rows]) for m in model.columns]
    foot = ["all", *of_columns, percent([one.share for one in model.shares])]
    title = f"{model.label}: % of sentences that a depth is best for"
    return Table(columns, rows, title, foot=[foot], where="terminal")


def _shares(model: ModelOracle) -> Table:
    columns = [
        Column("depth"),
        Column("best for", "sentences that it is best for"),
        Column("share", format=".1%"),
        Column("BLEU", "of the whole test set at this depth alone", ".2f"),
        Column("chrF", "of the whole test set at this depth alone", ".2f"),
    ]
    rows: list[list[Value]] = [[one.depth, one.count, one.share, one.bleu, one.chrf] for one in model.shares]
    return Table(columns, rows, model.label, "Fastest first: by decoder, then by encoder layers.")


def _examples(result: OracleResult) -> Details:
    sections: list[Section] = [Text("The sentences that gain most from another depth than the deepest.", "soft")]
    for model in result.models:
        sections += [Heading(model.label, 3)] if len(result.models) > 1 else []
        gains = model.gains(EXAMPLES)
        for one in gains:
            outputs = [(f"{depth}, chrF {chrf:.0f}", text) for depth, text, chrf in (one.best, one.deepest)]
            sections.append(Terms([("source", one.source), ("reference", one.reference), *outputs], boxed=True))
        if not gains:
            sections.append(Text("There are none: no other depth does better on any sentence."))
    return Details("Examples", sections)
