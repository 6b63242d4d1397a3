"""`anydepth export`: take a depth out of a model, for another engine or on its own."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from anydepth.artifact import bundled_model
from anydepth.cli.options import ModelOrBundled, Threads, complete_depths, stderr

if TYPE_CHECKING:
    from anydepth.export.classifier import LabelComparison
    from anydepth.export.export import ExportCheck
    from anydepth.export.sample import SampleText
    from anydepth.infer.classifier import Classifier
    from anydepth.infer.translator import Translator


INT4 = "int4"
IN_FILES = ("float32", "int8", INT4)  # float32, the default, is int8


def export(
    to: Annotated[
        str,
        typer.Option(
            help="ctranslate2; onnx; transformers (a folder for from_pretrained); anydepth (a model folder); runtime "
            "(one file with every depth, for anydepth-run and the runtime package); or web (a page that translates in "
            "the browser).",
            show_default=False,
            autocompletion=lambda: ["ctranslate2", "onnx", "transformers", "anydepth", "runtime", "web"],
        ),
    ],
    out: Annotated[Path, typer.Option(help="Output folder; with --to runtime, a file.", show_default=False)],
    model: ModelOrBundled = None,
    depth: Annotated[
        str | None,
        typer.Option(
            help="Depth, such as 6-2; with --to anydepth also all.  [default: the model's default depth]",
            show_default=False,
            autocompletion=complete_depths,
        ),
    ] = None,
    default_depth: Annotated[
        str | None,
        typer.Option(
            help="With --to anydepth --depth all: the default depth of the new model.",
            show_default=False,
            autocompletion=complete_depths,
        ),
    ] = None,
    quantize: Annotated[
        str,
        typer.Option(
            help="Compute type. float32; for ctranslate2 also int8, int8_float16, int8_bfloat16, int16, float16 and "
            "bfloat16; for anydepth also float16 and bfloat16, as storage only; for runtime and web always int8, or "
            "int4, which has four bits for each feed-forward weight."
        ),
    ] = "float32",
    source: Annotated[
        Path | None,
        typer.Option(
            help="Sentences for the check.  [default: the model's sample, or the run's validation text]",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Reference translations, for BLEU.", show_default=False)
    ] = None,
    sentences: Annotated[int, typer.Option(min=1, help="Maximum number of sentences.")] = 500,
    pair: Annotated[
        str | None, typer.Option(help="Language pair, such as en-fr, of a multilingual model.", show_default=False)
    ] = None,
    shortlist: Annotated[
        bool,
        typer.Option(help="With --to runtime and web: take the model's lexical shortlist along, which is then used."),
    ] = True,
    threads: Threads = None,
) -> None:
    """Export one depth to CTranslate2, ONNX or a model folder, or all depths to one file, and check the result.

    The check translates sample sentences. In float32 the tokens must be those of the source model, except at ties;
    otherwise nothing is written. With another compute type the difference in BLEU is printed.
    """
    from anydepth.device import cores
    from anydepth.errors import UserError
    from anydepth.export.sample import find_sample
    from anydepth.infer.translator import Translator

    given = model or bundled_model()
    if classifies(given):
        if reference is not None or pair is not None or default_depth is not None:
            raise UserError("a model that classifies has no references, pairs or default depth: leave these out")
        from anydepth.export.classifier import find_texts
        from anydepth.infer.classifier import Classifier

        classifier = Classifier.load(given, engine="torch", device="cpu", threads=threads or cores())
        sample = find_texts(classifier, given, source, sentences)
        _export_classifier(classifier, sample, to, out, depth, quantize)
        return
    whole = depth == "all" and to == "anydepth"
    if default_depth is not None and not whole:
        raise UserError("a default depth is for a model folder with all depths: add --to anydepth --depth all")
    if to in ("runtime", "web"):
        if pair is not None or depth not in (None, "all") or quantize not in IN_FILES:
            raise UserError(
                "a file for the runtime has every depth and pair, in int8 or with --quantize int4: "
                "leave out depth, pair and other compute types"
            )
        translator = Translator.load(model, engine="native", device="cpu", threads=threads)
        sample = find_sample(translator.choices[0], model or bundled_model(), source, reference, sentences)
        _export_whole(translator, to, out, sample, threads or cores(), shortlist, int4=quantize == INT4)
        return
    if quantize == INT4:
        raise UserError("int4 is for --to runtime and web: choose another compute type")
    if not shortlist:
        raise UserError("--no-shortlist is for --to runtime and web: leave it out")
    from anydepth.export.export import ExportRequest  # PyTorch
    from anydepth.export.export import export as run_export

    translator = Translator.load(model, engine="torch", device="cpu", threads=threads)
    if pair is not None:
        found = next((one for one in translator.pairs if one.name == pair), None)
        if found is None:
            known = ", ".join(one.name for one in translator.pairs)
            raise UserError(f"this model has no language pair {pair!r}; it has: {known}")
        translator = translator.between(found.source, found.target)
    if translator.must_choose and not whole:
        names = ", ".join(one.name for one in translator.pairs)
        raise UserError(f"this model has several language pairs, {names}: choose one with --pair")
    of_pair = translator.choices[0]
    chosen = depth if depth == "all" else translator.menu[depth].name
    sample = find_sample(of_pair, model or bundled_model(), source, reference, sentences)
    request = ExportRequest(translator, chosen, quantize, threads or cores(), default_depth)
    with stderr.status(f"exporting {chosen} to {to}, then translating {len(sample.sources):,} sentences with both"):
        result = run_export(request, to, out, sample)
    _print_check(result, quantize, of_several=chosen == "all")
    if chosen == "all" and translator.selector is not None:
        stderr.print("its selector was left behind: `anydepth select` trains one for these weights")
    size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
    what = "every depth" if chosen == "all" else f"depth {chosen}"
    stderr.print(f"{out}: {what}, {size / 1e6:.1f} MB; its README.md says how to run it")


def classifies(model: Path) -> bool:
    from anydepth.artifact.model import load_model

    return load_model(model, "cpu", defer=True).kind == "classifier"


def _export_classifier(
    classifier: "Classifier", sample: "SampleText", to: str, out: Path, depth: str | None, quantize: str
) -> None:
    from anydepth.errors import UserError
    from anydepth.export.classifier import ClassifierExport, export_classifier, export_file

    threads = classifier.engine.threads
    if to == "runtime":
        if depth not in (None, "all") or quantize not in IN_FILES:
            raise UserError(
                "the file has every depth, in int8 or with --quantize int4: leave out depth and other compute types"
            )
        with stderr.status(f"writing {out}, then classifying with it and with the native engine"):
            found = export_file(classifier, out, sample, threads, int4=quantize == INT4)
        print_labels(max(found, key=lambda one: one.lost), sample.origin, of_several=len(found) > 1)
        size, hint = out.stat().st_size, f"run it with `anydepth classify {out}` or `anydepth serve {out}`"
    elif quantize == INT4:
        raise UserError("int4 is for --to runtime: choose another compute type")
    else:
        chosen = classifier.menu.default.name if depth is None else classifier.check(depth)
        with stderr.status(f"exporting {chosen} to {to}, then classifying {len(sample.sources):,} texts with both"):
            one = export_classifier(ClassifierExport(classifier, chosen, quantize, threads), to, out, sample)
        print_labels(one, sample.origin)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        hint = "its README.md says how to run it"
    what = "every depth" if to == "runtime" else f"depth {chosen}"
    stderr.print(f"{out}: {what}, {size / 1e6:.1f} MB; {hint}")


def print_labels(found: "LabelComparison", origin: str, of_several: bool = False) -> None:
    at = f" at {found.depth}, the worst" if of_several else ""
    print(f"same labels{at}: {found.same:,} of {found.texts:,} ({origin})")
    if found.accuracy is not None:
        before, after = found.accuracy
        print(f"accuracy: {before:.2f} before, {after:.2f} exported ({after - before:+.2f})")


def _export_whole(
    translator: "Translator", to: str, out: Path, sample: "SampleText", threads: int, shortlist: bool, int4: bool
) -> None:
    """Every depth in one file, alone or with the page that runs it."""
    from anydepth.export.runtime import compare_file, export_runtime
    from anydepth.export.web import MODEL_FILE, export_web

    write = export_web if to == "web" else export_runtime
    with stderr.status(f"writing {out}, then translating with it and with the native engine"):
        count = write(translator, out, sample, threads, shortlist=shortlist, int4=int4)
        file = out / MODEL_FILE if to == "web" else out
        changes = compare_file(translator, file, sample, threads, shortlist=shortlist) if int4 else []
    if int4:
        worst = max(changes, key=lambda one: one.lost)
        print(
            f"same tokens as int8 at {worst.depth}, the worst: {worst.same:,} of {worst.sentences:,} ({sample.origin})"
        )
        if worst.bleu is None:
            print(f"BLEU of int4's output against int8's: {worst.agreement:.1f}")
        else:
            before, after = worst.bleu
            print(f"BLEU: {before:.2f} in int8, {after:.2f} in int4 ({after - before:+.2f})")
    else:
        print(f"same tokens at each of {len(translator.menu)} depths: {count:,} of {count:,} ({sample.origin})")
    if to == "web":
        size = sum(path.stat().st_size for path in out.iterdir())
        hint = f"host the folder, or try it: python -m http.server --directory {out}"
    else:
        size, hint = out.stat().st_size, f"run it with anydepth-run, or `anydepth translate {out}`"
    stderr.print(f"{out}: every depth, {size / 1e6:.1f} MB; {hint}")


def _print_check(result: "ExportCheck", quantize: str, of_several: bool) -> None:
    count, origin = len(result.sample.sources), result.sample.origin
    at = f" at {result.depth}, the worst" if of_several else ""
    print(f"same tokens{at}: {result.same:,} of {count:,} ({origin})")
    if result.bleu is not None:
        before, after = result.bleu
        print(f"BLEU: {before:.2f} before, {after:.2f} exported ({after - before:+.2f})")
    elif quantize != "float32":
        print(
            f"BLEU of the exported model's output against the source model's: {result.agreement:.1f}; "
            "give --source and --reference to see what it costs"
        )
    if quantize == "float32":
        for one in result.differences:
            print(f"a tie broke ({one.gap:.1e}): {one.expected!r} became {one.found!r}")
