import pytest

from anydepth.depth import DepthMenu, SubNetwork, parse_depth
from anydepth.errors import UserError


def test_a_prefix_names_its_depth():
    sub = SubNetwork.prefix(6, 2)
    assert sub.encoder == (0, 1, 2, 3, 4, 5)
    assert sub.decoder == (0, 1)
    assert sub.name == "6-2"
    assert sub == SubNetwork.prefix(6, 2)
    assert len({sub, SubNetwork.prefix(6, 2), SubNetwork.prefix(2, 6)}) == 2


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        (((), (0,)), "depth 0-1: the encoder needs"),
        (((1, 0), (0,)), "ascending"),
        (((0, 0), (0,)), "ascending"),
        (((-1, 0), (0,)), "ascending"),
    ],
)
def test_impossible_layers_are_refused(layers, words):
    with pytest.raises(UserError, match=words):
        SubNetwork(*layers)


def test_weights_must_match_layers():
    with pytest.raises(UserError, match="2 layers but 1 weights"):
        SubNetwork((0, 1), (0,), encoder_weights=(1.0,))


@pytest.mark.parametrize(
    "text", ["6", "6-", "a-b", "6-2-1", "-1-2", "six-two", "", ":6-2", "en fr:6-2", "6-2-hard", "6-2:en-fr", "soft"]
)
def test_what_is_no_depth_is_explained(text):
    with pytest.raises(UserError, match="write encoder-decoder"):
        parse_depth(text)


@pytest.mark.parametrize("text", ["0-3", "en-fr:0-3-soft"])
def test_an_encoder_of_depth_zero_is_refused_by_name(text):
    with pytest.raises(UserError, match="depth 0-3: the encoder needs at least one layer"):
        parse_depth(text)


@pytest.mark.parametrize("text", ["6-2", " 6-2 ", "6-2-soft", "en-fr:6-2", "pt-BR-zh_Hans:6-2-soft"])
def test_names_have_a_pair_before_and_weights_after_the_layers(text):
    assert parse_depth(text) == (6, 2)


def test_an_encoder_alone_is_a_depth():
    sub = SubNetwork(tuple(range(24)), ())
    assert (sub.name, parse_depth(sub.name)) == ("24-0", (24, 0))
    assert DepthMenu.from_json(DepthMenu.of([sub]).to_json())["24-0"].subnetwork == sub


def test_menu_survives_json_with_weights_and_measurements():
    menu = DepthMenu.of([SubNetwork((0, 2), (1,), encoder_weights=(0.5, 1.0)), SubNetwork.prefix(3, 2)])
    menu.measured("2-1-soft", {"seconds": 1.0}, {"bleu": 30.0})
    menu.measured_on = {"device": "cpu"}
    again = DepthMenu.from_json(menu.to_json())
    assert list(again) == list(menu)
    assert again.measured_on == {"device": "cpu"}
    assert again["2-1-soft"].quality == {"bleu": 30.0}


def test_menu_knows_its_deepest_and_lists_what_it_has():
    menu = DepthMenu.every_prefix(2, 3)
    assert menu.names == ["1-1", "1-2", "1-3", "2-1", "2-2", "2-3"]
    assert menu[None].name == menu.deepest.name == "2-3"
    with pytest.raises(UserError, match="no depth 9-9; it has: 1-1, 1-2"):
        menu["9-9"]
    with pytest.raises(UserError, match="no depth deep"):
        menu["deep"]
    with pytest.raises(UserError, match="depth 0-1"):
        menu["0-1"]


def test_a_menu_may_name_its_default():
    menu = DepthMenu.from_json(DepthMenu.every_prefix(2, 3).with_default("2-1").to_json())
    assert menu[None].name == menu.default.name == "2-1"
    menu.measured("2-1", {"seconds": 1.0}, {"bleu": 30.0})
    assert menu.default.quality == {"bleu": 30.0}
    with pytest.raises(UserError, match="no depth 3-1"):
        menu.with_default("3-1")
    with pytest.raises(UserError, match="default depth 9-9 is not in the depth menu"):
        DepthMenu.from_json(menu.to_json() | {"default": "9-9"})


def test_a_newer_menu_is_refused():
    data = DepthMenu.every_prefix(1, 1).to_json() | {"format": 99}
    with pytest.raises(UserError, match="newer anydepth"):
        DepthMenu.from_json(data)
