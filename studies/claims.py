"""The claims of five papers, the runs that decide them, and what counts as shown: written down before any run.

`make studies` goes on with what is unfinished (studies/run.py), and docs/studies.md shows what is there. Arms are plain
`anydepth train` runs of one of the recipes in recipes/studies, each with several seeds. In changes and commands, {out}
is the folder of a claim's runs, {data} that of the corpora, {runs ARM} the runs of an arm that did not diverge, and
{best ARM} the value of X in the ARM-X with the lowest validation loss.

Everything is chosen on validation text; each run translates the test set once. All arms of a comparison have the same
optimizer and the same tokenizer.

The hours of a claim are those of one core: processor seconds of the median of 20 updates, one thread, times updates and
seeds, and a tenth for validation and test. Measured on 2026-11-18 on an AMD EPYC (family 26, 2.6 GHz, 2 cores, another
training beside). Arms that two claims share count for the first. Seconds for an update:

    tied-multi, distilled   vanilla 6-6 0.35, 1-1 0.09; sampled 0.34, sampled-encoder 0.51, exact 2.1 (Multi30k, of as
                            many tokens, for Tatoeba; depths between are interpolated)
    flexible                individual 6-2 0.24, 1-1 0.08; multi-task 0.67, layerdrop with 8 batches 0.93
    latent                  6-24 static 0.19, latent 0.20, layerdrop 0.13; three languages 0.63
    ckd                     teacher 0.16, student alone 0.08, taught 0.12
    word-depths             static 3.5, all exits 3.5, MI 3.0 (10 updates, from scratch, of MiniLM's size); halting is
                            taken to be alike; and 9 hours for accuracy-and-time

These are of float32. Since 2026-11-20 the first three claims and the last one train in bfloat16, with the same losses:
in 40 updates of vanilla 6-6 they differ by less than 0.0003, and take 0.71 of the time where the processor has it.
"""

from plan import (
    ONLY,
    Arm,
    Claim,
    Items,
    PlannedComparison,
    PlannedSystem,
    Step,
    TestSet,
    compare_at,
    mean_over,
    of_depth,
)

TATOEBA = "{data}/tatoeba-en-fr"
MULTI30K = "{data}/multi30k"
REVIEWS = "{data}/movie-reviews"
COST = """\
All runs together take about 230 hours of one core, estimated on 2026-11-18 from up to 20 updates of 20 arms on an AMD
EPYC (2.6 GHz, one thread); see `studies/claims.py`. Two cores need half as many hours.
"""

FETCH_TATOEBA = Step("tatoeba", ("data", "tatoeba-en-fr", TATOEBA), f"{TATOEBA}/train.en")
FETCH_REVIEWS = Step("reviews", ("data", "movie-reviews", REVIEWS), REVIEWS)
FETCH_MINILM = Step("minilm", ("data", "minilm", "{data}/minilm"), "{data}/minilm")

# Tatoeba, French to English, 6-6, width 128, Muon, 9,600 updates.
TIED = "recipes/studies/tied-multi.yaml"
TIED_BASE = (
    f"data.train={{source: {TATOEBA}/train.fr, target: {TATOEBA}/train.en}}",
    f"data.valid={{source: {TATOEBA}/valid.fr, target: {TATOEBA}/valid.en}}",
    *("model.width=128", "model.ffn=512", "train.optimizer=muon", "train.steps=9600", "train.warmup=600"),
    "train.precision=bfloat16",
    *("train.valid_every=800", "train.checkpoint_every=200"),
)
TATOEBA_TEST = TestSet(f"{TATOEBA}/test.fr", f"{TATOEBA}/test.en")
TOKENIZER = "data.tokenizer={out}/vanilla-6-6/seed-1"
ENDS = "train.valid_depths=[6-6, 1-1]"
VANILLA_DEPTHS = ("4-4", "2-2", "1-1", "6-2")


def tied(name: str, objective: str, *changes: str, needs: tuple[str, ...] = ("vanilla-6-6",), seeds: int = 3) -> Arm:
    chosen = f"objective={{name: tied-multi, {objective}}}"
    return Arm(name, TIED, (*TIED_BASE, TOKENIZER, ENDS, chosen, *changes), seeds, needs)


TIED_MODES = ("sampled", "sampled-encoder", "exact")
TIED_ARMS: Items = (
    FETCH_TATOEBA,
    Arm("vanilla-6-6", TIED, TIED_BASE, needs=("tatoeba",)),
    *(
        Arm(f"vanilla-{depth}", TIED, (*TIED_BASE, TOKENIZER, *of_depth(depth)), needs=("vanilla-6-6",))
        for depth in VANILLA_DEPTHS
    ),
    tied("sampled", "mode: sampled"),
    tied("sampled-encoder", "mode: sampled-encoder"),
    # Cut, 14 hours: encoder_exits sandwich and two, at 1.6 times the cost of sampled-encoder, decide no claim.
    tied("exact", "mode: exact"),
    # An exact update takes 6.8 times a sampled one (docs/results.md): as much time as `sampled` has.
    tied(
        "exact-equal-time",
        "mode: exact",
        "train.steps=1400",
        "train.warmup=90",
        "train.checkpoint_every=50",
        "train.valid_every=100",
    ),
    *(compare_at(f"at-{depth}", depth, (f"vanilla-{depth}", *TIED_MODES)) for depth in ("6-6", *VANILLA_DEPTHS)),
    compare_at("exact-and-sampled", "6-6", ("sampled", "exact", "exact-equal-time")),
    Step(
        "oracle",  # Figure 2
        ("oracle", "{out}/sampled-encoder/seed-1", *TATOEBA_TEST.options, "--out", "{out}/report-oracle"),
        "{out}/report-oracle/oracle.json",
        ("sampled-encoder",),
        result=True,
    ),
)

DISTILLED = (
    f"data.train=[{{source: {TATOEBA}/train.fr, target: {TATOEBA}/train.en}}, "
    "{source: {out}/closest-of-four/distilled.fr, target: {out}/closest-of-four/distilled.en}]"
)
RECURRENT = ("model.encoder_shared=all", "model.decoder_shared=all")
DISTILLED_ARMS: Items = (
    FETCH_TATOEBA,
    Arm("vanilla-6-6", TIED, TIED_BASE, needs=("tatoeba",)),
    Step(
        "distill",
        (
            "distill",
            "{out}/vanilla-6-6/seed-1",
            "--source",
            f"{TATOEBA}/train.fr",
            "--reference",
            f"{TATOEBA}/train.en",
            "--beam",
            "4",
            "--out",
            "{out}/closest-of-four",
        ),  # of the beam, the closest to the reference
        "{out}/closest-of-four/distilled.en",
        ("vanilla-6-6",),
    ),
    tied("sampled-encoder", "mode: sampled-encoder"),
    tied("distilled", "mode: sampled-encoder", DISTILLED, needs=("vanilla-6-6", "distill")),
    tied("recurrent", "mode: sampled-encoder", *RECURRENT),
    tied("recurrent-distilled", "mode: sampled-encoder", DISTILLED, *RECURRENT, needs=("vanilla-6-6", "distill")),
    *(compare_at(f"lift-{depth}", depth, ("sampled-encoder", "distilled")) for depth in ("1-1", "2-2", "6-6")),
    compare_at("lift-recurrent-2-2", "2-2", ("recurrent", "recurrent-distilled")),
    Step(
        "greedy-and-beam",
        (
            *("beam={out}/sampled-encoder/seed-1,5-6,4", "greedy={out}/recurrent-distilled/seed-1,2-2,1"),
            *(*TATOEBA_TEST.options, "--out", "{out}/report-timing"),
        ),
        "{out}/report-timing/timing.json",
        ("recurrent-distilled", "sampled-encoder"),
        result=True,
        alone=True,
        script="studies/timing.py",
    ),
)

# Multi30k, English to German, 6-2 with 8 tasks, width 128, dropout 0.3, Muon.
FLEXIBLE = "recipes/studies/flexible-depth.yaml"
FLEXIBLE_BASE = (
    f"data.train={{source: {MULTI30K}/train.en, target: {MULTI30K}/train.de}}",
    f"data.valid={{source: {MULTI30K}/val.en, target: {MULTI30K}/val.de}}",
    *("model.width=128", "model.ffn=512", "model.encoder_layers=6", "model.decoder_layers=2", "model.dropout=0.3"),
    *("train.optimizer=muon", "train.learning_rate=2.0e-3", "train.steps=8000", "train.warmup=500"),
    "train.precision=bfloat16",
    *("train.valid_every=500", "train.checkpoint_every=200"),
)
MULTI30K_TEST = TestSet(f"{MULTI30K}/test_2016_flickr.en", f"{MULTI30K}/test_2016_flickr.de")
SAME_TOKENIZER = "data.tokenizer={out}/individual-6-2/seed-1"
ALL_DEPTHS = tuple(f"{n}-{m}" for n in (1, 2, 3, 6) for m in (1, 2))


def flexible(name: str, objective: str, *changes: str, seeds: int = 3) -> Arm:
    settings = (*FLEXIBLE_BASE, SAME_TOKENIZER, "train.valid_depths=[6-2, 1-1]", f"objective={{{objective}}}", *changes)
    return Arm(name, FLEXIBLE, settings, seeds, ("individual-6-2",))


def compare_means(name: str, depths: tuple[str, ...], *arms: str) -> PlannedComparison:
    return PlannedComparison(name, tuple(mean_over(depths, arm) for arm in arms))


MULTI_TASK = ("multi-task", "multi-task-2x", "multi-task-4x")
VARIANTS = {  # Tables 3 to 5, at the depths that they have
    "left": ALL_DEPTHS,
    "encoder-only": tuple(one for one in ALL_DEPTHS if one.endswith("-2")),
    "decoder-only": tuple(one for one in ALL_DEPTHS if one.startswith("6-")),
    "one-decoder-task": ALL_DEPTHS,
    "three-encoder-depths": tuple(one for one in ALL_DEPTHS if not one.startswith("2-")),
    "smaller-batches": ALL_DEPTHS,
}
FLEXIBLE_ARMS: Items = (
    Arm("individual-6-2", FLEXIBLE, FLEXIBLE_BASE),
    *(
        Arm(f"individual-{one}", FLEXIBLE, (*FLEXIBLE_BASE, SAME_TOKENIZER, *of_depth(one)), needs=("individual-6-2",))
        for one in ALL_DEPTHS
        if one != "6-2"
    ),
    flexible("multi-task", "name: flexible"),  # equal updates per task: each update trains all 8
    # Twice the updates cost 1.2 times what all individual models cost.
    flexible("multi-task-2x", "name: flexible", "train.steps=16000", "train.warmup=1000"),
    # Cut to one seed, 12 hours fewer: the end of a curve, which no claim depends on.
    flexible("multi-task-4x", "name: flexible", "train.steps=32000", "train.warmup=2000", seeds=1),
    flexible("left", "name: flexible, strategy: left"),  # Table 3
    flexible("encoder-only", "name: flexible, sides: encoder", "train.valid_depths=[6-2, 1-2]"),  # Table 4
    flexible("decoder-only", "name: flexible, sides: decoder", "train.valid_depths=[6-2, 6-1]"),
    flexible("one-decoder-task", "name: flexible, decoder_tasks: 1"),  # Table 5
    flexible("three-encoder-depths", "name: flexible, encoder_depths: [1, 3, 6]"),
    flexible("smaller-batches", "name: flexible", "train.batch_tokens=600"),
    # As many batches in an update as multi-task has tasks.
    flexible("layerdrop", "name: layerdrop, encoder_p: 0.5, decoder_p: 0.5", "train.accumulate=8"),
    *(compare_at(f"at-{one}", one, (f"individual-{one}", *MULTI_TASK, "layerdrop")) for one in ALL_DEPTHS),
    PlannedComparison(
        "mean-individual",
        (
            PlannedSystem("individual", tuple((f"individual-{one}", one) for one in ALL_DEPTHS)),
            *(mean_over(ALL_DEPTHS, arm) for arm in MULTI_TASK),
        ),
    ),
    *(compare_at(f"layerdrop-{one}", one, ("layerdrop", "multi-task")) for one in ALL_DEPTHS),
    compare_means("mean-layerdrop", ALL_DEPTHS, "layerdrop", "multi-task"),
    *(
        compare_at(f"tables-3-to-5-{one}", one, ("multi-task", *(arm for arm, has in VARIANTS.items() if one in has)))
        for one in ALL_DEPTHS
    ),
    *(compare_means(f"mean-{arm}", has, "multi-task", arm) for arm, has in VARIANTS.items()),
)

# Multi30k, German to English, 6-24, width 64, Adam as in the paper.
FROM_GERMAN_TEST = TestSet(f"{MULTI30K}/test_2016_flickr.de", f"{MULTI30K}/test_2016_flickr.en")
LATENT = "recipes/studies/latent-depth.yaml"
LATENT_BASE = (
    f"data.train={{source: {MULTI30K}/train.de, target: {MULTI30K}/train.en}}",
    f"data.valid={{source: {MULTI30K}/val.de, target: {MULTI30K}/val.en}}",
    *("train.schedule=inverse-sqrt", "train.valid_every=250"),
)
GATES = "name: latent, sides: decoder, gate_learning_rate: 0.05, anneal_from: 200, anneal_steps: 800"
HALF = f"{GATES}, decoder_target: 12, beta: 0.004, lambda: 1.0, finish: hard"  # the pruned model alone
RATES = ("2.5e-4", "5.0e-4", "1.0e-3", "2.0e-3")
WAYS = {
    "static": "name: vanilla",
    "latent": f"{GATES}, finish: soft",
    "fixed": "name: latent, sides: decoder, fixed: 0.5",
}
QUALITY = (*LATENT_BASE, "train.steps=6000", "train.warmup=600", "train.valid_every=500", "train.learning_rate=1.0e-3")
LANGUAGES = ("de", "fr", "cs")
LATENT_ARMS: Items = (
    *(
        Arm(
            f"{way}-{norm}-{rate}",
            LATENT,
            (
                *LATENT_BASE,
                f"model.norm={norm}",
                f"objective={{{objective}}}",
                f"train.learning_rate={rate}",
                "train.steps=2000",
                "train.warmup=200",
            ),
        )
        for norm in ("post", "none")  # pre-norm has no vanishing gradient to repair
        for way, objective in WAYS.items()
        for rate in RATES
    ),
    Arm("quality-static-24", LATENT, QUALITY),
    Arm("quality-static-12", LATENT, (*QUALITY, "model.decoder_layers=12")),
    Arm("quality-latent-24", LATENT, (*QUALITY, f"objective={{{GATES}, finish: soft}}")),
    Arm("quality-latent-12", LATENT, (*QUALITY, f"objective={{{HALF}}}")),
    Arm("quality-layerdrop", LATENT, (*QUALITY, "objective={name: layerdrop, encoder_p: 0, decoder_p: 0.5}")),
    compare_at("pruned", ONLY, ("quality-static-12", "quality-latent-12", "quality-static-24")),
    PlannedComparison(
        "deep",
        (
            *(PlannedSystem(arm, ((arm, ONLY),)) for arm in ("quality-static-24", "quality-latent-24")),
            PlannedSystem("quality-layerdrop", (("quality-layerdrop", "6-24"),)),
        ),
    ),
    *(
        Arm(
            f"languages-{name}",
            LATENT,
            (
                "data={{pairs: [{}], vocabulary: 6000, max_tokens: 60}}".format(
                    ", ".join(
                        f"{{source_language: en, target_language: {to}, "
                        f"train: {{source: {MULTI30K}/train.en, target: {MULTI30K}/train.{to}}}, "
                        f"valid: {{source: {MULTI30K}/val.en, target: {MULTI30K}/val.{to}}}}}"
                        for to in LANGUAGES
                    )
                ),
                f"objective={{{HALF}, prior: {prior}}}",
                *("train.steps=6000", "train.warmup=600", "train.learning_rate=1.0e-3", "train.schedule=inverse-sqrt"),
            ),
        )
        for name, prior in (("uniform", "[1, 1]"), ("aggregated", "aggregated"))
    ),
    *(
        compare_at(
            f"languages-{to}",
            ONLY,  # of each language pair
            ("languages-uniform", "languages-aggregated"),
            TestSet(f"{MULTI30K}/test_2016_flickr.en", f"{MULTI30K}/test_2016_flickr.{to}", to),
        )
        for to in LANGUAGES
    ),
)

# Multi30k, German to English, a 6-6 teacher and 2-2 students, pre- and post-norm, all of the text and a tenth.
CKD = "recipes/studies/ckd.yaml"
METHODS = {
    "none": None,
    "rkd": "method: rkd",
    "pkd": "method: pkd",
    "pkd-projected": "method: pkd, always_project: true",
    "regular": "method: ckd, map: regular",
    "overlap": "method: ckd, map: overlap",
}
STEPS_UP = {  # what the paper's table has, and the steps that are claimed
    "": tuple(METHODS),
    "-rkd-over-none": ("none", "rkd"),
    "-pkd-over-rkd": ("rkd", "pkd"),
    "-ckd-over-pkd": ("pkd-projected", "regular", "overlap"),
}
LAMBDAS = ("0.1", "0.3", "0.7")  # tried with one seed each; the best on validation is for the eight seeds
TUNED = ("pkd", "pkd-projected", "regular", "overlap")


def ckd_text(part: str) -> tuple[str, ...]:
    names = f"{MULTI30K}/train" if part == "all" else f"{MULTI30K}/tenth"
    return (
        f"data.train={{source: {names}.de, target: {names}.en}}",
        f"data.valid={{source: {MULTI30K}/val.de, target: {MULTI30K}/val.en}}",
        *("train.learning_rate=2.0e-3", "train.warmup=500", "train.valid_every=500"),
        f"train.steps={6000 if part == 'all' else 3000}",
    )


def student(norm: str, part: str, name: str, weight: str | None = None) -> Arm:
    """With a `weight`, lambda, to try it; without, the eight seeds with the best one."""
    method, teacher, tried = METHODS[name], f"{{out}}/teacher-{norm}/seed-1", f"{norm}-all-{name}-lambda"
    keys = method if name not in TUNED else f"{method}, lambda: {weight or f'{{best {tried}}}'}"
    taught = f"data.tokenizer={teacher}" if keys is None else f"teacher={{model: {teacher}, {keys}}}"
    changes, needs = (*ckd_text(part), f"model.norm={norm}", *of_depth("2-2"), taught), (f"teacher-{norm}",)
    if weight is not None:
        return Arm(f"{tried}-{weight}", CKD, changes, 1, needs)
    after = tuple(f"{tried}-{one}" for one in LAMBDAS) if name in TUNED else ()
    return Arm(f"{norm}-{part}-{name}", CKD, changes, 8, needs, after)


CKD_ARMS: Items = (
    *(Arm(f"teacher-{norm}", CKD, (*ckd_text("all"), f"model.norm={norm}"), 1) for norm in ("layer", "post")),
    *(student(norm, "all", name, weight) for norm in ("layer", "post") for name in TUNED for weight in LAMBDAS),
    *(student(norm, part, name) for norm in ("layer", "post") for part in ("all", "tenth") for name in METHODS),
    *(
        compare_at(f"{norm}-{part}{step}", ONLY, tuple(f"{norm}-{part}-{name}" for name in compared))
        for norm in ("layer", "post")
        for part in ("all", "tenth")
        for step, compared in STEPS_UP.items()
    ),
)

# The long film reviews, 512 tokens, from MiniLM.
WORDS = "recipes/studies/depth-adaptive.yaml"
WORDS_BASE = (
    "init_from={data}/minilm",
    f"data.train={{labelled: {REVIEWS}/long/train.tsv}}",
    *("data.hold_out=2000", "data.max_tokens=511", "model={max_length: 512}", "train.steps=3000", "train.warmup=300"),
    *("train.batch_tokens=4096", "train.learning_rate=1.0e-4", "train.valid_every=300"),
    "train.precision=bfloat16",
)
WORDS_SYSTEMS = ("static", "all-exits", "mi", "mi-shuffled", "halting")
FROM_MINILM = ("reviews", "minilm")
WORDS_ARMS: Items = (
    FETCH_REVIEWS,
    FETCH_MINILM,
    Step(
        "shuffled-table",
        (
            *("word-depths", "mi", "--train", f"{REVIEWS}/long/train.tsv", "--layers", "6", "--shuffled"),
            *("--out", "{out}/shuffled.json"),
        ),
        "{out}/shuffled.json",
        ("reviews",),
    ),
    *(
        Arm(name, WORDS, (*WORDS_BASE, f"objective={{{objective}}}"), needs=needs)
        for name, objective, needs in (
            ("static", "name: vanilla", FROM_MINILM),
            ("all-exits", "name: tied-multi", FROM_MINILM),  # one depth for all words, and exit of a text by confidence
            ("mi", "name: word-depths, depths: mi", FROM_MINILM),
            ("mi-shuffled", "name: word-depths, depths: {out}/shuffled.json", (*FROM_MINILM, "shuffled-table")),
            ("halting", "name: halting", FROM_MINILM),
        )
    ),
    Step(
        "accuracy-and-time",
        (
            *("evaluate", *(f"{name}={{runs {name}}}" for name in WORDS_SYSTEMS if name != "static")),
            *("--static", "static={runs static}", "--test", f"{REVIEWS}/long/test.tsv", "--batch-sizes", "1,16"),
            *("--exits", "confidence:0.8,confidence:0.9,confidence:0.97,patience:2", "--scales", "0.5,0.75,1"),
            *("--engine", "torch", "--threads", "1", "--no-record", "--out", "{out}/report"),
        ),
        "{out}/report/evaluation.json",
        WORDS_SYSTEMS,
        result=True,
        every_seed=True,
        alone=True,
    ),
)

GERMAN = tuple(f"{MULTI30K}/{name}.{to}" for name in ("train", "val", "test_2016_flickr") for to in ("de", "en"))
CLAIMS = (
    Claim(
        "tied-multi",
        "Tied-multi is within 0.7 BLEU of the best vanilla model; exact against sampled",
        "Dabre et al. 2020, Table 1: 35.0 both at the deepest exit, 23.2 against 26.3 at 1-1",
        "Tatoeba French-English, 6-6, width 128, 9,600 updates, Muon, three seeds",
        "The upper end of the 95% interval of vanilla 6-6 minus the tied arm of the lowest validation loss at 6-6 is "
        "below 0.7 BLEU. Exact is better than sampled (at equal updates, or at equal time) if the interval of their "
        "difference excludes 0.",
        TIED_ARMS,
        test=TATOEBA_TEST,
        hours=40,
    ),
    Claim(
        "distilled",
        "Distillation lifts 1-1 most; recurrent 2-2 greedy equals 5-6 with beam 4 in a quarter of the time",
        "Dabre et al. 2020, Tables 3 and 4: +6.9 at 1-1, +2.6 at 6-6; 35.0 against 35.1",
        "as above; the teacher is the first seed of vanilla 6-6, the deepest vanilla model; the text is its "
        "closest-of-four translations and the references",
        "The gain at 1-1 exceeds that at 6-6, intervals apart. Recurrent 2-2: BLEU at most 0.3 below 5-6 with beam 4, "
        "and at most 0.25 times its time, by passes in turn on one machine that does nothing else.",
        DISTILLED_ARMS,
        test=TATOEBA_TEST,
        shares="tied-multi",
        hours=17,
    ),
    Claim(
        "flexible",
        "Multi-task training beats LayerDrop and equals models trained for one depth",
        "Wang et al. 2021, Table 1: ahead of LayerDrop in 22 of 24 cells, of individual models in 20",
        "Multi30k English-German, 6-2, 8 tasks, width 128, dropout 0.3, Muon; equal updates per task, twice and, "
        "with one seed, 4 times as many",
        "Against LayerDrop: ahead in the mean over all depths, interval above 0. Against individual models: the "
        "interval of the mean difference is not wholly below -0.3 BLEU, at equal updates per task (`multi-task`) and "
        "at about equal cost (`multi-task-2x`, 1.2 times the cost of the 8 individual models together).",
        FLEXIBLE_ARMS,
        GERMAN,
        MULTI30K_TEST,
        hours=57,
    ),
    Claim(
        "latent",
        "Latent depth trains where a static stack does not; a pruned model against a static one of its depth",
        "Li et al. 2020, Table 5 and Figure 3: static 24/24 diverged, latent 28.4; Table 8: 28.43 against 27.9",
        "Multi30k German-English, 6-24, width 64, Adam, post-norm and no norm at four rates; pre-norm for quality",
        "The largest rate at which all three seeds leave the unigram plateau is higher for latent than for static and "
        "than for gates fixed at 0.5. Pruned to 12 layers it is better than static 6-12 if the interval is above 0.",
        LATENT_ARMS,
        tuple(
            f"{MULTI30K}/{name}.{to}"
            for name in ("train", "val", "test_2016_flickr")
            for to in ("de", "en", "fr", "cs")
        ),
        FROM_GERMAN_TEST,
        hours=20,
    ),
    Claim(
        "ckd",
        "CKD is better than PKD, PKD than RKD, RKD than no teacher",
        "Wu et al. 2020, Table 1: Pt-En +1.66, +0.15, +0.14 over no teacher",
        "Multi30k German-English, 6-6 teaches 2-2, eight seeds, pre- and post-norm, all of the text and a tenth of it",
        "Each step up is shown where the interval of the difference, over seeds and sentences, is above 0; for CKD the "
        "step is over PKD with a projection.",
        CKD_ARMS,
        GERMAN,
        FROM_GERMAN_TEST,
        hours=36,
    ),
    Claim(
        "word-depths",
        "Depths per word keep the accuracy and are faster than a halting unit",
        "Liu et al. 2021: 96.55 on IMDB at a mean depth of 4.5 of 12, at 7 times the speed",
        "long film reviews, 512 tokens, MiniLM, three seeds, batches of 1 and 16",
        "Accuracy within 0.5 points of static, and less time at equal accuracy than the halting unit and than the exit "
        "of a whole text, at batch 1 and at batch 16.",
        WORDS_ARMS,
        hours=60,
    ),
)
