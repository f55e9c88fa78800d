"""The documentation site: built without a warning, on a phone and a queries, without a network."""

import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from playwright.sync_api import Browser, expect

from support.machine.processes import run_program
from support.tier import at_length
from support.waiting import PATIENCE_S
from support.web.chromium import opened_page, running_chromium

SITE = Path(__file__).parents[2] / "deploy" / "site"
OF_EACH_KIND = (
    "index.html",
    "deploy/reference/options.html",
    "deploy/evidence/fidelity-matrix.html",
    "reference/commands.html",
)
"""Prose, wide tables, long words, code."""
MORE = (
    "deploy/reference/metrics.html",
    "reference/http-api.html",
    "reference/events.html",
    "reference/plugin-api.html",
    "reference/columns.html",
    "reference/chart-values.html",
    "reference/core-packets.html",
    "deploy/evidence/records.html",
)
PAGES = (*OF_EACH_KIND, *at_length(MORE, otherwise=()))


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None: ...


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    run_program([sys.executable, SITE / "build.py", folder], code=0)
    return folder / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with running_chromium() as running:
        yield running


def test_a_link_to_a_missing_heading_fails_the_build(site: Path, tmp_path: Path) -> None:
    place = site.parent
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "README.md").write_text("# One\n\n[two](#two)\n")
    settings = (place / "mkdocs.yml").read_text().partition("nav:")[0]
    (tmp_path / "mkdocs.yml").write_text(settings.replace(str(place), str(tmp_path)))
    render = "import build, pathlib, sys; sys.exit(build.render(pathlib.Path(sys.argv[1])))"
    command = [sys.executable, "-c", render, str(tmp_path / "mkdocs.yml")]
    built = run_program(command, cwd=SITE)
    assert built.returncode == 1
    assert "contains a link '#two'" in built.stderr


@pytest.mark.browser
@pytest.mark.parametrize("width", [375, pytest.param(1280, marks=pytest.mark.proof)])
def test_no_page_is_wider_than_the_screen(address: str, browser: Browser, width: int) -> None:
    """Nor does any page ask another host for anything: `opened_page` fails on it."""
    with opened_page(browser, address, viewport={"width": width, "height": 800}) as page:
        for name in PAGES:
            page.goto(f"/{name}")
            expect(page.locator("h1")).to_be_visible()
            assert page.evaluate("document.documentElement.scrollWidth") <= width, name


@pytest.mark.browser
def test_search_finds_an_option(address: str, browser: Browser) -> None:
    with opened_page(browser, address, viewport={"width": 1280, "height": 800}) as page:
        page.goto("/index.html")
        words = page.get_by_role("textbox", name="Search")
        found = page.locator(".md-search-result__link[href*='reference/options.html']").first
        # Why key by key: the page searches when a key is released, not for what is filled in.
        words.press_sequentially("recheck_minutes")
        expect(found).to_be_visible(timeout=PATIENCE_S * 1_000)
