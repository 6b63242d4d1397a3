"""Servers of all sorts: who may ask, what is written down, other models, and set-ups that cannot work."""

import json
import os
import re
import shutil

import pytest
from conftest import anydepth, assert_one_line
from running_server import serving

import anydepth as package
from anydepth.artifact import saving
from anydepth.depth import DepthMenu, SubNetwork
from anydepth.export.runtime import build_runtime_file
from anydepth.word_depths.table import TokenDepths, WordDepths

pytestmark = pytest.mark.slow

pytest_plugins = ["made_servers", "made_classifiers"]


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
        both = {"json": fields | {"api_key": "other"}, "headers": {"Authorization": "Bearer of-a-proxy"}}
        assert served.client.post("/translate", **both).status_code == 200
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


def test_only_a_sample_in_the_model_is_shown_to_everyone(toy_run, tmp_path, server):
    """What a run was validated with is nobody's business."""
    assert server.client.get("/model").json()["pairs"]["fr-en"]["examples"] == []
    shutil.copytree(toy_run / "model", tmp_path / "model")
    (tmp_path / "model" / "sample.tsv").write_text("le chat dort.\tthe cat sleeps.\n", "utf-8")
    with serving(tmp_path / "model") as served:
        assert served.client.get("/model").json()["pairs"]["fr-en"]["examples"] == ["le chat dort."]


def test_a_model_file_is_served_and_given_to_the_page(toy_run, tmp_path):
    file = tmp_path / "toy.anydepth"
    file.write_bytes(build_runtime_file(package.load(toy_run, engine="torch")))
    with serving(file) as served:
        assert served.translate("le chat dort.").json()["translatedText"] == "the cat sleeps."
        about = served.client.get("/model.json").json()
        assert [one["name"] for one in about["pairs"]["fr-en"]["depths"]] == ["1-1", "1-2", "2-1", "2-2"]
        assert served.client.get(f"/{about['in_tab']['file']}").content == file.read_bytes()


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
    server.translate("le chat.", depth="2-2")
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


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_classifier(by_mi_run, engine):
    classifier = package.load(by_mi_run, engine=engine)
    with serving(by_mi_run, "--workers", 2, "--engine", engine) as served:
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
        assert served.post("/classify", q=text, depth="2-0").json()["mean_depth"] == 2
        assert served.post("/classify", q=text, exit="confidence:0.01").json()["mean_depth"] == 1
        assert served.post("/classify", q=text, budget_ms=60_000).json()["depth"] in ("3-0", "3-0-words")
        assert "below the fastest depth" in served.post("/classify", q=text, budget_ms=1e-6).json()["error"]
        both = served.post("/classify", q=text, budget_ms=5, depth="2-0")
        assert (both.status_code, "both choose the depth" in both.json()["error"]) == (400, True)
        assert "have no lambda" in served.post("/classify", q=text, **{"lambda": 0.1}).json()["error"]
        unknown = served.post("/classify", q=text, dept="2-0")
        assert unknown.status_code == 422
        assert unknown.json() == {"error": "Invalid request: there is no dept parameter: did you mean depth?"}
        assert served.translate("le chat").status_code == 404
        about = served.client.get("/model").json()
        assert (about["kind"], about["engine"]) == ("classification", engine)


def test_a_language_code_with_a_hyphen(toy_run, tmp_path):
    there = package.load(toy_run, engine="torch")
    tensors = {name: value.detach() for name, value in there.model.named_parameters()}
    languages = ("pt-BR", "en")
    content = saving.ModelContent(there.model.config, tensors, there.tokenizer, there.menu, languages)
    saving.save(tmp_path / "model", content, {})
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
        (["--engine", "ctranslate2", "--quantize", "int3"], ["no compute type int3"]),
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
    there = package.load(toy_run, engine="torch")
    tensors = {name: value.detach() for name, value in there.model.named_parameters()}
    menu = DepthMenu.of([*(entry.subnetwork for entry in there.menu), SubNetwork.words(2, 2)])
    depths = TokenDepths(WordDepths("mi", 2, {"chat": (1.0,)}), there.tokenizer)
    folder = tmp_path / "model"
    config, languages = there.model.config, ("fr", "en")
    content = saving.ModelContent(config, tensors, there.tokenizer, menu, languages, token_depths=depths)
    saving.save(folder, content, {})
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
    assert_one_line(done, "cannot serve on 127.0.0.1", "choose another port")
