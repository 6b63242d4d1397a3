"""The folder of `anydepth export --to web` in a real browser: while it arrives, once it is there, without a network."""

import json
import shutil

import pytest
from conftest import anydepth, assert_one_line
from gated_site import GatedSite
from running_browser import expect_start, expect_text, needs_browser

from anydepth.artifact.model_file import Kind, ModelFile

pytest_plugins = ["made_servers", "made_browsers"]
pytestmark = needs_browser


@pytest.fixture(scope="module")
def folder(measured_run, tmp_path_factory):
    out = tmp_path_factory.mktemp("site") / "site"
    done = anydepth("export", measured_run, "--to", "web", "--out", out)
    assert done.returncode == 0, done.stderr.decode()
    assert b"same tokens at each of 4 depths" in done.stdout
    return out


@pytest.fixture
def site(folder):
    """Sends all of the model but its last layers, which come when the gate opens."""
    site = GatedSite(folder, share_before_layer(folder / "model.anydepth", 2))
    yield site
    site.stop()


def share_before_layer(path, number):
    file = ModelFile.open(path)
    place = next(one for one in file.places if one.kind == Kind.ENCODER_LAYER and one.index == number - 1)
    return place.offset / path.stat().st_size


def test_the_first_depth_translates_before_the_model_has_arrived(site, open_page):
    page = open_page(site.url)
    page.fill("#text", "le chat dort.")
    expect_start(page, "#arrival-note", "Depth 1-1 has arrived, 1 of 4 depths: ")
    expect_start(page, "#ran", "depth 1-1: ")
    assert page.text_content("#output").strip()
    assert page.locator(".cell.coming").count() == 3
    site.gate.set()
    expect_start(page, "#arrival-note", "The model is here")
    expect_start(page, "#ran", "depth 2-2: ")
    expect_text(page, "#output", "the cat sleeps.")
    assert page.locator(".cell.coming").count() == 0


def without_automatic_retries(page):
    page.evaluate("() => { RETRY_DELAYS.length = 0; }")
    return page


@pytest.mark.parametrize("ranges", [True, False])
def test_a_cut_keeps_the_depths_that_are_there_and_a_retry_brings_the_rest(site, open_page, ranges):
    site.ranges = ranges
    page = without_automatic_retries(open_page(site.url))
    page.fill("#text", "un chien mange.")
    expect_start(page, "#ran", "depth 1-1: ")
    before = page.text_content("#output")
    site.cut()
    expect_start(page, "#arrival-note", "The rest of the model did not arrive: the connection was lost at ")
    assert page.text_content("#arrival-note").endswith(" MB. Depth 1-1 works.")
    assert page.text_content("#output") == before
    page.fill("#text", "")
    expect_text(page, "#output", "")
    page.fill("#text", "le chat dort.\n\nun chien mange.")
    page.wait_for_function(
        "before => document.getElementById('output').textContent.endsWith('\\n\\n' + before)", arg=before
    )
    expect_start(page, "#ran", "depth 1-1: ")
    assert page.text_content("#alert") == ""
    page.click("#retry")  # cut again
    page.wait_for_selector("#retry", state="visible")
    expect_start(page, "#arrival-note", "The rest of the model did not arrive: ")
    site.mend()
    page.click("#retry")
    expect_start(page, "#arrival-note", "The model is here")
    expect_text(page, "#output", "the cat sleeps.\n\na dog eats.")
    expect_start(page, "#ran", "depth 2-2: ")
    assert page.is_hidden("#retry")
    first, *later = site.asked
    assert first is None
    assert len(later) == 2
    assert all(one.startswith("bytes=") and one != "bytes=0-" for one in later)
    expect_it_works_offline(site, page)


@pytest.mark.parametrize("ranges", [True, False])
def test_the_rest_of_a_cut_file_is_asked_for_again_by_itself(site, open_page, ranges):
    site.ranges = ranges
    page = open_page(site.url)
    page.evaluate("() => { RETRY_DELAYS.fill(0.5, 0, 4); }")
    page.fill("#text", "le chat dort.")
    expect_start(page, "#ran", "depth 1-1: ")
    record = """() => {
      window.notes = [];
      const note = () => window.notes.push([document.getElementById('arrival-note').textContent, $('retry').hidden]);
      new MutationObserver(note).observe(document.getElementById('arrival-note'), { childList: true });
    }"""
    page.evaluate(record)
    site.cut(times=4)
    expect_start(page, "#arrival-note", "The model is here")
    expect_text(page, "#output", "the cat sleeps.")
    told = [
        hidden for text, hidden in page.evaluate("() => notes") if text.endswith(" It is asked for again in 0.5 s.")
    ]
    assert told  # which a busy machine need not show each time
    assert not any(told)  # there is the button, too
    first, *later = site.asked
    assert first is None
    assert len(later) == 4
    assert all(one.startswith("bytes=") and one != "bytes=0-" for one in later)
    assert page.is_hidden("#retry")


def test_a_page_waits_for_a_server_that_is_gone_for_a_while(folder, open_page):
    site = GatedSite(folder, share_before_layer(folder / "model.anydepth", 2))
    page = open_page(site.url)
    page.fill("#text", "le chat dort.")
    expect_start(page, "#ran", "depth 1-1: ")
    site.cut()
    site.stop()
    expect_note(page, r" Depth 1-1 works\. It is asked for again in \d+ s\.$")
    again = GatedSite(folder, 1.0, port=site.port)
    again.gate.set()
    expect_start(page, "#arrival-note", "The model is here")
    expect_text(page, "#output", "the cat sleeps.")
    again.stop()


def test_a_file_that_never_comes_is_not_asked_for_without_end(site, open_page):
    page = open_page(site.url)
    page.evaluate("() => { RETRY_DELAYS.fill(0.1); }")
    site.cut()
    expect_note(page, r" Depth 1-1 works\.$")
    assert len(site.asked) == 7
    site.mend()
    page.click("#retry")
    expect_start(page, "#arrival-note", "The model is here")


def expect_note(page, pattern):
    page.wait_for_function("it => new RegExp(it).test($('arrival-note').textContent)", arg=pattern)


def test_a_cut_file_is_asked_for_again_when_the_network_is_back(site, open_page):
    page = without_automatic_retries(open_page(site.url))
    page.fill("#text", "le chat dort.")
    expect_start(page, "#ran", "depth 1-1: ")
    site.cut()
    expect_start(page, "#arrival-note", "The rest of the model did not arrive: ")
    page.context.set_offline(True)
    site.mend()
    page.context.set_offline(False)
    expect_start(page, "#arrival-note", "The model is here")
    expect_text(page, "#output", "the cat sleeps.")


def test_a_cut_before_any_depth_is_told_and_can_be_retried(site, open_page):
    site.first = 0.05
    page = without_automatic_retries(open_page(site.url))
    site.cut()
    expect_start(page, "#arrival-note", "The model did not arrive: the connection was lost")
    assert page.text_content("#arrival-note").endswith(" No depth works yet.")
    page.fill("#text", "le chat dort.")
    expect_text(page, "#alert", "Nothing can be translated yet: the model has not arrived.")
    assert page.text_content("#output") == ""
    site.mend()
    page.click("#retry")
    expect_text(page, "#output", "the cat sleeps.")
    assert page.text_content("#alert") == ""


def test_a_cut_before_any_depth_sends_nothing_to_a_server_by_itself(folder, tmp_path, open_page):
    with_server = tmp_path / "with_server"
    shutil.copytree(folder, with_server)
    about = json.loads((with_server / "model.json").read_text("utf-8"))
    (with_server / "model.json").write_text(json.dumps(about | {"server": True}), "utf-8")
    site = GatedSite(with_server, 0.05)
    page = without_automatic_retries(open_page(site.url))
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    site.cut()
    expect_start(page, "#arrival-note", "The model did not arrive: the connection was lost")
    assert page.text_content("#arrival-note").endswith("but the server can translate: choose it above.")
    page.fill("#text", "le chat dort.")
    expect_text(page, "#alert", "Nothing can be translated yet: the model has not arrived.")
    site.mend()
    page.click("#retry")
    expect_text(page, "#output", "the cat sleeps.")
    assert "POST" not in sent
    site.stop()


def test_a_damaged_rest_leaves_the_depths_before_it(folder, tmp_path, open_page):
    damaged = tmp_path / "damaged"
    shutil.copytree(folder, damaged)
    data = bytearray((damaged / "model.anydepth").read_bytes())
    data[-1] ^= 1
    (damaged / "model.anydepth").write_bytes(data)
    site = GatedSite(damaged, share_before_layer(folder / "model.anydepth", 2))
    page = open_page(site.url)
    expect_start(page, "#arrival-note", "Depth 1-1 has arrived")
    site.gate.set()
    expect_start(page, "#arrival-note", "The rest of the model cannot be used: ")
    assert page.text_content("#arrival-note").endswith(" Reload the page to try again.")
    assert page.is_hidden("#retry")
    page.fill("#text", "le chat dort.")
    page.wait_for_function("() => document.getElementById('output').textContent.trim()")
    site.stop()


def test_no_old_translation_stays_beside_a_new_text_when_the_worker_is_gone(site, open_page):
    site.gate.set()
    page = open_page(site.url)
    page.fill("#text", "le chat dort.")
    expect_text(page, "#output", "the cat sleeps.")
    page.workers[0].evaluate("() => { setTimeout(() => { throw new Error('broken'); }); }")
    expect_start(page, "#alert", "The model cannot be used: ")
    page.fill("#text", "un chien mange.")
    expect_text(page, "#output", "")
    expect_text(page, "#ran", "\u00a0")
    expect_start(page, "#alert", "The model cannot be used: ")


def expect_it_works_offline(site, page):
    page.wait_for_function("() => document.getElementById('arrival-note').textContent.includes('without a network')")
    page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
    site.stop()
    page.fill("#text", "le chat dort.")
    expect_text(page, "#output", "the cat sleeps.")
    page.reload()
    page.wait_for_selector("[data-depth]", state="attached")
    page.fill("#text", "un chien mange.")
    expect_text(page, "#output", "a dog eats.")
    expect_start(page, "#ran", "depth 2-2: ")


def test_it_translates_without_a_network_once_it_was_there(site, open_page):
    site.gate.set()
    page = open_page(site.url)
    expect_it_works_offline(site, page)


def test_typing_runs_the_shallowest_depth_and_a_pause_the_chosen_one(site, open_page):
    """The pause begins once the shallowest depth has run, however long that takes on this machine."""
    site.gate.set()
    page = open_page(site.url)
    expect_start(page, "#arrival-note", "The model is here")
    hold = """() => {
      const begin = later;
      window.held = [];
      later = (...job) => job[2] === PAUSE ? window.held.push(job) : begin(...job);
      window.go_on = () => begin(...window.held.at(-1));
    }"""
    page.evaluate(hold)
    assert " ms" not in page.text_content("#slider-value")  # nothing has run on this device
    page.locator("#text").press_sequentially("le chat dort.")
    expect_start(page, "#ran", "depth 1-1: ")
    page.evaluate("() => go_on()")
    expect_start(page, "#ran", "depth 2-2: ")
    assert " ms a sentence" in page.text_content("#slider-value")


def test_times_are_of_what_ran_now_and_a_budget_holds_by_the_times_shown(site, open_page):
    site.gate.set()
    page = open_page(site.url)
    expect_start(page, "#arrival-note", "The model is here")
    page.fill("#text", "le chat dort.")
    last = "document.querySelector('#compare > div:last-child .soft')"
    page.wait_for_function(f"() => {last}.textContent.endsWith(' ms')")
    known = page.evaluate("() => state.tab.slowdowns.length")
    assert known > 0
    page.fill("#text", "")
    expect_text(page, "#output", "")
    page.fill("#text", "le chat dort.")  # remembered
    expect_text(page, "#output", "the cat sleeps.")
    expect_start(page, "#ran", "depth 2-2: ")
    assert page.evaluate("() => state.tab.slowdowns.length") == known
    for number in range(10):  # older ones are forgotten
        page.fill("#text", "le chat dort. " * (number + 2) + str(number))
        expect_start(page, "#ran", "depth 2-2: ")
        page.wait_for_function("() => !state.running")
    assert page.evaluate("() => state.tab.slowdowns.length") == 9
    page.focus("#budget")
    page.keyboard.press("Home")
    page.evaluate("() => { state.tab.slowdowns = [1000]; show_figures(); }")  # the device has become slow
    assert page.locator(".cell.over").count() == 4
    page.evaluate("() => { state.tab.slowdowns = [1e-6]; show_figures(); }")
    assert page.locator(".cell.over").count() == 0
    assert page.locator(".cell[aria-label$=' 0.0 ms']").count() == 4


def test_paragraphs_and_long_texts(site, open_page):
    site.gate.set()
    page = open_page(site.url)
    page.fill("#text", "le chat dort.\n\n---\nun chien mange.")
    expect_text(page, "#output", "the cat sleeps.\n\n---\na dog eats.")
    page.fill("#text", "le chat dort et " * 200)
    page.wait_for_function("() => document.getElementById('output').textContent.length > 1000")
    assert page.text_content("#alert") == ""


def test_a_newer_text_does_not_wait_for_a_long_one(site, open_page):
    """The worker is held back until both texts are waiting for it: the long one must give way after a piece or so."""
    site.gate.set()
    page = open_page(site.url)
    expect_start(page, "#arrival-note", "The model is here")
    record = """() => {
      self.sent = [];
      const post = self.postMessage.bind(self);
      self.postMessage = message => { self.sent.push(message); post(message); };
    }"""
    hold = """() => setTimeout(() => {
      const request = new XMLHttpRequest();
      request.open("GET", "/hold", false);
      request.send();
    })"""
    worker = page.workers[0]
    worker.evaluate(record)
    worker.evaluate(hold)
    assert site.held.wait(1000)
    long = "le chat dort et " * 750
    page.fill("#text", long)
    page.fill("#text", "un chien mange.")
    site.release.set()
    expect_text(page, "#output", "a dog eats.")
    expect_start(page, "#ran", "depth 2-2: ")
    outdated = "".join(one["text"] for one in pieces(worker) if one["text"] != "a dog eats.")
    page.fill("#text", "")
    expect_text(page, "#ran", "\u00a0")
    worker.evaluate("() => { self.sent = []; }")
    page.fill("#text", long)
    expect_start(page, "#ran", "depth 2-2: ")
    assert len(outdated) < len(page.text_content("#output")) / 4
    assert len(pieces(worker)) > 20


def pieces(worker):
    return worker.evaluate("() => self.sent.filter(one => one.kind === 'sentence')")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(site, open_page, scheme):
    site.gate.set()
    page = open_page(site.url, viewport={"width": 360, "height": 740}, color_scheme=scheme, has_touch=True)
    page.fill("#text", "le chat dort et un chien mange ici. " * 5)
    page.wait_for_function("() => document.getElementById('output').textContent.length > 20")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 360
    assert page.is_hidden("#examples")  # the translation is where they were
    back = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert back == {"light": "rgb(246, 247, 249)", "dark": "rgb(17, 22, 28)"}[scheme]


def test_a_broken_model_is_told(folder, tmp_path, open_page):
    broken = tmp_path / "broken"
    shutil.copytree(folder, broken)
    (broken / "model.anydepth").write_bytes(b"no model" * 100)
    site = GatedSite(broken, 1.0)
    site.gate.set()
    page = open_page(site.url)
    expect_start(page, "#alert", "The model cannot be used: ")
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.method))
    page.fill("#text", "le chat dort.")
    page.wait_for_timeout(1500)  # longer than typing pauses
    expect_start(page, "#alert", "The model cannot be used: ")
    assert "POST" not in sent
    site.stop()


def test_an_export_replaces_only_an_earlier_one(folder, measured_run, tmp_path):
    (tmp_path / "mine").write_text("dear")
    assert_one_line(anydepth("export", measured_run, "--to", "web", "--out", tmp_path), "not an earlier export")
    options = ("--to", "web", "--depth", "1-1", "--out", tmp_path / "new")
    assert_one_line(anydepth("export", measured_run, *options), "leave out depth")
