"""Judges whether the broker can keep waiting messages (`store.url broker:`)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from amqsidecar.broker import LookSession
from amqsidecar.diagnosis.artemis_layout import address_setting, delivery_attempts, is_limited
from amqsidecar.diagnosis.finding import Check, Finding, Severity, new_finding
from amqsidecar.engine.broker_held_queues import NOT_KEPT, PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.model.destination import Destination

_finding = partial(Finding, Check.SCHEDULE)

_SUBJECT = "broker:"
_CLOCK_MS = 1_000
_ANOTHER_STORE = "store: {url: sqlite:///path/that/can/be/written}"


def keeping_findings(
    link: LookSession, origins: Sequence[Destination], *, may_ask: bool
) -> Iterator[Finding]:
    """Yield whether the broker keeps waiting messages, and where it may lose them.

    Args:
        origins: where dead letters come from.
        may_ask: whether the broker reports its queues and settings to this user.
    """
    keeps = link.features.delayed
    if keeps is None:
        why = NOT_KEPT[link.description.kind]
        yield _finding(Severity.PROBLEM, _SUBJECT, why, _ANOTHER_STORE)
        return
    if not may_ask:
        yield new_finding("broker_held_needs_manage", _SUBJECT)
        return
    yield new_finding("broker_held", _SUBJECT)
    for origin in dict.fromkeys(origins):
        problem = keeps.waiting_problem(origin)
        if problem is not None:
            yield new_finding("broker_held_parks", origin, name=PARKED_QUEUE.name, problem=problem)
    if (settings := link.features.settings) is not None:
        names = dict.fromkeys((WAITING_QUEUE.name, *(origin.address for origin in origins)))
        told = settings.address_settings([*names])
        yield from settings_findings(dict(zip(names, told, strict=True)))


def settings_findings(settings_of: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield effects of address settings on waiting messages."""
    own = WAITING_QUEUE.name
    if (attempts := delivery_attempts(settings_of[own])) > 0:
        yield new_finding(
            "waiting_queue_limited",
            own,
            attempts=attempts,
            mend=address_setting(own, "<max-delivery-attempts>-1</max-delivery-attempts>"),
        )
    for name, settings in settings_of.items():
        policy = settings.get("addressFullMessagePolicy")
        if policy in ("BLOCK", "FAIL") and is_limited(settings):
            yield new_finding(
                "waiting_messages_fill_address",
                name,
                policy=policy,
                mend=address_setting(name, "<address-full-policy>PAGE</address-full-policy>"),
            )


def keeping_clock_findings(ahead_ms: int) -> Iterator[Finding]:
    """Yield effects of a clock difference on waiting messages.

    Args:
        ahead_ms: by how much the broker's clock is ahead of ours; negative = behind.
    """
    if abs(ahead_ms) >= _CLOCK_MS:
        yield new_finding("broker_held_clock", _SUBJECT)
