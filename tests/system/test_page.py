"""The page at /, in a real browser: typed into, clicked, steered by keyboard, on a phone, in the dark."""

import json
import re

import pytest
from running_browser import expect_start, expect_text, needs_browser
from running_server import serving

pytest_plugins = ["made_servers", "made_classifiers", "made_browsers"]
pytestmark = needs_browser


@pytest.fixture(params=["tab", "server"])
def url(server, request):
    """The page runs the model in the tab, or asks the server: what it can do is the same."""
    return f"{server.url}/?on={request.param}"


@pytest.fixture
def on_server(server):
    return f"{server.url}/?on=server"


def test_what_is_typed_is_translated(url, open_page):
    page = open_page(url)
    assert page.text_content("#text-label") == "French"
    page.locator("#text").press_sequentially("le chat dort.\n\nun chien mange.")
    expect_text(page, "#output", "the cat sleeps.\n\na dog eats.")
    expect_start(page, "#ran", "depth 2-2: ")
    page.fill("#text", "")
    expect_text(page, "#output", "")


def test_the_grid_chooses_a_depth_by_mouse_and_by_keys(url, open_page):
    page = open_page(url)
    page.fill("#text", "le chat dort.")
    page.click("[data-depth='1-2']")
    expect_start(page, "#ran", "depth 1-2: ")
    page.locator("[data-depth='1-2']").press("ArrowDown")
    expect_start(page, "#ran", "depth 2-2: ")
    page.locator("[data-depth='2-2']").press("ArrowLeft")
    expect_start(page, "#ran", "depth 2-1: ")
    assert page.get_attribute("[data-depth='2-1']", "aria-checked") == "true"
    assert page.evaluate("document.activeElement.dataset.depth") == "2-1"
    assert "92.0" in page.text_content("[data-depth='2-1']")
    page.click("#by-ms")
    assert "92.0" not in page.text_content("[data-depth='2-1']")
    assert page.get_attribute("#by-ms", "aria-pressed") == "true"


def test_a_selector_is_one_more_choice_for_keys_too(server, open_page):
    page = open_page(server.url)
    page.evaluate("() => { state.pair.has_selector = true; draw_grid(); }")
    page.locator("[data-depth='2-2']").press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.depth") == "auto"
    assert page.get_attribute("[data-depth='auto']", "aria-checked") == "true"
    page.keyboard.press("ArrowUp")
    assert page.evaluate("document.activeElement.dataset.depth") == "2-2"
    assert page.locator("[aria-checked='true']").count() == 1


def test_nothing_comes_after_the_text_was_cleared(url, open_page):
    page = open_page(url)
    page.evaluate("() => { $('text').value = 'le chat dort. '.repeat(100); translate(); }")
    page.evaluate("() => { $('text').value = ''; translate(); }")
    page.wait_for_load_state("networkidle")
    assert page.text_content("#output") == ""


def test_everything_can_be_reached_by_tab(server, open_page):
    page = open_page(server.url)
    page.focus("#text")
    seen = set()
    for _ in range(20):
        page.keyboard.press("Tab")
        seen.add(
            page.evaluate(
                "document.activeElement.id || document.activeElement.dataset.depth || document.activeElement.tagName"
            )
        )
    assert {"depth-slider", "copy", "clear", "by-bleu", "by-ms", "budget", "2-2", "SELECT"} <= seen


def test_the_budget_slider(url, open_page):
    page = open_page(url)
    page.fill("#text", "le chat dort.")
    page.fill("#budget", "99")
    assert re.fullmatch(r"at most [\d.]+ ms per sentence", page.text_content("#budget-value"))
    expect_start(page, "#ran", "depth ")
    page.click("#no-budget")
    assert page.text_content("#budget-value") == "no limit"
    assert page.is_hidden("#no-budget")


def test_a_text_too_long_for_the_budget_runs_at_the_fastest_depth(on_server, open_page):
    page = open_page(on_server)
    page.evaluate("() => { for (const one of state.pair.depths) one.ms /= 1000; }")  # as if others were that short
    page.fill("#text", "le chat dort.")
    page.fill("#budget", "0")
    page.wait_for_function("() => document.getElementById('budget-value').textContent.includes('takes longer')")
    expect_text(page, "#output", "the cat sleeps.")
    assert page.text_content("#alert") == ""


def test_three_depths_side_by_side(url, open_page):
    page = open_page(url)
    page.fill("#text", "le chat dort.")
    page.wait_for_function("() => document.querySelectorAll('#compare .output')[2].textContent === 'the cat sleeps.'")
    assert page.locator("#compare select").count() == 3
    times = page.locator("#compare .soft").all_text_contents()
    assert all(re.fullmatch(r" [\d.]+ ms", one) for one in times)
    marks = page.evaluate("marked('the cat cat sleeps', 'the cat sleeps').map(one => one.outerHTML ?? one).join('')")
    assert marks == "the cat <mark>cat</mark> sleeps"


def test_the_slider_chooses_among_depths_worth_their_time(url, open_page):
    page = open_page(url)
    page.fill("#text", "le chat dort.")
    page.fill("#depth-slider", "0")
    chosen = page.get_attribute("[aria-checked='true']", "data-depth")
    expect_start(page, "#ran", f"depth {chosen}: ")
    assert page.text_content("#slider-value").startswith(f"depth {chosen} · 9")
    page.locator("#depth-slider").press("End")
    expect_start(page, "#slider-value", "depth 2-2 · 93.0 BLEU")
    expect_start(page, "#ran", "depth 2-2: ")


def test_the_default_depth_is_a_step_of_the_slider_though_others_beat_it(url, open_page):
    page = open_page(url)
    page.evaluate(
        "() => { const figures = { '1-1': [1, 20], '1-2': [2, 30], '2-1': [3, 1], '2-2': [4, 40] };"
        " for (const one of state.pair.depths) [one.ms, one.bleu] = figures[one.name];"
        " state.pair.default = '2-1'; set_up_pair(pair_name()); }"
    )
    expect_start(page, "#slider-value", "depth 2-1 ")
    at = page.input_value("#depth-slider")
    page.locator("#depth-slider").press("ArrowRight")
    assert page.input_value("#depth-slider") != at
    assert not page.text_content("#slider-value").startswith("depth 2-1 ")
    page.locator("#depth-slider").press("ArrowLeft")
    expect_start(page, "#slider-value", "depth 2-1 ")
    assert page.input_value("#depth-slider") == at


def test_the_slider_follows_the_depth_that_the_budget_chose(url, open_page):
    page = open_page(url)
    page.fill("#text", "le chat dort.")
    page.click("[data-depth='1-1']")
    expect_start(page, "#ran", "depth 1-1: ")
    page.fill("#budget", "99")  # enough for all
    page.wait_for_function("() => $('slider-value').textContent.includes(' a sentence: depth ')")
    said, step, ran = page.evaluate(
        "() => [$('slider-value').textContent, steps()[Number($('depth-slider').value)].name, $('ran').textContent]"
    )
    assert said.endswith(f": depth {step}")
    assert ran.startswith(f"depth {step}: ")
    assert step != "1-1"
    page.click("#no-budget")
    expect_start(page, "#slider-value", "depth 1-1 ")


def test_the_head_names_the_engine_where_the_server_runs_it(server, open_page):
    page = open_page(server.url)
    assert "run by" not in page.text_content("#about")
    page.select_option("#place", "server")
    assert "; run by " in page.text_content("#about")


def test_count_clear_and_copy(url, open_page):
    page = open_page(url, permissions=["clipboard-read", "clipboard-write"])
    page.fill("#text", "le chat dort.")
    assert page.text_content("#count") == "13 characters"
    expect_text(page, "#output", "the cat sleeps.")
    record = """() => {
      window.said = [];
      new MutationObserver(() => said.push($('copy').textContent)).observe($('copy'), { childList: true });
    }"""
    page.evaluate(record)
    page.click("#copy")
    page.wait_for_function("() => said[0] === 'copied'")  # not for long
    assert page.evaluate("() => navigator.clipboard.readText()") == "the cat sleeps."
    page.click("#clear")
    expect_text(page, "#output", "")
    assert page.text_content("#count") == "0 characters"
    assert page.evaluate("() => document.activeElement.id") == "text"


def test_in_the_tab_nothing_of_a_text_is_sent(server, open_page):
    page = open_page(server.url)
    expect_start(page, "#arrival-note", "The model is here")
    sent = []
    page.on("request", lambda request: sent.append(request.method))
    page.fill("#text", "le chat dort.")
    page.wait_for_function("() => document.querySelectorAll('#compare .output')[2].textContent === 'the cat sleeps.'")
    assert "POST" not in sent
    page.select_option("#place", "server")
    page.wait_for_function("() => document.getElementById('ran').textContent.includes('ctranslate2')")


def test_a_server_with_keys_keeps_its_model(measured_run, tmp_path, open_page):
    keys = tmp_path / "keys"
    keys.write_text("secret\n")
    with serving(measured_run, "--api-keys", keys) as served:
        assert served.client.get("/model.anydepth").status_code == 404
        page = open_page(served.url)
        assert page.is_hidden("#place-choice")
        page.fill("#key", "secret")
        page.fill("#text", "le chat dort.")
        expect_text(page, "#output", "the cat sleeps.")


def test_errors_are_shown(server, open_page):
    page = open_page(server.url)
    page.evaluate("document.getElementById('text').removeAttribute('maxlength')")
    page.evaluate("state.depth = '9-9'")
    page.fill("#text", "le chat.")
    page.wait_for_function("() => document.getElementById('alert').textContent.includes('no depth 9-9')")


def test_an_error_leaves_no_older_translation_behind(on_server, open_page):
    page = open_page(on_server)
    page.fill("#text", "le chat dort.")
    page.wait_for_function("() => document.querySelectorAll('#compare .output')[2].textContent === 'the cat sleeps.'")
    page.fill("#text", "le chat dort. " * 2000)
    page.wait_for_function("() => document.getElementById('alert').textContent.includes('exceeds text limit')")
    expect_text(page, "#output", "")
    expect_text(page, "#compare .output", "")
    assert page.text_content("#ran").strip() == ""


def test_on_a_phone_nothing_sticks_out(server, open_page):
    page = open_page(server.url, viewport={"width": 360, "height": 740})
    page.fill("#text", "le chat dort et un chien mange ici. " * 5)
    page.wait_for_function("() => document.getElementById('output').textContent.length > 20")
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_light_and_dark(server, open_page, scheme):
    """Contrast of at least 4.5 to 1 (WCAG AA), of the page's text and of every cell of the grid, be it in the budget or
    not; and nothing is made paler by other means."""
    page = open_page(server.url, color_scheme=scheme)
    page.evaluate("document.querySelector('.cell').classList.add('over')")
    found = page.evaluate(
        """() => [...document.querySelectorAll('.cell, .cell small, .soft, #text')]
          .filter(one => one.offsetParent).map(one => {
          const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
          const rgb = colour => {
            canvas.fillStyle = colour;
            canvas.fillRect(0, 0, 1, 1);
            return [...canvas.getImageData(0, 0, 1, 1).data];
          };
          let back = one;
          while (rgb_is_clear(getComputedStyle(back).backgroundColor)) back = back.parentElement;
          function rgb_is_clear(colour) { return colour === 'rgba(0, 0, 0, 0)' || colour === 'transparent'; }
          let opacity = 1;
          for (let outer = one; outer; outer = outer.parentElement) opacity *= getComputedStyle(outer).opacity;
          return [rgb(getComputedStyle(one).color), rgb(getComputedStyle(back).backgroundColor), opacity];
        })"""
    )
    assert len(found) > 6

    def light(rgb):
        parts = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    for ink, back, opacity in found:
        assert opacity == 1
        one, other = sorted((light(ink), light(back)))
        assert (other + 0.05) / (one + 0.05) >= 4.5, json.dumps([ink, back])


def test_a_classifier_colours_words_by_depth(by_mi_run, open_page):
    with serving(by_mi_run) as served:
        page = open_page(served.url)
        page.fill("#text", "a good film , really good")
        page.wait_for_function("() => document.querySelectorAll('#words .word').length === 6")
        expected = served.post("/classify", q="a good film , really good", words=True).json()
        titles = page.eval_on_selector_all("#words .word", "all => all.map(one => one.title)")
        assert titles == [f"{word['depth']} layers" for word in expected["words"]]
        assert page.text_content("#words") == "a good film , really good"
        assert expected["label"] == page.text_content("#output .labels span")
        page.fill("#scale", "-2")
        page.wait_for_function("() => document.querySelectorAll('#words .word[title=\"1 layers\"]').length === 6")
