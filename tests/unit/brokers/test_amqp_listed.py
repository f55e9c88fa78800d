"""What an AMQP receiver may request by a list of Core messages."""

import json
import re
from collections.abc import Mapping
from typing import Any

from amqsidecar.brokers.amqp_artemis.core_messages import LISTED_MAX, Listed
from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP
from amqsidecar.brokers.artemis.management import ManagementAnswer
from amqsidecar.formats.amqp_artemis_message import CORE_NUMBER
from amqsidecar.model.destination import queue

TEXT, OBJECT = 3, 2


def entry(number: int | None, kind: int = TEXT, user_id: str = "") -> Mapping[str, Any]:
    named = {} if number is None else {CORE_NUMBER: number}
    return {"type": kind, **named, **({"userID": user_id} if user_id else {})}


def read(*entries: Mapping[str, Any]) -> Listed:
    listed = Listed()
    listed.read(ManagementAnswer(json.dumps(entries), is_ok=True), 1.0)
    return listed


def selects(selector: str, number: int) -> bool:
    """Evaluate the part of a selector that is about numbers."""
    _, _, numbers = selector.partition(f"{MADE_BY_AMQP} OR ")
    text = re.sub(r"(?<![<>])=", "==", numbers.replace(CORE_NUMBER, "n"))
    return bool(eval(text.replace("AND", "and").replace("OR", "or"), {"n": number}))


def test_exactly_the_convertible_numbers_are_selected() -> None:
    wanted = [*range(10, 100, 7), *range(1000, 1050), 2**40]
    selector = read(*map(entry, wanted)).selector()
    assert [one for one in (*range(1100), 2**40) if selects(selector, one)] == wanted


def test_a_number_that_an_unconvertible_message_has_too_is_not_asked_for() -> None:
    listed = read(entry(1), entry(2), entry(1, OBJECT))
    assert (listed.awaited, listed.left) == ({2}, 1)


def test_what_has_no_number_is_named_by_its_id() -> None:
    listed = read(entry(None, user_id="ID:it's"), entry(None), entry(None, OBJECT, "ID:b"))
    assert (listed.awaited, listed.left) == ({"ID:it's"}, 2)
    assert "AMQUserID IN ('ID:it''s')" in listed.selector()


def test_the_list_is_read_again_when_all_came_or_none_did_for_some_time() -> None:
    listed = read(entry(1, user_id="ID:a"), entry(None, user_id="ID:b"))
    assert not listed.is_due(1.5, 0.0, holds_back=False)
    assert not listed.came(b"", "ID:of an AMQP client", 2.0)
    assert listed.is_due(10.0, 0.0, holds_back=False)
    assert not listed.is_due(10.0, 1.0, holds_back=False), "a slow broker"
    assert not listed.is_due(10.0, 0.0, holds_back=True)
    listed.awaited.discard(1)
    assert listed.came(b"", "ID:b", 3.0)
    assert listed.is_due(3.0, 0.0, holds_back=False)


def test_messages_behind_the_listed_ones_are_reported() -> None:
    for count, is_told in ((LISTED_MAX - 1, False), (LISTED_MAX, True)):
        listed = read(*(entry(number, OBJECT) for number in range(count)))
        [left] = listed.left_behind(queue("DLQ"))
        assert ("wait behind these" in left.meaning) is is_told


def test_a_refused_list_is_reported() -> None:
    listed = read(entry(1, OBJECT))
    assert not listed.read(ManagementAnswer("AMQ229213", is_ok=False), 2.0)
    [left] = listed.left_behind(queue("DLQ"))
    assert (left.count, left.meaning.endswith("AMQ229213")) == (0, True)
