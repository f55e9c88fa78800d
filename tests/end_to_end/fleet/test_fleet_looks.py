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
PAGES: Final = (
    "/",
    "/groups",
    f"/groups/one?group={CAUSE}",
    f"/act/retry?group={CAUSE}",
    f"/act/discard?group={CAUSE}",
    f"/act/redirect?group={CAUSE}&target=orders.repair",
    "/messages?state=exhausted",
    "/operations",
)


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


def test_every_page_fits_and_has_no_barrier(address: str) -> None:
    found: list[object] = []
    with (
        running_chromium() as browser,
        opened_page(browser, address, extra_http_headers=as_person()) as page,
    ):
        for path in PAGES:
            page.goto(path)
            for width in WIDTHS:
                page.set_viewport_size({"width": width, "height": 900})
                too_wide = page.evaluate(
                    "document.documentElement.scrollWidth - document.documentElement.clientWidth"
                )
                found += [(path, width)] if too_wide > 0 else []
            found += barriers(page)
    assert found == []
