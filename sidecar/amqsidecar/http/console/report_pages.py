"""Pages of reports: which there are, and each as the job wrote it, shut in.

A job writes its report beside its tables: `--output-folder REPORTS/recovery` makes
`REPORTS/recovery/report.html`, which is listed under the name `recovery`.
"""

import asyncio
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from starlette.responses import HTMLResponse, Response

from amqsidecar.http.access import HttpRefused
from amqsidecar.http.console.console import PageMissing, Visit

REPORT_FILE: Final = "report.html"

REPORT_POLICY: Final = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
"""The `Content-Security-Policy` of a report: no script, no form, no origin.

Reports name the one style that they have by its hash in a policy of their own, and both hold.
"""

REPORT_MAX_BYTES: Final = 32 * 1024 * 1024
"""Larger files aren't reports: a job's report has a few hundred kilobytes."""


class ReportFile(msgspec.Struct, frozen=True, kw_only=True):
    """One report.

    Attributes:
        name: of the folder that the job wrote into; text that anyone may have chosen.
        written_at_ms: when it was written.
    """

    name: str
    written_at_ms: int
    size_bytes: int
    path: Path


def list_reports(folder: Path) -> list[ReportFile]:
    """Return the reports in the subfolders of a folder, the latest first.

    Only files `report.html` directly below subfolders count; symbolic links, hidden folders and
    names that can't be shown do not. A folder that is not there has none.

    Raises:
        OSError: the folder can't be listed.
    """
    found = []
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            is_shown = entry.name.isprintable() and not entry.name.startswith(".")
            if is_shown and entry.is_dir(follow_symlinks=False):
                report = _report_in(Path(entry.path))
                found += [report] if report else []
    return sorted(found, key=lambda one: (-one.written_at_ms, one.name))


def read_report(folder: Path, name: str) -> bytes | None:
    """Return the page of the report that is listed under this name; None = there is none.

    The name is looked up in the list and never made into a path.

    Raises:
        OSError: it can't be read.
    """
    for report in list_reports(folder):
        if report.name == name:
            # Why no link: the file may have been replaced since it was listed.
            with os.fdopen(os.open(report.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
                return file.read(REPORT_MAX_BYTES)
    return None


def _report_in(folder: Path) -> ReportFile | None:
    path = folder / REPORT_FILE
    try:
        status = path.lstat()
    except OSError:
        return None
    if not stat.S_ISREG(status.st_mode) or status.st_size > REPORT_MAX_BYTES:
        return None
    return ReportFile(
        name=folder.name,
        written_at_ms=status.st_mtime_ns // 1_000_000,
        size_bytes=status.st_size,
        path=path,
    )


HEADERS = {
    "Content-Security-Policy": REPORT_POLICY,
    # Why: the HTML standard has browsers refuse a page that is shut in and cut off from its opener.
    "Cross-Origin-Opener-Policy": "unsafe-none",
}


def _folder_of(visit: Visit) -> Path:
    folder = visit.tools.reports
    if folder is None:
        raise HttpRefused(403, "reports are about all destinations; your role views only some")
    return folder


async def show_reports(visit: Visit) -> Response:
    """List the reports."""
    try:
        found = await asyncio.to_thread(list_reports, _folder_of(visit))
    except OSError as error:
        raise PageMissing(f"The reports can't be listed: {error.strerror}.") from error
    return await visit.page("reports.html", reports=found)


async def show_report(visit: Visit) -> Response:
    """Return a report as its job wrote it."""
    name = visit.params.get("name", "")
    try:
        page = await asyncio.to_thread(read_report, _folder_of(visit), name)
    except OSError as error:
        raise PageMissing(f"The report {name} can't be read: {error.strerror}.") from error
    if page is None:
        raise PageMissing(f"There is no report {name} (any more).")
    return HTMLResponse(page, headers=HEADERS)
