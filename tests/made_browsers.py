"""A real browser for the tests of the page. A test file takes the fixtures by `pytest_plugins`."""

from collections.abc import Iterator
from typing import Any

import pytest
from running_browser import CHROMIUM


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def is_problem(message: Any) -> bool:
    """An answer with an error, or none, is told on the console too, and is none of the page's doing."""
    known = ("the server responded with a status", "net::ERR_", "An unknown error occurred")
    return message.type == "error" and not any(words in message.text for words in known)


@pytest.fixture
def open_page(browser: Any) -> Iterator[Any]:
    """Opens a page; at the end, nothing may have gone wrong in it, and no other address been asked for."""
    problems: list[str] = []
    contexts = []

    def open_it(url: str, **options: Any) -> Any:
        context = browser.new_context(**options)
        context.set_default_timeout(120_000)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.append(message.text) if is_problem(message) else None)
        origin = url.split("?")[0].rstrip("/")
        context.on(
            "request",
            lambda request: problems.append(request.url) if not request.url.startswith((origin, "data:")) else None,
        )
        page.goto(url)
        page.wait_for_selector("[data-depth], #class-depth option", state="attached")
        return page

    yield open_it
    for context in contexts:
        context.close()
    assert not problems
