"""The page of policies: as they act, and what other rules would change."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from lxml import html

from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.http.access import CSRF_FIELD
from amqsidecar.model.event import Received
from support.web.console import console_client
from support.web.console_store import dead, keep, open_store
from support.web.in_process import policies_of_file
from support.web.page import elements, strings, text_of

RULES = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 2, initial_redelivery_delay_ms: 1000}
"""
PLACE = "queue://orders<script"


@pytest.fixture
def client(tmp_path: Path) -> Iterator[httpx2.Client]:
    store = open_store(tmp_path / "schedule.db")
    now_ms = store._clock.now_ms()
    died = Received(
        at_ms=now_ms, id=1, redelivery_id="r", source="queue://ActiveMQ.DLQ", origin=PLACE
    )
    message = kept([(b"code", b"E1")], b"")
    row = dead(1, "boom", now_ms, destination=PLACE, encoding=ENCODING, message=message)
    keep(store, [row], [died])
    store.close()
    (tmp_path / "rules.yaml").write_text(RULES)
    policies = policies_of_file(tmp_path / "rules.yaml")
    with console_client(tmp_path / "schedule.db", policies=policies) as client:
        yield client


def post(client: httpx2.Client, rules: str) -> httpx2.Response:
    [token] = strings(
        html.fromstring(client.get("/policies").text),
        f"//form[@action='/policies']//input[@name='{CSRF_FIELD}']/@value",
    )
    return client.post("/policies", data={"rules": rules, CSRF_FIELD: token})


def test_policies_are_shown_where_messages_died(client: httpx2.Client) -> None:
    page = client.get("/policies")
    assert page.status_code == 200
    assert "queue://orders&lt;script" in page.text
    assert "1s, 1s" in page.text
    text = " ".join(text_of(html.fromstring(page.text)).split())
    assert "after 2 re-sends given up: no rule names the dead-letter queue" in text
    assert "such as queue://ActiveMQ.DLQ.final" in text
    assert "rules.yaml. Delays are" in text
    assert "rules.yaml:4" in text


def test_where_no_rules_are_known_that_is_said(tmp_path: Path) -> None:
    store = open_store(tmp_path / "schedule.db")
    keep(store, [dead(1, "boom", store._clock.now_ms(), destination="queue://orders")], [])
    store.close()
    with console_client(tmp_path / "schedule.db") as client:
        page = text_of(html.fromstring(client.get("/policies").text))
    assert "no broker has answered yet" in page
    assert "not known yet" in page


def test_other_rules_are_tried_and_nothing_is_changed(client: httpx2.Client) -> None:
    rules = RULES.replace("maximum_redeliveries: 2", "maximum_redeliveries: 0")
    page = post(client, rules)
    assert page.status_code == 200, page.text
    assert "What these rules would change" in page.text
    assert "Nothing has happened" in page.text
    assert "config:\n  policy:\n    rules:\n      # From rules.yaml" in page.text
    assert "after 2 re-sends" in client.get("/policies").text


def test_rules_that_can_t_be_used_say_where(client: httpx2.Client) -> None:
    page = post(client, "plugins: 5")
    assert page.status_code == 422
    assert "rules.yaml:1" in page.text


OTHER = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 3, initial_redelivery_delay_ms: 90000}
"""


def tried(client: httpx2.Client, rules: str) -> httpx2.Response:
    page = html.fromstring(client.get("/messages/one?id=1").text)
    [form] = elements(page, "//form[.//textarea[@name='rules']]")
    [token] = strings(form, f".//input[@name='{CSRF_FIELD}']/@value")
    assert "maximum_redeliveries: 2" in str(elements(form, ".//textarea")[0].text)
    return client.post(str(form.get("action")), data={"rules": rules, CSRF_FIELD: token})


def test_one_message_is_tried_under_other_rules_beside_todays(client: httpx2.Client) -> None:
    text = " ".join(text_of(html.fromstring(tried(client, OTHER).text)).split())
    today, other = text.split("What other rules would say")
    assert "re-sent after 1s" in today
    assert "Nothing has happened. About its latest death: re-sent after 1m 30s" in other
    assert "after 3 re-sends given up" in other, other


def test_rules_that_can_not_be_used_change_nothing_on_the_page_of_a_message(
    client: httpx2.Client,
) -> None:
    answer = tried(client, "plugins: [<script>")
    assert answer.status_code == 422
    assert "These rules can't be used" in answer.text
    assert "plugins: [&lt;script&gt;" in answer.text
    assert "What other rules would say" not in answer.text


TABLE = """
plugins:
  - redelivery:
      default_entry: {maximum_redeliveries: 2}
  - rules:
      rules:
        - {properties: {code: E2}, action: discard}
        - {properties: {code: E1}, redirect: {to: "queue://repair", delay_ms: 60000}}
"""


def test_a_table_of_rules_is_asked_about_the_message_as_it_is_kept(client: httpx2.Client) -> None:
    text = " ".join(text_of(html.fromstring(tried(client, TABLE).text)).split())
    _, other = text.split("What other rules would say")
    assert "sent to queue://repair after 1m" in other, other
    assert "rules.yaml:8" in other, other
    page = text_of(html.fromstring(post(client, TABLE).text))
    assert "waiting messages are asked as they are kept" in " ".join(page.split())
