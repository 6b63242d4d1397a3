"""What to show of the oracle: what it would be worth to know the best depth of each sentence, and where that is."""

from anydepth.evaluate import report as rp
from anydepth.evaluate.experiment import counted
from anydepth.evaluate.figures import Scale, depth_map
from anydepth.evaluate.oracle import Choice, ModelOracle, OracleResult

EXAMPLES = 6
HEADER = ("line", "best depth", "chrF", "chrF at the deepest", "source", "best output")
LEAD = (
    "The oracle sees the reference. It takes, for each sentence, the depth whose translation has the best chrF, and "
    "the fastest of them where several have it. No other choice has a better chrF: this is the most there is to gain. "
    "Part of it is luck, since the best of many translations beats each of them even where no depth is better than "
    "another."
)
SHARES = (
    rp.Column("depth", lambda one: one.depth),
    rp.Column("best for", lambda one: one.count, help="sentences that it is best for"),
    rp.Column("share", lambda one: one.share, ".1%"),
    rp.Column("BLEU", lambda one: one.bleu, ".2f", "of the whole test set at this depth alone"),
    rp.Column("chrF", lambda one: one.chrf, ".2f", "of the whole test set at this depth alone"),
)


def oracle_report(result: OracleResult) -> rp.Report:
    conditions, files, several = result.conditions, tsv_files(result), len(result.models) > 1
    sections: list[rp.Section] = [rp.Text(LEAD, where="page")]
    sections += [rp.Text(conditions.doubt, "warning")] if conditions.doubt else []
    for model in result.models:
        sections += [*([rp.Heading(model.label, 3)] if several else []), _tiles(model)]
    sections += [rp.Heading("Where the best translations are"), *_maps(result)]
    for model in result.models:
        points = [(one.encoder_layers, one.decoder_layers, 100 * one.share) for one in model.shares]
        title = f"{model.label}: % of sentences that a depth is best for"
        sections += [_choices(model), rp.tabulate_depths(title, points, sum, ("all", sum))]
        sections.append(rp.Text(f"{model.label}: {ties(model)}" if several else ties(model)))
    note = "Fastest first: by decoder, then by encoder layers."
    passes = f"median of {counted(conditions.repeats, 'pass')} with each sentence at its best depth, sentences of a "
    more = {
        "time": f"{passes}depth in batches together, and of as many at the deepest, in turn, after a warm-up",
        "each line": f"{', '.join(files)} beside this page",
    }
    sections += [
        rp.Details("Every depth", [rp.tabulate(SHARES, model.shares, model.label, note) for model in result.models]),
        _examples(result),
        rp.Text(f"engine: {conditions.engines}", where="terminal"),
        *(rp.Text(f"{name}: {text}", where="terminal") for name, text in result.signatures.items()),
        conditions.details(result.signatures, more),
    ]
    title = f"Which depth is best for which sentence: {', '.join(result.labels)}"
    return rp.Report(title, sections, result.to_json(), conditions.lead, files)


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
    stems = rp.file_stems(result.labels)
    return {f"oracle.{stems[model.label]}.tsv": lines(model) for model in result.models}


def lines(model: ModelOracle) -> str:
    """A line for each sentence, its cells split by tabs; a tab within a text becomes a space."""
    table = model.table
    rows = [HEADER]
    for row, place in enumerate(model.chosen.tolist()):
        best, deepest = (f"{table.chrf_nk[row, k]:.2f}" for k in (place, model.deepest))
        rows.append((str(row + 1), table.depths[place], best, deepest, table.sources[row], table.outputs[place][row]))
    return "".join("\t".join(" ".join(cell.splitlines()).replace("\t", " ") for cell in row) + "\n" for row in rows)


def _tiles(model: ModelOracle) -> rp.Tiles:
    oracle, deepest = model.choices["oracle"], model.choices["deepest"]
    gain = f"{oracle.bleu:.1f}, where {deepest.name} has {deepest.bleu:.1f}"
    ratio, layers = f"{100 * model.timing.ratio:.0f} %", f"{oracle.encoder_layers:.1f} and {oracle.decoder_layers:.1f}"
    return rp.Tiles(
        [
            rp.Tile("Quality with an oracle", f"{oracle.bleu - deepest.bleu:+.1f} BLEU", gain),
            rp.Tile("Time with an oracle, measured", ratio, f"of what {deepest.name} takes for the same sentences"),
            rp.Tile("Layers with an oracle, on average", layers, f"encoder and decoder; {deepest.name} is the deepest"),
        ]
    )


def _maps(result: OracleResult) -> list[rp.Figure]:
    """Figure 2 of the paper, for each model: the share of sentences that each depth is best for."""
    stems, maps = rp.file_stems(result.labels), {model.label: model.percentages for model in result.models}
    name, title, scale = (
        "distribution",
        "Sentences that a depth is best for (%)",
        Scale("Blues", "% of the sentences", 0),
    )
    if len(maps) == 1:
        return [depth_map(name, title, result.models[0].percentages, scale)]
    return [
        depth_map(f"{name}-{stems[label]}", f"{label}: {title.lower()}", cells, scale, beside=maps.values())
        for label, cells in maps.items()
    ]


def _choices(model: ModelOracle) -> rp.Table:
    whole = model.choices["deepest"].seconds or 1.0

    def ratio(choice: tuple[str, Choice]) -> rp.Value:
        return None if choice[1].seconds is None else choice[1].seconds / whole

    columns = [
        rp.Column("", lambda one: one[0]),
        rp.Column("depth", lambda one: one[1].name),
        rp.Column("BLEU", lambda one: one[1].bleu, ".2f"),
        rp.Column("mean chrF", lambda one: one[1].chrf, ".2f", "of the sentences, each by itself"),
        rp.Column("mean n", lambda one: one[1].encoder_layers, ".2f", "encoder layers on average"),
        rp.Column("mean m", lambda one: one[1].decoder_layers, ".2f", "decoder layers on average"),
        rp.Column("seconds", lambda one: one[1].seconds, ".2f", "of the oracle and the deepest depth alone"),
        rp.Column("time", ratio, ".2f", "in times of the deepest depth's"),
    ]
    return rp.tabulate(columns, model.choices.items(), model.label, strong=lambda one: bool(one[0] == "oracle"))


def _examples(result: OracleResult) -> rp.Details:
    sections: list[rp.Section] = [rp.Text("The sentences that gain most from another depth than the deepest.", "soft")]
    for model in result.models:
        sections += [rp.Heading(model.label, 3)] if len(result.models) > 1 else []
        cards: list[rp.Section] = [one.card() for one in model.gains(EXAMPLES)]
        sections += cards or [rp.Text("There are none: no other depth does better on any sentence.")]
    return rp.Details("Examples", sections)
