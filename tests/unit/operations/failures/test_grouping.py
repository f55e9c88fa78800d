"""Groups of deaths without a cause, by the fields that an operator names."""

from pathlib import Path
from typing import Any

import pytest

from amqsidecar.broker import BrokerKind, Delivery
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.engine.judging.death_groups import DeathGroups, no_note
from amqsidecar.engine.judging.judge import Judge, Judgement, Readers
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.errors import ConfigError
from amqsidecar.formats.stomp_frame import ENCODING, kept
from amqsidecar.model.cause import GROUP_MAX
from amqsidecar.model.decision import Decision, Redeliver
from amqsidecar.model.destination import queue
from amqsidecar.model.event import Received
from amqsidecar.model.failure import CountKind, failures_of
from amqsidecar.model.provenance import Provenance
from amqsidecar.operations.failures.suggest import SAMPLE_MAX, divide, suggest
from amqsidecar.stores.sqlite.store import SqliteStore
from amqsidecar.wiring.rules import load_grouping
from support.web.console_store import dead, keep

GROUP_BY = """{entries: [
  {queue: "orders.>", fields: [property:errorCode, "json:/kind"]},
  {queue: bills, fields: redeliveries}]}"""


def judged(group_by: str, origin: str, body: bytes, count: int = 0, **more: Any) -> Judgement:
    class Rules:
        def decide(self, *_: object) -> Decision:
            return Redeliver(0, count + 1, "rule")

    config = load_config(None, (f"intake.group_by={group_by}",), {})
    judge = Judge(
        Rules(),
        SendRules(BrokerKind.CLASSIC, lambda _: False, ".exhausted"),
        lambda: 0.5,
        Readers(death_group=DeathGroups(load_grouping(config), no_note).of_delivery),
        keeps_exhausted=True,
    )
    provenance = Provenance(origin=queue(origin), redelivery_count=count, **more)
    delivery = Delivery(1, queue("DLQ"), body, provenance, ENCODING)
    return judge.judge(delivery, "i1", 7, 1_000, is_backlog=False)


def message(code: str, body: str = "") -> bytes:
    return kept([(b"errorCode", code.encode())], body.encode())


@pytest.mark.parametrize(
    ("origin", "body", "died", "group"),
    [
        ("orders.eu", message("E42", '{"kind": "new"}'), {}, "{no} [errorCode=E42, /kind=new]"),
        ("orders.eu::q", message("E42"), {}, "{no} [errorCode=E42]"),
        ("orders.eu", message("E42"), {"expired": True}, "(expired) [errorCode=E42]"),
        ("orders.eu", message("E42"), {"cause": "a.B: 7"}, "a.B: * [errorCode=E42]"),
        ("orders.eu", kept([], b"x"), {"cause": "a.B: 7"}, "a.B: *"),
        ("other", message("E42"), {}, "{no}"),
        ("bills", message("E42"), {"count": 3}, "{no} [redeliveries=3]"),
        ("bills", message("E42"), {}, "{no} [redeliveries=0]"),
    ],
)
def test_a_group_has_the_values_of_the_fields_of_its_destination(
    origin: str, body: bytes, died: dict[str, Any], group: str
) -> None:
    verdict = judged(GROUP_BY, origin, body, **died)
    wanted = group.format(no="(no reason given)")
    assert verdict.row is not None
    assert verdict.row.cause_group == wanted
    received = verdict.events[0]
    assert isinstance(received, Received)
    assert [key[3] for key in failures_of([received]).counts if key[1] in CountKind] == [wanted]


def test_values_of_strangers_stay_short_and_on_one_line() -> None:
    long = message("E\t4\u202e2" + "x" * 5_000, '{"kind": "' + "y" * 5_000 + '"}')
    verdict = judged(GROUP_BY, "orders.eu", long, cause="a.B: " + "z" * 5_000)
    assert verdict.row is not None
    group = verdict.row.cause_group
    assert group.startswith("a.B: zzz")
    assert " [errorCode=E 4 2xxx" in group
    assert len(group) <= GROUP_MAX
    assert group.isprintable()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[]", "expected a mapping with `entries`"),
        ("{entries: []}", "expected entries or a default_entry"),
        ("{default_entry: {fields: []}}", "expected 1 to 8 fields"),
        ("{default_entry: {fields: [code]}}", "expected property:NAME"),
        ("{default_entry: {fields: [1]}}", "expected a text"),
        ("{entries: [{queue: a, fields: [jms_type], by: b}]}", "by: there is no such option"),
    ],
)
def test_a_mistake_is_reported_with_the_expected_form(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said.replace("`", ".")):
        load_grouping(load_config(None, (f"intake.group_by={text}",), {}))


def test_suggestions_name_the_fields_that_divide_what_died(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
    rows = [
        dead(
            number,
            None,
            1_000,
            destination="queue://orders",
            encoding=ENCODING,
            message=kept(
                [(b"region", b"eu" if number % 3 else b"us"), (b"orderId", str(number).encode())],
                f'{{"error": {{"code": "E{number % 4}"}}, "text": "t{number % 4}"}}'.encode(),
            ),
        )
        for number in range(1, 41)
    ]
    keep(store, rows)
    [found] = suggest(store)
    store.close()
    assert (found.destination, found.messages) == ("queue://orders", 40)
    assert [one.field for one in found.fields] == ["json:/error/code", "property:region"]
    assert found.fields[0].values == {"E0": 10, "E1": 10, "E2": 10, "E3": 10}
    assert found.fields[0].same_as == ["json:/text"]


def test_a_sample_is_spread_over_all_messages(tmp_path: Path) -> None:
    """1,000 of one code lie before 200 of each of three others, which lie far apart."""
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
    codes = [0] * 1_000 + [1] * 200 + [2] * 200 + [3] * 200
    rows = [
        dead(
            number + 100_000 * code,
            None,
            1_000,
            destination="queue://orders",
            encoding=ENCODING,
            message=message(f"E{code}"),
        )
        for number, code in enumerate(codes, start=1)
    ]
    keep(store, rows)
    [found] = suggest(store)
    store.close()
    assert found.messages == SAMPLE_MAX
    [field] = found.fields
    assert field.field == "property:errorCode"
    assert set(field.values) == {"E0", "E1", "E2", "E3"}
    assert min(field.values.values()) >= 20, field.values


def test_what_nearly_each_message_has_otherwise_or_few_have_is_not_suggested() -> None:
    messages = [{"property:id": str(n), "property:same": "x"} for n in range(20)]
    messages[0]["property:code"] = "a"
    assert divide("queue://a", messages).fields == []
    assert divide("queue://a", []).fields == []


def test_what_is_suggested_makes_a_group_of_each_of_twelve_bugs(tmp_path: Path) -> None:
    bodies = [
        f'{{"order": {number}, "region": "r{number % 3}", "error": {{"code": "E{number % 12}"}}}}'
        for number in range(120)
    ]
    store = SqliteStore(tmp_path / "schedule.db", clock=SystemClock(), instance_name="test")
    keep(
        store,
        [
            dead(
                number + 1,
                None,
                1_000,
                destination="queue://orders",
                encoding=ENCODING,
                message=kept([], body.encode()),
            )
            for number, body in enumerate(bodies)
        ],
    )
    [found] = suggest(store)
    store.close()
    group_by = f'{{default_entry: {{fields: ["{found.fields[0].field}"]}}}}'
    groups = set()
    for body in bodies:
        row = judged(group_by, "orders", kept([], body.encode())).row
        assert row is not None
        groups.add(row.cause_group)
    assert len(groups) == 12
