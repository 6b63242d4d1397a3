"""The server as its clients see it: LibreTranslate's API, depths and budgets, limits, an orderly end."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import threading
import time

import httpx
import psutil
import pytest
from conftest import anydepth, assert_one_line
from libretranslatepy import LibreTranslateAPI
from running_server import serving

import anydepth as package
from anydepth import artifact
from anydepth.deploy.server.metrics import Metrics
from anydepth.deploy.server.queue import Queue
from anydepth.deploy.server.workers import Source, Task, Workers
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.errors import UserError
from anydepth.select.token_depths import TokenDepths
from anydepth.select.word_depths import WordDepths

pytest_plugins = ["made_servers", "made_classifiers"]

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
    assert found.count("dog") >= 60  # its 420 words are no sentence that the toy has ever seen; cut, there would be 9
    assert server.translate("x" * 2_000).status_code == 200


def test_alternatives(server, measured_run):
    answer = server.translate("le chat dort.", alternatives=2).json()
    expected = package.load(measured_run).hypotheses(["le chat dort."], beam=3, nbest=3)[0]
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
        ({"alternatives": 99}, 400, "Invalid request: alternatives (99) exceeds limit (5)"),
        ({"depth": "9-9"}, 400, "Invalid request: this model has no depth 9-9; it has: 1-1, 1-2, 2-1, 2-2"),
        ({"depth": "auto"}, 400, "Invalid request: this model has no selector for auto: name a depth"),
        ({"budget_ms": 0}, 400, "Invalid request: budget_ms parameter must be above 0"),
        ({"budget_ms": "fast"}, 400, "Invalid request: budget_ms parameter is not a number"),
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


# depths


def test_a_request_chooses_its_depth(server, measured_run):
    text = "un grand chien aime le petit oiseau rouge."
    for depth in ("1-1", "1-2", "2-1", "2-2"):
        answer = server.translate(text, depth=depth).json()
        assert answer["depth"] == depth
        assert answer["translatedText"] == package.load(measured_run).translate([text], depth=depth)[0]


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


# under load


def test_a_full_queue_turns_requests_away(toy_run):
    texts = ["le petit chien voit un grand chat et un oiseau rouge ici."] * 150
    with serving(toy_run, "--batch-size", 1, "--beam", 8, "--queue-limit", 200) as served:
        first = threading.Thread(target=lambda: served.translate(texts))
        first.start()
        with httpx.Client(base_url=served.url) as client:
            while "anydepth_waiting 0.0" in client.get("/metrics").text:
                time.sleep(0.01)
            answer = client.post("/translate", json={"q": texts, "source": "fr", "target": "en"})
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) >= 1
        assert "error" in answer.json()
        first.join()
        assert served.translate(texts).status_code == 200  # there is room again


def test_nothing_is_lost_or_swapped_when_many_ask_at_once(server, measured_run):
    words = ["chat", "chien", "oiseau"]
    texts = [f"le {a} voit un {b}{' et mange ici' * k}." for a in words for b in words for k in range(4)]
    depths = ["1-1", "1-2", "2-1", "2-2"]
    translator = package.load(measured_run)
    expected = {(text, d): translator.translate([text], depth=d)[0] for text in texts for d in depths}
    wrong = []

    def ask(seed):
        with httpx.Client(base_url=server.url, timeout=60) as client:
            for i in range(seed, len(texts) * 4, 7):
                text, depth = texts[i % len(texts)], depths[i % 4]
                fields = {"q": text, "source": "fr", "target": "en", "depth": depth}
                answer = client.post("/translate", json=fields).json()
                if answer.get("translatedText") != expected[text, depth]:
                    wrong.append((text, depth, answer))

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    sizes = server.client.get("/metrics").text
    batches = float(re.search(r"anydepth_batch_size_count ([\d.]+)", sizes)[1])
    sentences = float(re.search(r"anydepth_batch_size_sum ([\d.]+)", sizes)[1])
    assert sentences > batches  # some ran together


def test_cancelled_texts_leave_the_queue(toy_run):
    async def scenario():
        source = Source(toy_run / "model")
        workers = Workers(source.load(1), source, 1)
        queue = Queue(workers, Metrics(), batch_size=2, most=100)
        kept = queue.add(Task("2-2"), ["le chat dort."] * 3)
        left = queue.add(Task("1-1"), ["un chien mange."] * 40)
        assert len(queue) == 41  # two run
        for one in left:
            one.cancel()
        await asyncio.sleep(0)
        assert len(queue) == 1
        assert await asyncio.gather(*kept) == [["the cat sleeps."]] * 3
        await queue.drain()
        assert len(queue) == 0
        workers.close()

    asyncio.run(scenario())


def test_a_text_that_fails_fails_alone(toy_run):
    """Of two that run together, one is longer than the model takes."""

    async def scenario():
        source = Source(toy_run / "model")
        workers = Workers(source.load(1), source, 1)
        queue = Queue(workers, Metrics(), batch_size=8, most=100)
        queue.add(Task("2-2"), ["le chat."])  # keeps the worker busy
        good, bad = queue.add(Task("2-2"), ["le chat dort.", "le chat " * 100])
        assert await good == ["the cat sleeps."]
        with pytest.raises(UserError, match="the limit is"):
            await bad
        await queue.drain()
        workers.close()

    asyncio.run(scenario())


def test_a_client_that_sends_too_slowly_is_told_so(server):
    host, port = server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as half:
        half.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert half.recv(100).startswith(b"HTTP/1.1 408")


def test_a_client_that_hangs_up_frees_the_queue(toy_run):
    with serving(toy_run, "--batch-size", 1, "--beam", 8) as served:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(
                f"{served.url}/translate",
                json={
                    "q": ["le petit chien voit un grand chat et un oiseau rouge ici."] * 200,
                    "source": "fr",
                    "target": "en",
                },
                timeout=0.3,
            )
        for _ in range(100):
            metrics = served.client.get("/metrics").text
            if "anydepth_cancelled_total 1.0" in metrics and "anydepth_waiting 0.0" in metrics:
                break
            time.sleep(0.05)
        else:
            pytest.fail(metrics)


def test_sigterm_lets_requests_finish(toy_run):
    with serving(toy_run, "--batch-size", 1) as served:
        answers = []
        ask = threading.Thread(target=lambda: answers.append(served.translate(["un chien mange."] * 150)))
        ask.start()
        while "anydepth_characters_total 2250.0" not in served.client.get("/metrics").text:
            time.sleep(0.01)
        assert served.stop(signal.SIGTERM) == 0
        ask.join()
        assert answers[0].json()["translatedText"] == ["a dog eats."] * 150
        assert any(line["event"] == "request" and line.get("texts") == 150 for line in served.log())


def test_two_processes_and_one_that_dies(toy_run):
    with serving(toy_run, "--workers", 2) as served:
        assert served.translate(["le chat dort."] * 50).json()["translatedText"] == ["the cat sleeps."] * 50
        children = psutil.Process(served.process.pid).children()
        workers = [child for child in children if "spawn_main" in " ".join(child.cmdline())]
        assert len(workers) == 2
        workers[0].kill()
        assert served.translate(["un chien mange."] * 50).json()["translatedText"] == ["a dog eats."] * 50
        others = psutil.Process(served.process.pid).children()
        served.stop(signal.SIGKILL)
        assert not psutil.wait_procs(others, timeout=60)[1]  # they end with the server


# who may ask, and what is written down


def test_keys_origins_and_logs(toy_run, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("sésame\nother\n", "utf-8")
    with serving(toy_run, "--api-keys", keys, "--cors", "https://example.org") as served:
        assert served.translate("le chat dort.").status_code == 403
        assert served.translate("le chat dort.", api_key="wrong").json() == {"error": "Invalid API key"}
        assert served.translate("le chat dort.", api_key="sésame").status_code == 200
        fields = {"q": "le chat dort.", "source": "fr", "target": "en"}
        bearer = served.client.post("/translate", json=fields, headers={"Authorization": "Bearer other"})
        assert bearer.status_code == 200
        origin = served.client.get("/languages", headers={"Origin": "https://example.org"})
        assert origin.headers["access-control-allow-origin"] == "https://example.org"
        other = served.client.get("/languages", headers={"Origin": "https://evil.example"})
        assert "access-control-allow-origin" not in other.headers
        assert served.client.get("/model").json()["key_required"] is True
        assert served.stop() == 0
        log = served.log()
    said = json.dumps(log, ensure_ascii=False)
    assert "chat" not in said
    assert "sésame" not in said
    done = next(line for line in log if line.get("texts"))
    assert (done["route"], done["status"], done["characters"], done["depth"]) == ("/translate", 200, 13, "2-2")


def test_no_origin_is_allowed_unless_it_is_named(server):
    answer = server.client.get("/languages", headers={"Origin": "https://example.org"})
    assert "access-control-allow-origin" not in answer.headers


def test_the_page_and_the_documentation_name_no_other_address(server):
    for route in ("/", "/docs"):
        text = server.client.get(route).text
        assert set(re.findall(r"""(?:src|href)=["'](https?:)?//[^"']+""", text)) == set()
    schema = server.client.get("/openapi.json").json()
    assert {"/translate", "/languages", "/health", "/metrics"} <= set(schema["paths"])


def test_metrics_know_routes_and_depths_only(server):
    server.client.get("/some/secret/path")
    text = server.client.get("/metrics").text
    assert "secret" not in text
    assert re.search(r'anydepth_texts_total\{depth="2-2"\} \d', text)
    assert re.search(r'anydepth_requests_total\{route="/translate",status="200"\} \d', text)


# other models


def test_several_language_pairs(two_targets_run):
    with serving(two_targets_run, "--engine", "ctranslate2") as served:
        assert served.translate("le chat dort.").json()["translatedText"] == "the cat sleeps."
        assert served.translate("le chat dort.", target="loud").json()["translatedText"] == "THE CAT SLEEPS."
        assert (
            served.translate("le chat dort.", source="auto", target="loud").json()["translatedText"]
            == "THE CAT SLEEPS."
        )
        assert served.client.get("/languages").json()[0]["targets"] == ["en", "loud"]
        assert served.client.get("/model").json()["engine"] == "ctranslate2"


def test_a_classifier(by_mi_run):
    classifier = package.load(by_mi_run)
    with serving(by_mi_run, "--workers", 2) as served:
        text = "a good film , really good"
        expected, words = classifier.explain(text)
        answer = served.post("/classify", q=text, words=True).json()
        assert (answer["label"], answer["depth"]) == (expected.label, classifier.menu.default.name)
        assert answer["probability"] == pytest.approx(expected.probability, abs=1e-5)
        assert answer["words"] == [{"text": word.text, "depth": word.depth} for word in words]
        many = served.post("/classify", q=[text, "bad"], scale=0.5).json()
        assert [one["label"] for one in many["results"]] == [
            one.label for one in classifier.classify([text, "bad"], scale=0.5)
        ]
        assert served.post("/classify", q="word " * 500).json()["cut"] is True
        assert served.post("/classify", q=text, scale=-1).status_code == 400
        assert served.post("/classify", q=text, depth="99-0").status_code == 400
        assert served.post("/classify", q=text, words=7).status_code == 400
        assert served.translate("le chat").status_code == 404
        assert served.client.get("/model").json()["kind"] == "classification"


def test_a_language_code_with_a_hyphen(toy_run, tmp_path):
    there = package.load(toy_run)
    tensors = {name: value.detach() for name, value in there.model.named_parameters()}
    languages = ("pt-BR", "en")
    artifact.save(tmp_path / "model", there.model.config, tensors, there.tokenizer, there.menu, languages, {})
    with serving(tmp_path / "model") as served:
        answer = served.translate("le chat dort.", source="auto").json()
        assert answer["translatedText"] == "the cat sleeps."
        assert answer["detectedLanguage"]["language"] == "pt-BR"
        assert served.translate("le chat dort.", source="pt-BR").status_code == 200
        assert served.client.get("/languages").json()[0]["name"] == "Brazilian Portuguese"


# the verb


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--depth", "9-9"], ["no depth 9-9"]),
        (["--engine", "tensorrt"], ["no engine 'tensorrt'"]),
        (["--budget", "soon"], ["is not a budget"]),
        (["--depth", "1-1", "--budget", "9ms"], ["both choose the depth"]),
        (["--log-level", "loud"], ["no log level 'loud'"]),
        (["--depth", "auto"], ["no selector for auto"]),
        (["--budget", "20ms"], ["run `anydepth sweep`"]),
        (["--host", "a..b"], ["cannot serve on a..b"]),
        (["--engine", "ctranslate2", "--quantize", "int3"], ["no type int3"]),
        (["--api-keys", os.devnull], ["no key in it"]),
    ],
)
def test_bad_options(here, toy_run, options, words):
    assert_one_line(here("serve", toy_run, *options), *words)


def test_a_budget_that_can_never_be_kept(here, measured_run):
    assert_one_line(here("serve", measured_run, "--budget", "0.0001ms"), "below the fastest depth")


def test_a_sample_without_a_sentence(here, toy_run, tmp_path):
    shutil.copytree(toy_run / "model", tmp_path / "model")
    (tmp_path / "model" / "sample.tsv").write_text(" \t \n", "utf-8")
    assert_one_line(here("serve", tmp_path / "model"), "sample.tsv", "no sentence")


def test_a_depth_that_the_engine_cannot_run_is_left_out(toy_run, tmp_path):
    there = package.load(toy_run)
    tensors = {name: value.detach() for name, value in there.model.named_parameters()}
    menu = DepthMenu.of([*(entry.subnetwork for entry in there.menu), SubNetwork.words(2, 2)])
    depths = TokenDepths(WordDepths("mi", 2, {"chat": (1.0,)}), there.tokenizer)
    folder = tmp_path / "model"
    artifact.save(folder, there.model.config, tensors, there.tokenizer, menu, ("fr", "en"), {}, token_depths=depths)
    with serving(folder, "--engine", "ctranslate2") as served:
        assert served.translate("le chat dort.").json()["depth"] == "2-2"
        refused = served.translate("le chat dort.", depth="2-2-words")
        assert refused.status_code == 400
        assert "each word has its own depth" in refused.json()["error"]
        names = [one["name"] for one in served.client.get("/model").json()["pairs"]["fr-en"]["depths"]]
        assert names == there.menu.names


def test_a_port_that_is_taken(server, measured_run):
    port = server.url.rpartition(":")[2]
    done = anydepth("serve", measured_run, "--port", port)
    assert_one_line(done, "cannot serve on 127.0.0.1", "--port")
