"""Every text at a depth of its own, and every text at every depth."""

from collections.abc import Sequence

import pytest
from conftest import toy_pairs

import anydepth
from anydepth.engines.base import SearchBatch, SearchOptions
from anydepth.engines.torch import search, search_each
from anydepth.errors import UserError

TEXTS = ["", *(source for source, _ in toy_pairs(25, seed=5)), "  "]


@pytest.fixture(scope="module")
def translator(toy_run):
    return anydepth.load(toy_run, engine="torch")


class ByLength:
    """A selector that a test can foresee."""

    def choose(self, sources: Sequence[Sequence[int]]) -> list[str]:
        assert all(len(source) > 1 for source in sources)  # nobody need choose a depth for an empty line
        return ["1-1" if len(source) < 6 else "2-1" if len(source) < 9 else "2-2" for source in sources]


@pytest.mark.parametrize(
    "options", [{}, {"beam": 3, "nbest": 2}, {"batch_size": 1}, {"cut_long": True, "max_source": 4}]
)
def test_every_depth_gives_what_each_depth_gives(translator, options):
    together = translator.every_depth(TEXTS, **options)
    assert list(together) == translator.menu.names
    for name, found in together.items():
        alone = translator.hypotheses(TEXTS, depth=name, **options)
        assert [[(one.tokens, one.depth) for one in best] for best in found] == [
            [(one.tokens, one.depth) for one in best] for best in alone
        ]
    assert len({tuple(found[3][0].tokens) for found in together.values()}) >= 1


def test_some_depths_of_a_menu_with_odd_layers_and_weights(translator):
    """Sub-networks that are no prefixes, or weigh their layers, share what they can and give the same."""
    from anydepth.depth import SubNetwork

    subs = [
        SubNetwork((1,), (0, 1)),
        SubNetwork((0, 1), (0, 1), decoder_weights=(1.0, 0.5)),
        SubNetwork((0, 1), (0, 1), encoder_weights=(0.5, 1.0)),
        SubNetwork((0, 1), (1,)),
    ]
    sources = [translator.tokenizer.encode_many([text])[0] + [3] for text in TEXTS[1:8]]
    limits, options = [20] * len(sources), SearchOptions()
    for sub, found in zip(
        subs, search_each(translator.model, subs, SearchBatch(sources, limits), options), strict=True
    ):
        alone = search(translator.model, sub, sources, limits, options)
        assert [one[0].tokens for one in found] == [one[0].tokens for one in alone]


@pytest.mark.parametrize("options", [{}, {"beam": 4}, {"batch_size": 3}])
def test_a_selector_groups_by_depth_and_keeps_the_order(translator, options):
    found = translator.hypotheses(TEXTS, depth=ByLength(), **options)
    assert {best[0].depth for best in found} == {"", "1-1", "2-1", "2-2"}
    for text, (best, *_) in zip(TEXTS, found, strict=True):
        if best.depth:
            assert (
                best.text
                == translator.translate([text], depth=best.depth, batch_size=1, beam=options.get("beam", 1))[0]
            )
        else:
            assert best.text == ""
            assert not text.strip()


def test_a_depth_for_each_text(translator):
    depths = [["1-1", "2-2"][i % 2] for i in range(len(TEXTS))]
    found = translator.hypotheses(TEXTS, depth=depths)
    assert [best[0].depth or depth for best, depth in zip(found, depths, strict=True)] == depths
    assert translator.translate(TEXTS, depth=depths)[1] == translator.translate([TEXTS[1]], depth="2-2")[0]


def test_depths_that_do_not_fit_the_texts_are_refused(translator):
    with pytest.raises(UserError, match="2 texts but 1 depth"):
        translator.translate(["le chat.", "un chien."], depth=["1-1"])
    with pytest.raises(UserError, match="no depth 9-9"):
        translator.translate(["le chat."], depth=["9-9"])
    with pytest.raises(UserError, match="no depth 9-9"):
        translator.every_depth(["le chat."], depths=["9-9"])


def test_auto_without_a_selector_says_how_to_get_one(translator):
    with pytest.raises(UserError, match="anydepth select"):
        translator.translate([], depth="auto")
