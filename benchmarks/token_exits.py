"""Tokens that leave the decoder early, against fixed depths: native int8, sentences one at a time, one thread.

python benchmarks/token_exits.py [--source dev.pt --reference dev.en] [--model MODEL] [--timed 120] [--rounds 3]

Outputs are of all sentences; times are of some of them, spread over the file: all depths and rules take turns at each,
and its time is the least CPU time of the rounds. At five budgets in the lower half of the times of fixed depths, the
best fixed depth and the best rule that take no longer are chosen by BLEU on every other sentence, and compared on the
rest. Decoder time is that of a sentence less that of its encoder and first token at the shallowest depth.

The bound is what an oracle would do that leaves where the best token is already that of the deepest exit, given the
deepest depth's own output: its mean number of decoder layers.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from common import print_versions

from anydepth.artifact import bundled_model
from anydepth.data import Tokenizer
from anydepth.depth import SubNetwork
from anydepth.engines.base import TOKEN_EXITS, Candidate, ExitRule, SearchBatch, SearchOptions
from anydepth.engines.native import NativeEngine
from anydepth.evaluate.metrics import score
from anydepth.evaluate.significance import paired_bootstrap
from anydepth.export.sample import find_sample
from anydepth.infer.translator import Translator

MARGINS, CONFIDENCES = (0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0), (0.5, 0.7, 0.9)
BUDGETS = (0.1, 0.2, 0.3, 0.4, 0.5)  # of the way from the fastest fixed depth to the slowest
FEW = 0.3  # BLEU


@dataclass
class Way:
    """A fixed depth, or a depth with a rule."""

    sub: SubNetwork
    rule: ExitRule | None = None
    limit: int | None = None  # of the output
    seconds: list[float] = field(default_factory=list)  # of each sentence that is timed
    found: list[Candidate] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        if self.rule is None:
            return self.sub.name
        exits = (
            "" if len(self.rule.exits) == len(self.sub.decoder) - 1 else f" at {','.join(map(str, self.rule.exits))}"
        )
        return f"{self.sub.name} {self.rule.kind}:{self.rule.value:g}{exits}"

    @property
    def layers(self) -> float:
        lengths = [len(one.tokens) + one.ended for one in self.found]
        return sum((one.layers or 0.0) * n for one, n in zip(self.found, lengths, strict=True)) / sum(lengths)

    @property
    def options(self) -> SearchOptions:
        return SearchOptions(scores=False, exit_rule=self.rule)

    def time(self) -> float:
        """Milliseconds per sentence."""
        return 1000 * float(np.mean(self.seconds))

    def bleu(self, references: Sequence[str], part: slice = slice(None)) -> float:
        return score(self.texts[part], references[part]).bleu


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path)
    parser.add_argument("--source", type=Path, help="default: the sample of the model")
    parser.add_argument("--reference", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--timed", type=int, default=120)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--encoders", type=int, nargs="+", help="those whose tokens leave early; default: all")
    parser.add_argument("--no-shortlist", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print_versions()
    shortlist = False if arguments.no_shortlist else None
    model = arguments.model or bundled_model()
    translator = Translator.load(model, engine="native", threads=1, shortlist=shortlist)
    sample = find_sample(translator, model, arguments.source, arguments.reference, arguments.sentences)
    sources, references = sample.sources, sample.references
    assert references is not None
    fixed = [Way(entry.subnetwork) for entry in translator.menu]
    rules = make_rules(translator, arguments.encoders)
    starts = {one.encoder: Way(one, limit=1) for one in reversed([way.sub for way in fixed])}
    translate(translator, [*fixed, *rules], sources)
    timed = sources[:: max(1, len(sources) // arguments.timed)][: arguments.timed]
    measure(translator, [*fixed, *rules, *starts.values()], timed, arguments.rounds)
    print(f"{len(sources)} sentences of {sample.origin}, {len(timed)} timed in {arguments.rounds} rounds")
    show([*fixed, *rules], starts, references)
    compare_budgets(fixed, rules, references)
    compare_decoders(fixed, rules, starts, references)
    show_bound(translator, fixed, sources)


def make_rules(translator: Translator, encoders: list[int] | None) -> list[Way]:
    """Of the deepest decoder of each encoder, and some of the one before it."""
    found = []
    deepest = max(len(entry.subnetwork.decoder) for entry in translator.menu)
    for sub in (entry.subnetwork for entry in translator.menu):
        exits, m = translator.menu.exits(sub), len(sub.decoder)
        if not exits or m < deepest - 1 or (encoders and len(sub.encoder) not in encoders):
            continue
        rules = [ExitRule("margin", value, exits) for value in (MARGINS if m == deepest else MARGINS[1::2])]
        if m == deepest:
            rules += [ExitRule("confidence", value, exits) for value in CONFIDENCES]
            rules += [ExitRule("patience", 2, exits)] if len(exits) > 1 else []
            rules += [ExitRule("margin", value, exits[:1]) for value in MARGINS[1:4:2]] if len(exits) > 1 else []
        found += [Way(sub, rule) for rule in rules]
    assert {way.rule.kind for way in found if way.rule} <= set(TOKEN_EXITS)
    return found


def translate(translator: Translator, ways: list[Way], sources: list[str]) -> None:
    """In batches, whose outputs are those of sentences one at a time."""
    read = [translator.as_read(ids) for ids in translator.subwords(sources)]
    order = sorted(range(len(read)), key=lambda i: len(read[i]))
    for way in ways:
        found: dict[int, Candidate] = {}
        for start in range(0, len(order), 32):
            chosen = order[start : start + 32]
            batch = SearchBatch([read[i] for i in chosen], [2 * len(read[i]) + 10 for i in chosen])
            (results,) = next(translator.engine.search([way.sub], [batch], way.options))
            found |= {i: one[0] for i, one in zip(chosen, results, strict=True)}
        way.found = [found[i] for i in range(len(read))]
        way.texts = [translator.tokenizer.decode(one.tokens) for one in way.found]


def measure(translator: Translator, ways: list[Way], sources: list[str], rounds: int) -> None:
    read = [translator.as_read(ids) for ids in translator.subwords(sources)]
    for way in ways:
        way.seconds = [float("inf")] * len(read)
    for _ in range(rounds):
        for i, source in enumerate(read):
            for way in ways:
                batch = SearchBatch([source], [way.limit or 2 * len(source) + 10])
                began = time.thread_time()
                next(translator.engine.search([way.sub], [batch], way.options))
                way.seconds[i] = min(way.seconds[i], time.thread_time() - began)


def decoder_time(way: Way, starts: dict[tuple[int, ...], Way]) -> float:
    return way.time() - starts[way.sub.encoder].time()


def show(ways: list[Way], starts: dict[tuple[int, ...], Way], references: list[str]) -> None:
    print(f"\n{'depth and rule':28} {'ms':>6} {'decoder':>8} {'layers':>6} {'BLEU':>6}")
    for way in sorted(ways, key=Way.time):
        figures = f"{way.time():6.3f} {decoder_time(way, starts):8.3f} {way.layers:6.2f} {way.bleu(references):6.2f}"
        print(f"{way.name:28} {figures}")


def compare_budgets(fixed: list[Way], rules: list[Way], references: list[str]) -> None:
    tune, test = slice(0, None, 2), slice(1, None, 2)
    least, most = (pick(way.time() for way in fixed) for pick in (min, max))
    print("\nbudget    best fixed depth           best rule                        difference (95%)   bar +0.7")
    for share in BUDGETS:
        budget = least + share * (most - least)
        best, other = (
            max(
                (way for way in ways if way.time() <= budget),
                key=lambda way: way.bleu(references, tune),
                default=None,
            )
            for ways in (fixed, rules)
        )
        assert best is not None
        if other is None or other.bleu(references, tune) <= best.bleu(references, tune):
            print(f"{budget:.2f} ms   {best.name}, no rule is better")
            continue
        (found,) = paired_bootstrap([[best.texts[test]], [other.texts[test]]], references[test])
        print(
            f"{budget:.2f} ms   {best.name}, {best.time():.3f} ms, {best.bleu(references, test):.2f}    "
            f"{other.name}, {other.time():.3f} ms, {other.bleu(references, test):.2f}    "
            f"{found.bleu:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
        )


def compare_decoders(
    fixed: list[Way], rules: list[Way], starts: dict[tuple[int, ...], Way], references: list[str]
) -> None:
    """Of each encoder: the fastest rule that loses little against the deepest decoder."""
    print(f"\ndecoder time of the fastest rule at most {FEW} BLEU below the deepest decoder, against it (bar 0.6x)")
    for deepest in (way for way in fixed if any(way.sub == rule.sub for rule in rules)):
        group = [
            way for way in rules if way.sub == deepest.sub and way.bleu(references) >= deepest.bleu(references) - FEW
        ]
        if not group:
            continue
        best = min(group, key=Way.time)
        ratio = decoder_time(best, starts) / decoder_time(deepest, starts)
        lost, whole = best.bleu(references) - deepest.bleu(references), best.time() / deepest.time()
        print(f"{deepest.name}: {best.name} {ratio:.2f}x, {lost:+.2f} BLEU, encoder and decoder {whole:.2f}x")


def show_bound(translator: Translator, fixed: list[Way], sources: list[str]) -> None:
    """Over the whole vocabulary."""
    engine = translator.engine
    assert isinstance(engine, NativeEngine)
    print("\nan oracle would take, for the output of the deepest decoder, so many decoder layers per token")
    most = max(len(way.sub.decoder) for way in fixed)
    for deepest in fixed:
        exits = (*translator.menu.exits(deepest.sub), len(deepest.sub.decoder))
        if exits[-1] < most or len(exits) < 2:
            continue
        layers = tokens = 0
        agree = np.zeros(len(exits))
        for text, one in zip(translator.subwords(sources), deepest.found, strict=True):
            source, target = translator.as_read(text), [Tokenizer.BOS, *one.tokens]
            each = []
            for exit_ in exits:
                sub = replace(deepest.sub, decoder=deepest.sub.decoder[:exit_])
                logits = engine.native.logits(sub, source, target, translator.tokenizer.vocabulary_size, len(target))
                logits[:, : Tokenizer.EOS] = -np.inf
                each.append(logits.argmax(-1))
            same = np.stack(each) == each[-1]
            layers += int(np.asarray(exits)[same.argmax(0)].sum())
            tokens += len(target)
            agree += same.sum(1)
        shares = ", ".join(f"{share:.0%} at {exit_}" for share, exit_ in zip(agree / tokens, exits, strict=True))
        print(f"{deepest.name}: {layers / tokens:.2f} (the same token: {shares})")


if __name__ == "__main__":
    main()
