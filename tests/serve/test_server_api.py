"""The server as its clients see it: LibreTranslate's API, odd and broken bodies, depths and budgets."""

import json
import re

import pytest
from libretranslatepy import LibreTranslateAPI

import anydepth as package

pytestmark = pytest.mark.slow

pytest_plugins = ["made_servers"]


TEXT = "  Le chat dort. Un chien mange !\n\n\tle petit oiseau voit un chat. 😀 \n"


# LibreTranslate's API


def test_libretranslates_own_client_works_as_it_is(server):
    client = LibreTranslateAPI(server.url)
    assert client.translate("le chat dort.", "fr", "en") == "the cat sleeps."
    assert client.languages() == [
        {"code": "fr", "name": "French", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]
    assert client.detect("le chat") == [{"confidence": 0.0, "language": "fr"}]


def test_a_string_gives_a_string_and_a_list_a_list(server):
    one = server.translate("le chat dort.").json()
    assert (one["translatedText"], one["depth"]) == ("the cat sleeps.", "2-2")
    assert one["engine"] == "ctranslate2"
    assert one["milliseconds"] > 0
    many = server.translate(["le chat dort.", "", "un chien mange."]).json()
    assert many["translatedText"] == ["the cat sleeps.", "", "a dog eats."]
    assert many["depth"] == ["2-2", "", "2-2"]


@pytest.mark.parametrize("kind", ["form", "multipart", "json"])
def test_every_kind_of_body(server, kind):
    fields = {"q": "un chien mange.", "source": "auto", "target": "en", "format": "text", "alternatives": "0"}
    given = {
        "form": {"data": fields},
        "multipart": {"files": {name: (None, value) for name, value in fields.items()}},
        "json": {"json": fields},
    }[kind]
    answer = server.client.post("/translate", **given)
    assert answer.status_code == 200, answer.text
    assert answer.json()["translatedText"] == "a dog eats."
    assert answer.json()["detectedLanguage"] == {"confidence": 0.0, "language": "fr"}


def test_white_space_and_symbols_come_back_as_they_were(server):
    found = server.translate(TEXT).json()["translatedText"]
    assert re.sub(r"\S+", "x", found).count("\n") == TEXT.count("\n")
    assert found.startswith("  ")
    assert "\n\n\t" in found
    assert found.endswith(" 😀 \n")
    assert "small bird sees a cat." in found


def test_a_text_much_longer_than_the_model_reads_is_not_cut(server):
    text = "le chat dort et un chien mange " * 60
    found = server.translate(text).json()["translatedText"]
    assert found.count("dog") >= 40  # its 420 words are no sentence that the toy has ever seen; cut, there would be 9
    assert server.translate("x" * 2_000).status_code == 200


def test_alternatives(server, measured_run):
    answer = server.translate("le chat dort.", alternatives=2).json()
    expected = package.load(measured_run, engine="torch").hypotheses(["le chat dort."], beam=3, nbest=3)[0]
    assert answer["translatedText"] == expected[0].text
    assert answer["alternatives"] == list(dict.fromkeys(h.text for h in expected[1:] if h.text != expected[0].text))


@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        ({"q": None}, 400, "Invalid request: missing q parameter"),
        ({"q": ""}, 400, "Invalid request: missing q parameter"),
        ({"q": []}, 400, "Invalid request: missing q parameter"),
        ({"q": {"a": 1}}, 400, "Invalid request: q parameter is not a text"),
        ({"source": None}, 400, "Invalid request: missing source parameter"),
        ({"target": None}, 400, "Invalid request: missing target parameter"),
        ({"source": 3}, 400, "Invalid request: source parameter is not a text"),
        ({"target": "zz"}, 400, "zz is not supported"),
        ({"source": "zz"}, 400, "zz is not supported"),
        ({"format": "html"}, 400, "html format is not supported"),
        ({"alternatives": "abc"}, 400, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": True}, 400, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 99}, 400, "Invalid request: alternatives (99) exceeds limit (5)"),
        ({"depth": "9-9"}, 400, "Invalid request: this model has no depth 9-9; it has: 1-1, 1-2, 2-1, 2-2"),
        ({"depth": "auto"}, 400, "Invalid request: this model has no selector for auto: name a depth"),
        ({"budget_ms": 0}, 400, "Invalid request: budget_ms parameter must be above 0"),
        ({"budget_ms": "fast"}, 400, "Invalid request: budget_ms parameter is not a number"),
        ({"budget_ms": True}, 400, "Invalid request: budget_ms parameter is not a number"),
        ({"budget_ms": 5, "depth": "1-1"}, 400, "Invalid request: depth and budget_ms both choose the depth"),
        ({"source": "en"}, 400, "English (en) is not available as a target language from English (en)"),
        ({"q": "a\n" * 301}, 400, "Invalid request: 301 sentences exceed the queue limit (300)"),
        ({"q": ["a"] * 201}, 400, "Invalid request: request (201) exceeds batch limit (200)"),
        ({"q": "a" * 20_001}, 400, "Invalid request: request (20001) exceeds text limit (20000)"),
    ],
)
def test_what_is_wrong_is_said_in_libretranslates_shape(server, changes, status, error):
    fields = {"q": "le chat.", "source": "fr", "target": "en"} | changes
    answer = server.post("/translate", **{name: value for name, value in fields.items() if value is not None})
    assert answer.status_code == status
    assert list(answer.json()) == ["error"]
    assert answer.json()["error"].startswith(error)


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("application/json", b"{", 400),
        ("application/json", b"[1]", 400),
        ("application/json", b"\xff\xfe", 400),
        ("application/json", b'{"q": NaN}', 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b"", 400),
        ("application/json", json.dumps({"q": "\ud800 chat", "source": "fr", "target": "en"}).encode(), 200),
        ("application/json", json.dumps({"q": "a\0b", "source": "fr", "target": "en"}).encode(), 200),
        ("text/plain", b"le chat", 415),
        ("multipart/form-data", b"nonsense", 400),
        ("multipart/form-data; boundary=x", b"--x\r\nnonsense", 400),
        ("application/x-www-form-urlencoded", b"q=%ff%fe&source=fr&target=en", 200),
        ("application/json", b" " * (2 << 20), 413),
    ],
)
def test_bodies_that_are_odd_or_broken(server, kind, body, status):
    answer = server.client.post("/translate", content=body, headers={"Content-Type": kind})
    assert answer.status_code == status, answer.text
    assert ("error" in answer.json()) == (status != 200)


def test_a_body_without_a_length_is_limited_too(server):
    body = (b" " * 65536 for _ in range(40))
    answer = server.client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413


def test_fields_may_stand_in_the_address(server):
    answer = server.client.post("/translate?source=fr&target=en", json={"q": "le chat dort."})
    assert answer.json()["translatedText"] == "the cat sleeps."


@pytest.mark.parametrize("field", ["source", "target", "format", "depth"])
def test_what_cannot_be_encoded_is_refused_like_anything_else(server, field):
    """A lone surrogate, which JSON can hold and an answer cannot."""
    fields = json.dumps({"q": "le chat.", "source": "fr", "target": "en"} | {field: "\ud800"})
    answer = server.client.post("/translate", content=fields, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert server.translate("le chat dort.").status_code == 200  # on the same connection


def test_characters_that_grow_are_counted_as_what_they_become(server):
    """Normalised, this one sign is a sentence of its own."""
    answer = server.translate("\ufdfa" * 40)
    assert answer.status_code == 200, answer.text


def test_other_routes_and_methods(server):
    assert server.client.get("/nowhere").json() == {"error": "Not Found"}
    assert server.client.get("/translate").status_code == 405
    assert server.client.get("/health").json() == {"status": "ok"}
    assert server.client.get("/frontend/settings").json()["charLimit"] == 20_000


def test_the_head_of_every_page_can_be_asked_for(server):
    for route in ("/", "/health", "/languages"):
        answer = server.client.head(route)
        assert (answer.status_code, answer.content) == (200, b"")
        assert int(answer.headers["content-length"]) > 0
    assert server.client.head("/translate").status_code == 405


def test_an_empty_text_of_a_form_keeps_its_place(server):
    answer = server.client.post("/translate", data={"q": ["", "le chat dort."], "source": "fr", "target": "en"})
    assert answer.json()["translatedText"] == ["", "the cat sleeps."]


@pytest.mark.parametrize(("alternatives", "status"), [(0, 200), (1, 400), ("x", 400)])
def test_a_stream_has_no_alternatives(server, alternatives, status):
    fields = {"q": "le chat dort.", "source": "fr", "target": "en", "alternatives": alternatives}
    assert server.post("/translate_stream", **fields).status_code == status


def test_symbols_alone_need_no_budget(server):
    answer = server.translate("...", budget_ms=1e-6)
    assert (answer.status_code, answer.json()["translatedText"]) == (200, "...")
    assert server.translate("le chat dort.", budget_ms=1e-6).status_code == 400


# depths


def test_a_request_chooses_its_depth(server, measured_run):
    text = "un grand chien aime le petit oiseau rouge."
    for depth in ("1-1", "1-2", "2-1", "2-2"):
        answer = server.translate(text, depth=depth).json()
        assert answer["depth"] == depth
        assert answer["translatedText"] == package.load(measured_run, engine="torch").translate([text], depth=depth)[0]


def test_a_budget_takes_the_best_depth_within_it(server):
    assert server.translate("le chat dort.", budget_ms=10_000).json()["depth"] == "2-2"
    answer = server.translate("le chat dort.", budget_ms=0.0001)
    assert answer.status_code == 400
    assert "is below the fastest depth" in answer.json()["error"]


def test_what_the_page_is_told_of_the_model(server):
    about = server.client.get("/model").json()
    depths = about["pairs"]["fr-en"]["depths"]
    assert [one["name"] for one in depths] == ["1-1", "1-2", "2-1", "2-2"]
    assert [one["bleu"] for one in depths] == [90.0, 91.0, 92.0, 93.0]
    assert all(one["ms"] > 0 for one in depths)
    assert (about["kind"], about["key_required"]) == ("translation", False)


def test_a_stream_gives_sentence_by_sentence(server):
    with server.client.stream(
        "POST", "/translate_stream", json={"q": "le chat dort. un chien mange.", "source": "fr", "target": "en"}
    ) as answer:
        lines = [json.loads(line) for line in answer.iter_lines()]
    assert [line.get("text") for line in lines] == ["the cat sleeps. ", "a dog eats.", None]
    assert lines[-1]["done"] is True
