"""What the oracle found as a folder to keep: a page that needs nothing else, the picture, the numbers, each line."""

import json
from collections.abc import Sequence
from pathlib import Path

from anydepth.errors import UserError
from anydepth.evaluate.heat_maps import Frame, heat_maps
from anydepth.evaluate.oracle_result import ModelOracle, OracleResult
from anydepth.evaluate.oracle_table import ties_of
from anydepth.evaluate.page import render_page
from anydepth.evaluate.report import file_stems
from anydepth.files import write_atomically

PICTURE = "distribution.png"
EXAMPLES = 6
HEADER = ("line", "best depth", "chrF", "chrF at the deepest", "source", "best output")


def write_oracle_report(result: OracleResult, folder: Path) -> Path:
    """Write index.html, oracle.json, the picture and a TSV for each model into `folder`; return the page's path."""
    pictures = {PICTURE: draw_distribution(result.models)}
    page = folder / "index.html"
    try:
        for old in folder.glob("oracle*.tsv"):  # of a report with other models
            old.unlink()
        for name, model in tsv_names(result).items():
            write_atomically(folder / name, lines_of(model))
        write_atomically(folder / PICTURE, pictures[PICTURE])
        content = json.dumps(result.to_json(), indent=2, ensure_ascii=False, allow_nan=False)
        write_atomically(folder / "oracle.json", content + "\n")
        write_atomically(page, render(result, pictures))
    except OSError as error:
        raise UserError(f"cannot write the report to {folder}: {error.strerror}; give another folder") from error
    return page


def draw_distribution(models: Sequence[ModelOracle]) -> bytes:
    """Figure 2 of the paper: the share of sentences that each depth is best for."""
    frame = Frame.around(models)
    grids = {model.label: 100 * frame.fill(model.share_at) for model in models}
    return heat_maps(frame, grids, "Share of sentences that a depth is best for (%)", "Blues", low=0.0)


def render(result: OracleResult, pictures: dict[str, bytes]) -> str:
    return render_page(
        "oracle.html.j2",
        pictures,
        result=result,
        conditions=result.conditions,
        models=[{"oracle": model, "ties": ties_of(model), "gains": model.gains(EXAMPLES)} for model in result.models],
        picture=PICTURE,
        files=list(tsv_names(result)),
    )


def tsv_names(result: OracleResult) -> dict[str, ModelOracle]:
    if len(result.models) == 1:
        return {"oracle.tsv": result.models[0]}
    stems = file_stems(result.labels)
    return {f"oracle.{stems[model.label]}.tsv": model for model in result.models}


def lines_of(model: ModelOracle) -> str:
    """A line for each sentence, its cells split by tabs; a tab within a text becomes a space."""
    table = model.table
    rows = [HEADER]
    for row, place in enumerate(model.chosen.tolist()):
        best, deepest = (f"{table.chrf_nk[row, k]:.2f}" for k in (place, model.deepest))
        rows.append((str(row + 1), table.depths[place], best, deepest, table.sources[row], table.outputs[place][row]))
    return "".join("\t".join(_cell(cell) for cell in row) + "\n" for row in rows)


def _cell(text: str) -> str:
    return " ".join(text.splitlines()).replace("\t", " ")
