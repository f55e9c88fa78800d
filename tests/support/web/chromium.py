"""The machine's Chromium, driven by Playwright: every complaint of a page is kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from support.waiting import PATIENCE_S

_PATIENCE_MS = PATIENCE_S * 1000
expect.set_options(timeout=_PATIENCE_MS)

FURTHER_ROWS = "table.rows tbody tr:nth-child(n+9)"
AXE = Path(__file__).parent / "axe" / "axe.min.js"

_ARGUMENTS = (
    "--no-sandbox",  # Containers allow none; it sees our own pages only.
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--disable-quic",
)
_TELL_VIOLATIONS = """
document.addEventListener("securitypolicyviolation", (event) =>
  console.error(`refused by policy: ${event.violatedDirective} ${event.blockedURI}`));
"""


@contextmanager
def running_chromium() -> Iterator[Browser]:
    """Run it while the block runs."""
    path = shutil.which("chromium")
    assert path is not None, "no chromium on this machine: deploy/prepare-machine installs it"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        yield browser
        browser.close()


@contextmanager
def opened_page(browser: Browser, address: str, **options: Any) -> Iterator[Page]:
    """Open a page while the block runs; fails at its end if the browser complained.

    Args:
        browser: running.
        address: that paths are relative to.
        options: of the context, such as `color_scheme` or `viewport`.
    """
    complaints: list[str] = []
    context = browser.new_context(base_url=address, **options)
    context.set_default_timeout(_PATIENCE_MS)
    context.add_init_script(_TELL_VIOLATIONS)
    page = context.new_page()
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda said: (
            # Why: a form that was refused comes back with its problem.
            complaints.append(said.text)
            if said.type in ("error", "warning") and "status of 422" not in said.text
            else None
        ),
    )
    page.on(
        "requestfailed",
        lambda request: (
            # Why: a page that is left while it refreshes itself needs no answer any more.
            None
            if request.failure == "net::ERR_ABORTED"
            else complaints.append(f"{request.url}: {request.failure}")
        ),
    )
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((address, "data:"))
            else complaints.append(f"{request.url}: foreign")
        ),
    )
    try:
        yield page
    finally:
        context.close()
    assert complaints == []


def barriers(page: Page, *rules: str) -> list[str]:
    """Return what keeps people out of a page, as axe finds it: serious and critical only.

    Leaves the first rows of each table only.

    Args:
        page: open.
        rules: only these; none = all.
    """
    # Why not as a script of the page: its policy lets none in.
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    options = {"resultTypes": ["violations"]} | ({"runOnly": list(rules)} if rules else {})
    # Why: axe takes long for each row, and later rows of a table repeat the first rows.
    page.evaluate(f"document.querySelectorAll('{FURTHER_ROWS}').forEach(one => one.remove())")
    found = page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{page.url}: {one['id']}: {node['html'][:150]}: {node['failureSummary'][:300]}"
        for one in found["violations"]
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
