"""Every page of the built site, as Chromium shows it on a phone and on a desktop.

``KPROD_SITE`` is the folder of the site, ``KPROD_BROWSER`` the browser if it is not on the path.
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
"""Pages whose pictures are kept, for a look at them."""

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
"""What leads out of the window, but for what can be scrolled in its own box."""
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
        """Nothing: what goes wrong is what the browser sees."""


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
    """A window, and what goes wrong in it: errors of scripts, and requests that lead elsewhere."""
    wrong: list[str] = []
    window = browser.new_context(**options)
    page: Any = window.new_page()  # its type has an overload of ``on`` for each event

    def hear(event: str, problem: Callable[[Any], str | None]) -> None:
        page.on(event, lambda told: wrong.extend(filter(None, [problem(told)])))

    hear("console", lambda said: f"console: {said.text}" if said.type == "error" else None)
    hear("pageerror", lambda error: f"script: {error}")
    hear("requestfailed", lambda asked: f"failed: {asked.url}")
    hear("response", lambda told: f"{told.status}: {told.url}" if told.status >= 400 else None)
    own = (address, "data:", "blob:")
    hear("request", lambda asked: None if asked.url.startswith(own) else f"leaves: {asked.url}")
    yield page, wrong
    window.close()


@pytest.mark.parametrize("kind", WIDTHS)
def test_pages_fit_their_window_and_nothing_goes_wrong(
    kind: str, browser: Browser, address: str
) -> None:
    size = {"width": WIDTHS[kind], "height": 844}
    problems: dict[str, Any] = {}
    PICTURES.mkdir(parents=True, exist_ok=True)
    with opened(browser, address, viewport=size) as (page, wrong):
        for name in PAGES:
            page.goto(f"{address}/{name}/")
            page.wait_for_load_state("networkidle")
            shown = page.evaluate(PICTURES_SHOWN)
            unseen = [str(image) for image in shown if not _is_seen(image, address)]
            found = [*wrong, *page.evaluate(WIDER), *page.evaluate(LETTERS), *unseen]
            if found:
                problems[name] = found
            wrong.clear()
            if name in LOOKED_AT:
                stem = "home" if name == "." else name
                page.screenshot(path=PICTURES / f"{stem}-{WIDTHS[kind]}.png", full_page=True)
    assert problems == {}


def _is_seen(image: dict[str, Any], address: str) -> bool:
    """It was loaded, says what it shows, and is not so small that its text cannot be read."""
    width = _drawn_width(SITE / image["source"].removeprefix(address).lstrip("/"))
    return bool(image["loaded"] and image["alt"]) and image["shown"] >= 0.6 * width


def _drawn_width(file: Path) -> float:
    """The units of a drawing that its text is measured in: pixels, where it is shown whole."""
    found = re.search(r'viewBox="\S+ \S+ ([\d.]+)', file.read_text())
    assert found, file
    return float(found[1])


def test_every_number_of_an_error_has_an_anchor() -> None:
    shown = (SITE / "errors" / "index.html").read_text()
    assert not [number for number in NUMBERS if f'id="{number.lower()}"' not in shown]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_site_follows_day_and_night(scheme: Any, browser: Browser, address: str) -> None:
    with opened(browser, address, color_scheme=scheme) as (page, _):
        page.goto(f"{address}/performance/")
        shown = page.evaluate("getComputedStyle(document.body).backgroundColor")
        parts = [float(part) for part in shown.strip("rgba()").split(",")[:3]]
        assert (sum(parts) / 3 < 128) == (scheme == "dark")


def test_the_search_finds_a_page(browser: Browser, address: str) -> None:
    with opened(browser, address) as (page, wrong):
        page.goto(f"{address}/")
        page.fill("input.md-search__input", "exactly once")
        page.wait_for_selector(".md-search-result__item a")
        assert wrong == []
