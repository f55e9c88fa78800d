"""The pages of the fleet in a real browser: widths, and barriers for people."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from support.machine.ports import free_port
from support.waiting import eventually
from support.web.chromium import barriers, opened_page, running_chromium
from support.web.fleet import (
    FleetProcess,
    as_person,
    hung_sidecar,
    older_sidecar,
    prepared_sidecar,
)
from support.web.incident import CAUSES
from support.web.site import RULES

pytestmark = pytest.mark.browser

WIDTHS: Final = (390, 768, 1280)
CAUSE: Final = CAUSES[0][1].replace("{}", "*")
PAGES: Final = {
    "fleet": "/",
    "groups": "/groups",
    "group": f"/groups/one?group={CAUSE}",
    "action": f"/act/retry?group={CAUSE}",
    "discard": f"/act/discard?group={CAUSE}",
    "redirect": f"/act/redirect?group={CAUSE}&target=orders.repair",
    "messages": "/messages?state=exhausted",
    "operations": "/operations",
}


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("looks")
    with ExitStack() as stack:
        urls = {
            f"orders-{n}": stack.enter_context(
                prepared_sidecar(folder / str(n), rules=RULES.replace("5", "7") if n else RULES)
            )
            for n in range(3)
        }
        urls["payments-settlement-europe"] = stack.enter_context(hung_sidecar())
        urls["stock"] = f"http://127.0.0.1:{free_port()}"
        urls["archive"] = stack.enter_context(older_sidecar())
        process = stack.enter_context(FleetProcess(folder, urls))
        client = stack.enter_context(process.client(**as_person()))
        eventually(lambda: "no answer yet" not in client.get("/").text, what="all have answered")
        yield process.address


@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_has_no_barrier(
    address: str, width: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    images = tmp_path_factory.mktemp(f"fleet-{width}")
    size = {"width": width, "height": 900}
    with (
        running_chromium() as browser,
        opened_page(browser, address, viewport=size, extra_http_headers=as_person()) as page,
    ):
        for name, path in PAGES.items():
            page.goto(path)
            too_wide = page.evaluate(
                "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert too_wide <= 0, (path, width)
            assert barriers(page) == []
            page.screenshot(path=images / f"{name}.png", full_page=True)
