"""Messages are known by two hashes of their ids."""

from typing import Any

import pyarrow

from amqsidecar.model.event import AnyEvent, Explained, Received, Regrouped
from amqsidecar.pipeline.recovery.lives import surveyed
from amqsidecar.pipeline.recovery.steps import COLUMNS, divided, hashed, seen_in
from pipeline.journals import SCHEMA, START_MS
from pipeline.recovery.histories import row


def numbers(texts: list[str]) -> list[tuple[int, int]]:
    column = pyarrow.array(texts)
    first, second = hashed(column)
    return list(zip(first.tolist(), second.tolist(), strict=True))


def test_texts_that_differ_have_other_numbers() -> None:
    texts = [f"9f2c41d07be85a36-{number:012d}" for number in range(20_000)]
    texts += [f"{number}" for number in range(20_000)]
    texts += ["\0" * number for number in range(1, 40)]
    found = numbers(texts)
    assert len({one for one, _ in found}) == len({one for _, one in found}) == len(texts)


def test_a_number_depends_on_its_text_only() -> None:
    alone = [numbers([text])[0] for text in ("a", "bcdefghi", "jklmnopqr")]
    assert numbers(["x", "a", "bcdefghi", "jklmnopqr"])[1:] == alone
    column = pyarrow.array(["x", "yy", "a", None, "bcdefghi"]).slice(2).fill_null("")
    first, _ = hashed(column)
    assert first[[0, 2]].tolist() == [alone[0][0], alone[1][0]]


def test_numbers_stay_the_same_in_later_versions() -> None:
    """They may be stored."""
    assert numbers(["9f2c41d07be85a36-000000000001"]) == [
        (-698423514810583819, 2490552337857676340)
    ]


def test_groups_are_learned_from_deaths_and_later_notes_as_the_sidecar_learns_them() -> None:
    """Five users make a template; a note's stack makes the group, whatever its words."""
    names = ("anna", "bert", "carl", "dora", "emil")
    origin, at_ms = "queue://orders", iter(range(100))
    about: dict[str, Any] = {"id": 1, "redelivery_id": "m"}
    events: list[AnyEvent] = [
        Received(
            at_ms=next(at_ms), source="q", origin=origin, cause=f"a.B: no user {one} there", **about
        )
        for one in names
    ]
    events += [
        Explained(at_ms=next(at_ms), destination=origin, cause=words, died_at_ms=START_MS, **about)
        for words in ("a.C: one [stack=7]", "a.C: other [stack=7]")
    ]
    by_user = {f"a.B: no user {one} there": "a.B: no user * there" for one in names}
    by_stack = dict.fromkeys(("a.C: one [stack=7]", "a.C: other [stack=7]"), "a.C: one [stack=7]")
    assert groups_of(events) == {**by_user, **by_stack}

    def merged(former: str, group: str) -> AnyEvent:
        at = next(at_ms)
        return Regrouped(
            at_ms=at, destination=origin, former_group=former, cause_group=group, **about
        )

    user, stack = "a.B: no user * there", "a.C: one [stack=7]"
    events.append(merged(stack, user))
    assert set(groups_of(events).values()) == {user}
    # Why the time of each: what a person parts again goes no round.
    events.append(merged(user, stack))
    assert set(groups_of(events).values()) == {stack}


def groups_of(events: list[AnyEvent]) -> dict[str, str]:
    rows = [row("a", place, event) for place, event in enumerate(events)]
    batches = pyarrow.Table.from_pylist(rows, SCHEMA).select(COLUMNS).to_batches()
    *_, last = divided(batches, None, None)
    seen = seen_in(last.column("content").to_pylist())
    found = surveyed(seen, None)
    return {
        found.texts[cause]: found.texts[found.groups.get((place, cause), cause)]
        for place, cause in seen.causes
    }
