"""Every page of the built site in Chromium, with the widths of a phone and a desktop.

``KPROD_SITE`` is the site's folder, ``KPROD_BROWSER`` the browser if it is not on PATH.
"""

from __future__ import annotations

import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from tests.docs.test_error_pages import NUMBERS

pytestmark = pytest.mark.timeout(600)

SITE = Path(os.environ["KPROD_SITE"])
PICTURES = SITE.parent / "build" / "site-check"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = {"phone": 390, "desktop": 1440}
PAGES = sorted(str(page.parent.relative_to(SITE)) for page in SITE.rglob("index.html"))
LOOKED_AT = (".", "performance", "configuration", "architecture", "choosing", "cli", "schema")
"""Pages with stored screenshots."""

WIDER = """() => {
  const width = document.documentElement.clientWidth;
  const scrolls = element => {
    for (let box = element.parentElement; box && box !== document.body; box = box.parentElement)
      if (['auto', 'scroll'].includes(getComputedStyle(box).overflowX)
          && box.getBoundingClientRect().right <= width + 1) return true;
    return false;
  };
  const found = [...document.querySelectorAll('article *')].filter(element => {
    const place = element.getBoundingClientRect();
    return place.width && place.right > width + 1 && !scrolls(element);
  });
  if (document.documentElement.scrollWidth > width) found.push(document.documentElement);
  return found.map(element => `${element.tagName} ${element.textContent.trim().slice(0, 60)}`);
}"""
"""Elements wider than the window, except those in a scrollable box."""
LETTERS = """() => {
  const words = element => [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
  return [...document.querySelectorAll('article *')]
    .filter(element => words(element) && element.offsetParent)
    .filter(element => parseFloat(getComputedStyle(element).fontSize) < 10)
    .map(element => `${element.tagName} ${element.textContent.trim().slice(0, 60)}`);
}"""
PICTURES_SHOWN = """() => [...document.querySelectorAll('article img')].map(image => (
  {source: image.src, alt: image.alt, loaded: image.naturalWidth, shown: image.width}))"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the browser reports errors."""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    handler = partial(_Quiet, directory=str(SITE))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    named = os.environ.get("KPROD_BROWSER")
    found = named or next(filter(None, map(shutil.which, BROWSERS)), None)
    assert found, f"none of {', '.join(BROWSERS)} is on the path: install one, or set KPROD_BROWSER"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, address: str, **options: Any) -> Iterator[tuple[Page, list[str]]]:
    """A page, and the list of its errors: scripts, failed requests, requests to other hosts."""
    errors: list[str] = []
    window = browser.new_context(**options)
    page: Any = window.new_page()  # its type has an overload of ``on`` for each event

    def on(event: str, problem: Callable[[Any], str | None]) -> None:
        page.on(event, lambda occurred: errors.extend(filter(None, [problem(occurred)])))

    on("console", lambda text: f"console: {text.text}" if text.type == "error" else None)
    on("pageerror", lambda error: f"script: {error}")
    on("requestfailed", lambda request: f"failed: {request.url}")
    on("response", lambda got: f"{got.status}: {got.url}" if got.status >= 400 else None)
    own = (address, "data:", "blob:")
    on("request", lambda sent: None if sent.url.startswith(own) else f"leaves: {sent.url}")
    yield page, errors
    window.close()


@pytest.mark.parametrize("kind", WIDTHS)
def test_pages_fit_their_window_without_errors(kind: str, browser: Browser, address: str) -> None:
    size = {"width": WIDTHS[kind], "height": 844}
    problems: dict[str, Any] = {}
    PICTURES.mkdir(parents=True, exist_ok=True)
    with opened(browser, address, viewport=size) as (page, errors):
        for name in PAGES:
            page.goto(f"{address}/{name}/")
            page.wait_for_load_state("networkidle")
            shown = page.evaluate(PICTURES_SHOWN)
            unseen = [str(image) for image in shown if not _is_seen(image, address)]
            found = [*errors, *page.evaluate(WIDER), *page.evaluate(LETTERS), *unseen]
            if found:
                problems[name] = found
            errors.clear()
            if name in LOOKED_AT:
                stem = "home" if name == "." else name
                page.screenshot(path=PICTURES / f"{stem}-{WIDTHS[kind]}.png", full_page=True)
    assert problems == {}


def _is_seen(image: dict[str, Any], address: str) -> bool:
    """Whether it was loaded, has a description, and is large enough to be read."""
    width = _drawn_width(SITE / image["source"].removeprefix(address).lstrip("/"))
    return bool(image["loaded"] and image["alt"]) and image["shown"] >= 0.6 * width


def _drawn_width(file: Path) -> float:
    """The width of a drawing in its own units: pixels at full size."""
    found = re.search(r'viewBox="\S+ \S+ ([\d.]+)', file.read_text())
    assert found, file
    return float(found[1])


def test_every_error_number_has_an_anchor() -> None:
    shown = (SITE / "errors" / "index.html").read_text()
    assert not [number for number in NUMBERS if f'id="{number.lower()}"' not in shown]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_follows_the_color_scheme(scheme: Any, browser: Browser, address: str) -> None:
    with opened(browser, address, color_scheme=scheme) as (page, _):
        page.goto(f"{address}/performance/")
        shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
        parts = [float(part) for part in shown.strip("rgba()").split(",")[:3]]
        assert (sum(parts) / 3 < 128) == (scheme == "dark")


def test_the_search_finds_a_page(browser: Browser, address: str) -> None:
    with opened(browser, address) as (page, errors):
        page.goto(f"{address}/")
        page.fill("input.md-search__input", "exactly once")
        page.wait_for_selector(".md-search-result__item a")
        assert errors == []
