"""One run of the matrix on one broker: send, fail, wait for the re-send, take, compare."""

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_ID as REDELIVERY_ID
from matrix.applications import Observation, application
from matrix.listing import listed
from matrix.specimens import STOMP, Specimen, specimens_of
from matrix.stage import Wire, matrix_broker, policy, wires_of
from support.brokers.real import ArtemisBroker, Broker
from support.sidecar.process import SidecarProcess
from support.waiting import eventually

Pair = tuple[str, str]
"""Producing client, consuming client."""
MISSING = "missing"
SETTLED_S = 10.0
T = TypeVar("T")


@dataclass(frozen=True)
class Change:
    """A field that a consumer sees otherwise after the death.

    Attributes:
        field: `type`, `body`, `JMSPriority`, `property p`.
        how: `added`, `removed`, `Integer -> String`, `changed`, or both values where they are
            short.
        first: the value before.
        second: the value after.
    """

    field: str
    how: str
    first: Any = MISSING
    second: Any = MISSING

    def __str__(self) -> str:
        return f"{self.field}: {self.how}"


@dataclass
class Outcome:
    """What became of one specimen.

    Attributes:
        first: as the consumer saw it before it died; None: the broker did not hand it over.
        second: as it saw it after the sidecar; None: it never came.
        place: where it was in the end: `back`, `dead-letter queue`, `its queue` or `nowhere`.
        was_resent: whether the sidecar had it in hand.
    """

    specimen: Specimen
    first: Observation | None = None
    second: Observation | None = None
    place: str = "nowhere"
    was_resent: bool = False

    def changes(self) -> list[Change]:
        """Return the fields that differ."""
        assert self.first is not None
        assert self.second is not None
        return [
            _change(name, self.first.get(name, MISSING), self.second.get(name, MISSING))
            for name in sorted(self.first.keys() | self.second.keys())
            if self.first.get(name, MISSING) != self.second.get(name, MISSING)
        ]


def _change(name: str, first: Any, second: Any) -> Change:
    if first == MISSING:
        return Change(name, "added", first, second)
    if second == MISSING:
        return Change(name, "removed", first, second)
    if name.startswith("property ") and isinstance(first, list) and isinstance(second, list):
        how = "changed" if first[0] == second[0] else f"{first[0]} -> {second[0]}"
        return Change(name, how, first, second)
    if name in ("JMSMessageID", "JMSTimestamp", "JMSExpiration"):
        return Change(name, "gone" if second in (None, 0, "0") else "changed", first, second)
    short = f"{first!r} -> {second!r}"
    return Change(name, short if len(short) < 40 else "changed", first, second)


@dataclass
class Played:
    """All outcomes of one wire, by pair and test id, and what else was not as it should be."""

    wire: Wire
    outcomes: dict[Pair, dict[str, Outcome]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    reasons: dict[str, int] = field(default_factory=dict)


def play(kind: str, pairs: Iterable[Pair], folder: Path) -> list[Played]:
    """Play all wires of one broker; each sidecar keeps its files in the folder."""
    wires = wires_of(kind)
    pairs = list(pairs)
    with matrix_broker(kind) as broker:
        stage = {wire.name: Played(wire) for wire in wires if not wire.after}
        for played in stage.values():
            _send_and_fail(broker, played, pairs)
        _all_at_once(lambda one: _redeliver(broker, kind, one, folder), list(stage.values()))
        for wire in wires:
            if wire.after:
                stage[wire.name] = _left_by(stage[wire.after], wire)
                _redeliver(broker, kind, stage[wire.name], folder)
        followed = {wire.after for wire in wires}
        for name, played in stage.items():
            if name not in followed:
                _look_for_the_rest(broker, played)
        for wire in wires:
            if wire.after:
                _conclude(stage[wire.after], stage[wire.name])
    return list(stage.values())


def _queues(wire: Wire, pair: Pair) -> dict[str, dict[str, Specimen]]:
    """Return what a pair sends by queue and test id; a test id is the queue and a number."""
    name = f"{wire.prefix}{pair[0]}.{pair[1]}"
    found: dict[str, dict[str, Specimen]] = {}
    for number, specimen in enumerate(specimens_of(pair[0])):
        queue = f"{name}.{number}" if specimen.is_alone else name
        found.setdefault(queue, {})[f"{queue}-{number}"] = specimen
    return found


def _by_queue(played: Played) -> dict[str, tuple[Pair, dict[str, Outcome]]]:
    found: dict[str, tuple[Pair, dict[str, Outcome]]] = {}
    for pair, outcomes in played.outcomes.items():
        for key, one in outcomes.items():
            found.setdefault(key.rpartition("-")[0], (pair, {}))[1][key] = one
    return found


def _all_at_once(do: Callable[[T], None], items: Iterable[T]) -> None:
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(do, items))


def _send_and_fail(broker: Broker, played: Played, pairs: list[Pair]) -> None:
    for pair in pairs:
        messages = {k: v for some in _queues(played.wire, pair).values() for k, v in some.items()}
        played.outcomes[pair] = {key: Outcome(one) for key, one in messages.items()}

    def one(item: tuple[str, tuple[Pair, dict[str, Outcome]]]) -> None:
        queue, ((producer, consumer), outcomes) = item
        messages = {key: outcome.specimen for key, outcome in outcomes.items()}
        application(broker, producer).send(queue, messages)
        for key, seen in application(broker, consumer).fail(queue, len(messages)).items():
            outcomes[key].first = seen
        _fail_the_rest(broker, queue, (producer, consumer), outcomes)

    _all_at_once(one, _by_queue(played).items())


def _fail_the_rest(broker: Broker, queue: str, pair: Pair, outcomes: Mapping[str, Outcome]) -> None:
    """Fail by another client what the consumer could not fail or was not shown."""
    producer, consumer = pair
    is_whole = all(one.first is not None for one in outcomes.values())
    # Why not STOMP: Artemis counts the hang-up against one of all messages alone.
    if is_whole and consumer != STOMP:
        return
    # Why not AMQP: Artemis writes properties into a Core message when it converts it.
    foreign = "qpid" if producer == "qpid" else "core"
    client = "openwire" if broker.kind == "classic" else foreign
    application(broker, client).fail(queue, 1_000_000)


def _left_by(before: Played, wire: Wire) -> Played:
    left = Played(wire)
    for pair, outcomes in before.outcomes.items():
        left.outcomes[pair] = {
            key: Outcome(one.specimen, one.first)
            for key, one in outcomes.items()
            if one.second is None
        }
    return left


def _redeliver(broker: Broker, kind: str, played: Played, folder: Path) -> None:
    wire = played.wire
    home = folder / f"{kind}-{wire.name}"
    home.mkdir()
    queues = [
        f"DLQ.{queue}" if wire.individual else f"DLQ.{wire.dead_letters}"
        for queue in _by_queue(played)
    ]
    count = sum(map(len, played.outcomes.values()))
    sidecar = SidecarProcess(
        home,
        getattr(broker, wire.url),
        policy=policy(kind, home),
        sets=[
            f"intake.queues=[{', '.join(dict.fromkeys(queues))}]",
            "intake.backlog=process",
            *wire.options,
        ],
    )
    with sidecar:
        sidecar.start()
        try:
            if wire.counts_all:
                eventually(lambda: sum(_progress(sidecar)) >= count, every_s=0.1)
            else:
                _wait_until_quiet(sidecar)
        except TimeoutError:
            played.faults.append(
                f"{kind}, {wire.name}: of {count} dead letters {_told(sidecar)}\n"
                f"{sidecar.log()[-3000:]}"
            )
        for line in sidecar.log_lines():
            if line.get("event") == "left_behind":
                played.reasons[line["reason"]] = line["count"]
        assert sidecar.stop() == 0, sidecar.log()
    _take(broker, played)


def _wait_until_quiet(sidecar: SidecarProcess) -> None:
    """Wait until nothing has changed for a while, where the number is unknown."""
    last, since = _progress(sidecar), time.monotonic()
    while time.monotonic() - since < SETTLED_S:
        time.sleep(0.1)
        if (now := _progress(sidecar)) != last:
            last, since = now, time.monotonic()


def _progress(sidecar: SidecarProcess) -> tuple[float, float]:
    return sidecar.metric("amqsidecar_resent_total"), sidecar.left_behind()


def _told(sidecar: SidecarProcess) -> str:
    resent, left = _progress(sidecar)
    return f"{resent:g} were re-sent and {left:g} reported as left behind"


def _take(broker: Broker, played: Played) -> None:
    def one(item: tuple[str, tuple[Pair, dict[str, Outcome]]]) -> None:
        queue, (pair, outcomes) = item
        for found, seen in application(broker, pair[1]).take(queue, len(outcomes)).items():
            key = found
            if key not in outcomes:
                # Why: what came back as something else does not tell its test id.
                told = list(outcomes) if len(outcomes) == 1 else []
                if not told:
                    played.faults.append(f"{queue}: a message that nobody has sent: {seen}")
                    continue
                [key] = told
            outcomes[key].second = seen
            outcomes[key].place = "back"
            outcomes[key].was_resent = True

    _all_at_once(one, _by_queue(played).items())


def _look_for_the_rest(broker: Broker, played: Played) -> None:
    """Find what never came: where it died, or where it was sent but can't be shown."""
    wire = played.wire
    outcomes = {key: one for all_of in played.outcomes.values() for key, one in all_of.items()}
    if all(one.second for one in outcomes.values()):
        return
    by_queue = _by_queue(played)
    own = {queue for queue, (_, some) in by_queue.items() if _is_short(some)}
    dead = {f"DLQ.{name}" for name in own} if wire.individual else {f"DLQ.{wire.dead_letters}"}
    for names, place in ((own, "its queue"), (dead, "dead-letter queue")):

        def look(name: str, place: str = place) -> None:
            alone = by_queue.get(name.removeprefix("DLQ."), ((), {}))[1]
            for key, was_resent in _everything(broker, name).items():
                outcome = outcomes.get(key)
                if outcome is None and len(alone) == 1:
                    [outcome] = alone.values()
                if outcome is not None and outcome.second is None:
                    outcome.place = place
                    outcome.was_resent = was_resent

        _all_at_once(look, sorted(names))
    played.faults += [
        f"{key}, {one.specimen.subject}: gone, {'after' if one.first else 'never seen, before'} "
        "its death"
        for key, one in outcomes.items()
        if one.place == "nowhere"
    ]


def _conclude(before: Played, after: Played) -> None:
    """Find what the first of two sidecars refused, by its outcome at the second."""
    for pair, outcomes in before.outcomes.items():
        for key, one in outcomes.items():
            if one.second is None:
                then = after.outcomes[pair][key]
                # Why 1: at the second death it would be 2.
                count = (then.second or {}).get("property amqsidecarRedeliveryCount")
                first_time = count in (None, "1", ["Integer", 1], ["String", "1"])
                found = then.place != "nowhere"
                one.place = "dead-letter queue" if found else "nowhere"
                one.was_resent = not first_time


def _everything(broker: Broker, queue: str) -> dict[str, bool]:
    """Return what lies in a queue by test id, and whether the sidecar has sent it."""
    if isinstance(broker, ArtemisBroker):
        entries = listed(broker, queue)
        return {str(one.get("testId")): REDELIVERY_ID in one for one in entries}
    seen = application(broker, "openwire").take(queue, 1_000_000)
    return {key: f"property {REDELIVERY_ID}" in one for key, one in seen.items()}


def _is_short(outcomes: Mapping[str, Outcome]) -> bool:
    return any(one.second is None for one in outcomes.values())


__all__ = ["MISSING", "Change", "Outcome", "Pair", "Played", "play"]
