"""What tests of the page need: a Chromium, and to wait for what it shows."""

import shutil
from typing import Any

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_browser = [
    pytest.mark.slow,
    pytest.mark.skipif(
        CHROMIUM is None, reason="there is no Chromium here: install Debian's `chromium` to test the page"
    ),
]


def expect_text(page: Any, selector: str, text: str) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector).textContent === text", arg=[selector, text]
    )


def expect_start(page: Any, selector: str, text: str) -> None:
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector).textContent.startsWith(text)", arg=[selector, text]
    )
