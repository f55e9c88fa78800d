"""Judges whether the broker can keep waiting messages (`store.url broker:`)."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from amqsidecar.broker import LookSession
from amqsidecar.diagnosis.artemis_layout import address_setting
from amqsidecar.diagnosis.finding import Check, Finding, Severity
from amqsidecar.engine.broker_held_queues import NOT_KEPT, PARKED_QUEUE, WAITING_QUEUE
from amqsidecar.model.destination import Destination

_finding = partial(Finding, Check.SCHEDULE)

_SUBJECT = "broker:"
_CLOCK_MS = 1_000
_DEFAULT_ATTEMPTS = 10
_ANOTHER_STORE = "store: {url: sqlite:///path/that/can/be/written}"


def keeping_findings(
    link: LookSession, origins: Sequence[Destination], *, may_ask: bool
) -> Iterator[Finding]:
    """Yield whether the broker keeps waiting messages, and where it may lose them.

    Args:
        link: open.
        origins: where dead letters come from.
        may_ask: whether the broker reports its queues and settings to this user.
    """
    keeps = link.features.delayed
    if keeps is None:
        why = NOT_KEPT[link.description.kind]
        yield _finding(Severity.PROBLEM, _SUBJECT, why, _ANOTHER_STORE)
        return
    if not may_ask:
        what = (
            "a run would end: it needs the broker's time and the queues where messages may wait; "
            "grant the user send and manage on activemq.management"
        )
        yield _finding(Severity.PROBLEM, _SUBJECT, what)
        return
    yield _finding(Severity.OK, _SUBJECT, "the broker keeps waiting messages in its own queues")
    for origin in dict.fromkeys(origins):
        problem = keeps.waiting_problem(origin)
        if problem is not None:
            what = f"messages that must wait for it go to {PARKED_QUEUE.name} instead: {problem}"
            yield _finding(Severity.WARNING, str(origin), what)
    if (settings := link.features.settings) is not None:
        names = dict.fromkeys((WAITING_QUEUE.name, *(origin.address for origin in origins)))
        told = settings.address_settings([*names])
        yield from settings_findings(dict(zip(names, told, strict=True)))


def settings_findings(settings_of: Mapping[str, Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield effects of address settings on waiting messages.

    Args:
        settings_of: merged, by address; that of `WAITING_QUEUE` among them.
    """
    own = WAITING_QUEUE.name
    attempts = int(settings_of[own].get("maxDeliveryAttempts", _DEFAULT_ATTEMPTS))
    if attempts > 0:
        yield _finding(
            Severity.WARNING,
            own,
            f"has a limit of {attempts} deliveries: a dead letter in it that is returned that "
            "often (by crashes, for example) loses its origin for good",
            address_setting(own, "<max-delivery-attempts>-1</max-delivery-attempts>"),
        )
    for name, settings in settings_of.items():
        limits = (int(settings.get(key, -1)) for key in ("maxSizeBytes", "maxSizeMessages"))
        policy = settings.get("addressFullMessagePolicy")
        if policy in ("BLOCK", "FAIL") and any(limit > 0 for limit in limits):
            yield _finding(
                Severity.WARNING,
                name,
                f"waiting messages count toward its size limit (address-full-policy {policy}): at "
                "the limit producers are blocked until messages are due",
                address_setting(name, "<address-full-policy>PAGE</address-full-policy>"),
            )


def keeping_clock_findings(ahead_ms: int) -> Iterator[Finding]:
    """Yield effects of a clock difference on waiting messages.

    Args:
        ahead_ms: by how much the broker's clock is ahead of ours; negative = behind.
    """
    if abs(ahead_ms) >= _CLOCK_MS:
        what = (
            "waiting messages are due by the broker's clock: the difference is measured when a "
            "link opens; if that clock is set afterwards, they come too early or too late"
        )
        yield Finding(Check.CLOCK, Severity.WARNING, _SUBJECT, what, "timedatectl set-ntp true")
