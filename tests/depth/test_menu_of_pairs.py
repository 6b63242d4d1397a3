import json

import pytest

from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError

WHOLE = SubNetwork.prefix(3, 4)
SOFT = SubNetwork(WHOLE.encoder, WHOLE.decoder, decoder_weights=(0.9, 0.1, 0.8, 0.7))
CUT = SubNetwork(WHOLE.encoder, (0, 2, 3))
BLEU = {"bleu": 30.0}


def two_pairs() -> DepthMenu:
    """en-fr at 3-3 and soft, en-es at 3-4 and soft, and 2-2 for both."""
    subs = {"en-fr": [CUT, SOFT], "en-es": [WHOLE, SOFT]}
    of_pairs = [entry for pair, own in subs.items() for entry in DepthMenu.of(own, pair)]
    return DepthMenu([*DepthMenu.of([SubNetwork.prefix(2, 2)]), *of_pairs])


def test_names_say_pair_and_weights():
    assert two_pairs().names == ["2-2", "en-fr:3-3", "en-fr:3-4-soft", "en-es:3-4", "en-es:3-4-soft"]


def test_the_default_is_the_deepest_without_weights():
    menu = DepthMenu.of([SubNetwork.prefix(2, 2), CUT, SOFT])
    assert menu.deepest.name == "3-4-soft"
    assert menu.default.name == menu[None].name == "3-3"
    assert DepthMenu.of([SOFT])[None].name == "3-4-soft"
    assert two_pairs().of_pair("en-fr")[None].subnetwork == CUT
    assert two_pairs().of_pair("en-es")[None].subnetwork == WHOLE


def test_a_default_is_that_of_the_pairs_which_have_it():
    assert [two_pairs().with_default("2-2").of_pair(pair).default.name for pair in ("en-fr", "en-es")] == ["2-2", "2-2"]
    of_one = two_pairs().of_pair("en-fr").with_default("3-4-soft")
    assert of_one.to_json() == two_pairs().with_default("en-fr:3-4-soft").to_json()
    assert [of_one.of_pair(pair).default.name for pair in ("en-fr", "en-es")] == ["3-4-soft", "3-4"]


def test_a_pair_has_its_own_entries_and_the_common_ones_under_short_names():
    menu = two_pairs().of_pair("en-fr")
    assert menu.names == ["2-2", "3-3", "3-4-soft"]
    assert menu["3-3"] == menu["en-fr:3-3"]
    assert {entry.pair for entry in menu} == {"en-fr"}
    with pytest.raises(UserError, match="no depth 3-4; it has: 2-2, 3-3, 3-4-soft"):
        menu["3-4"]
    with pytest.raises(UserError, match="en-es:3-4 is of the pair en-es: for en-fr take one of 2-2, 3-3, 3-4-soft"):
        menu["en-es:3-4"]
    assert menu.of_pair("en-es").names == ["2-2", "3-4", "3-4-soft"]


def test_figures_of_a_pair_do_not_erase_those_of_another():
    menu = two_pairs()
    menu.measured("2-2", {"seconds": 9.0}, {"bleu": 9.0})
    menu.measured_on = {"test_set": "mixed"}
    for number, pair in enumerate(("en-fr", "en-es"), 1):
        one = menu.of_pair(pair)
        for name in ("2-2", "3-4-soft"):
            one.measured(name, {"seconds": 1.0 * number}, {"bleu": 10.0 * number})
        one.measured_on = {"test_set": pair}
        assert one["2-2"].quality == {"bleu": 10.0 * number}
    again = DepthMenu.from_json(json.loads(json.dumps(menu.of_pair("en-fr").to_json())))
    assert list(again) == list(menu)
    assert (again["2-2"].quality, again.measured_on) == ({"bleu": 9.0}, {"test_set": "mixed"})
    for number, pair in enumerate(("en-fr", "en-es"), 1):
        one = again.of_pair(pair)
        assert one.measured_on == {"test_set": pair}
        assert one["2-2"].cost == one["3-4-soft"].cost == {"seconds": 1.0 * number}
        assert again[f"{pair}:3-4-soft"].quality == {"bleu": 10.0 * number}
    assert not again["en-fr:3-3"].quality


def test_where_there_are_no_pairs_nothing_is_said_of_them():
    menu = DepthMenu.of([SOFT])
    menu.measured("3-4-soft", {}, BLEU)
    assert list(menu.to_json()) == ["format", "measured_on", "depths"]
    assert list(menu.to_json()["depths"][0]) == ["name", "subnetwork", "cost", "quality"]
    assert menu.of_pair("en-fr").names == ["3-4-soft"]
