"""`anydepth import`: a translation model of Hugging Face transformers as a model folder."""

from pathlib import Path
from typing import Annotated

import typer

from anydepth.cli.options import stderr


def import_(
    model: Annotated[
        str,
        typer.Argument(
            help="A folder, or a model on the hub such as Helsinki-NLP/opus-mt-fr-en: Marian (OPUS-MT), M2M100, NLLB "
            "or mBART.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output folder.", show_default=False)],
    pair: Annotated[
        list[str] | None,
        typer.Option(
            help="Language pair, such as fr-en or fra_Latn-eng_Latn; may be repeated. Needed where the model has "
            "several languages.",
            show_default=False,
        ),
    ] = None,
    check: Annotated[
        bool, typer.Option(help="Compare logits and outputs with transformers, if that is installed.")
    ] = True,
) -> None:
    """Import a translation model of Hugging Face transformers, at its full depth.

    No code of the model is run. The import has the same tokens as transformers on some sentences, or it fails. Then it
    translates, and training can start from it: `init_from`.
    """
    from anydepth.export.importing import import_model

    with stderr.status(f"importing {model}"):
        result = import_model(model, out, pair or [], check=check)
    if result is not None:
        print(
            f"same tokens as transformers: {result.same} of {result.sentences}; logits differ by at most "
            f"{result.difference:.1e}"
        )
        if result.same_subwords is None:
            stderr.print("transformers could not load its own tokenizer here: subwords were not compared")
        elif result.same_subwords < result.sentences:
            stderr.print(
                f"warning: transformers splits {result.sentences - result.same_subwords} of {result.sentences} "
                "sentences into other subwords"
            )
    else:
        why = "transformers is not installed" if check else "--no-check"
        stderr.print(f"the import was not compared with transformers ({why})")
    size = sum(path.stat().st_size for path in out.iterdir())
    stderr.print(f"{out}: {size / 1e6:.1f} MB; try it: echo ... | anydepth translate {out}")
