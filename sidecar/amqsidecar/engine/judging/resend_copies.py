"""Whether Classic would copy a re-send that goes to the origin of a message.

A re-send is an ordinary send, so the interceptors of the destination act on it once more. No client
can reach a queue past them. Nor can the in-broker `redeliveryPlugin`: its redelivery is forwarded
again, too, and is dropped only by a queue whose audit or store still knows its message id.

Source: org.apache.activemq.broker.region.virtual.CompositeDestinationFilter, MirroredQueue.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

from amqsidecar.model.destination import Destination, queue
from amqsidecar.model.send_terms import ResendEffect
from amqsidecar.model.sidecar_names import PROPERTY_REDELIVERY_COUNT, PROPERTY_REDELIVERY_ID
from amqsidecar.policy.classic_rules import (
    CompositeDestination,
    DestinationInterceptors,
    MirroredQueues,
)
from amqsidecar.policy.destination_map import DestinationMap, describe_pattern

ResendProblem = Callable[[Destination], str | None]
"""Takes a destination; returns why a re-send there would be copied or misrouted, None = it is not.

The answer is a sentence that names the fix.
"""

FIRST_SENDS_ONLY = f"{PROPERTY_REDELIVERY_COUNT} IS NULL"
"""The JMS selector that matches messages not sent by the sidecar."""

_REDELIVERY_MARKS = (PROPERTY_REDELIVERY_COUNT, PROPERTY_REDELIVERY_ID)
_LITERAL = re.compile(r"'(?:[^']|'')*'")
_WORD = re.compile(r"[()]|[^\s()]+")


def no_resend_problem(_destination: Destination) -> str | None:
    """Return None."""
    return None


def classic_resend_problem(
    interceptors: DestinationInterceptors, allowed: Collection[ResendEffect]
) -> ResendProblem:
    """Return a check that reports copies which the operator does not allow."""
    composites = [
        DestinationMap([(one.destinations, reason)])
        for one, reason in _composite_reasons(interceptors, allowed)
    ]
    mirror = None if ResendEffect.MIRROR in allowed else interceptors.mirrored_queues

    def reasons(destination: Destination) -> Iterator[str]:
        for pattern in composites:
            if reason := pattern.find(destination):
                yield reason
        if mirror is not None and mirrors(mirror, destination):
            yield _mirror_reason(mirror, destination)

    @lru_cache(maxsize=8192)
    def first(destination: Destination) -> str | None:
        return next(reasons(destination), None)

    return first


def resend_warnings(
    interceptors: DestinationInterceptors, allowed: Collection[ResendEffect]
) -> Iterator[str]:
    """Yield a sentence for each interceptor because of which redeliveries will be parked."""
    for one, reason in _composite_reasons(interceptors, allowed):
        if not keeps_nothing(one):
            yield reason
    if interceptors.mirrored_queues is not None and ResendEffect.MIRROR not in allowed:
        yield _mirror_reason(interceptors.mirrored_queues, queue(">"))


def _composite_reasons(
    interceptors: DestinationInterceptors, allowed: Collection[ResendEffect]
) -> Iterator[tuple[CompositeDestination, str]]:
    if ResendEffect.COMPOSITE in allowed:
        return
    for one in interceptors.composites:
        if problem := composite_problem(one):
            mend = "redirect it" if keeps_nothing(one) else f"write there {composite_line(one)}"
            yield one, f"{problem}; {mend}, or {ResendEffect.COMPOSITE.advice}"


def _mirror_reason(mirror: MirroredQueues, destination: Destination) -> str:
    problem = mirror_problem(mirror, destination)
    return f"{problem}; no filter prevents it: {ResendEffect.MIRROR.advice}"


# Composite destinations.


def keeps_nothing(composite: CompositeDestination) -> bool:
    """Return whether no message dies in a composite because it forwards all of them."""
    return composite.forward_only and not composite.send_when_not_matched


def composite_problem(composite: CompositeDestination) -> str | None:
    """Return the effect of a composite on a re-send; None = it passes, and only once."""
    name = f"{composite.source}: composite {describe_pattern(composite.destinations)}"
    again = [one for one in composite.forward_to if not takes_first_sends_only(one.selector)]
    if composite.send_when_not_matched:
        # Why: the messages in the queue itself matched none of the selectors, and still don't.
        again = [one for one in again if one.selector is None]
    copies = ", ".join(str(one.destination) for one in again)
    if composite.send_when_not_matched:
        return f"{name} would forward a re-send to {copies} instead" if again else None
    if keeps_nothing(composite):
        where = f"to {copies}" if again else "nowhere"
        return f"{name} is forwardOnly: a re-send would go {where}, and not to the queue itself"
    return f"{name} would forward a re-send to {copies} once more" if again else None


def composite_line(composite: CompositeDestination) -> str:
    """Return the content of `forwardTo` by which a composite forwards no redelivery."""
    return " ".join(
        f'<filteredDestination selector="{_first_sends(one.selector)}" '
        f"{describe_pattern([one.destination])}/>"
        for one in composite.forward_to
        if not takes_first_sends_only(one.selector)
    )


def _first_sends(selector: str | None) -> str:
    """Return a selector, as an attribute's text, that also excludes the sidecar's re-sends."""
    text = FIRST_SENDS_ONLY if selector is None else f"({selector}) AND {FIRST_SENDS_ONLY}"
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")


def takes_first_sends_only(selector: str | None) -> bool:
    """Return whether a selector shows that it matches nothing that the sidecar has sent.

    It does if `amqsidecarRedeliveryCount IS NULL`, or the same of `amqsidecarRedeliveryId`, is one
    of the conditions that AND joins. Any other selector counts as one that may match.

    Example:
        >>> takes_first_sends_only("type = 'a' AND amqsidecarRedeliveryCount IS NULL")
        True
        >>> takes_first_sends_only("type = 'a' OR amqsidecarRedeliveryCount IS NULL")
        False
    """
    return selector is not None and _requires_first_send(_WORD.findall(_LITERAL.sub("?", selector)))


def _requires_first_send(words: Sequence[str]) -> bool:
    conditions: list[list[str]] = [[]]
    depth = 0
    for word in words:
        depth += (word == "(") - (word == ")")
        if depth == 0 and word.upper() == "OR":
            return False
        if depth == 0 and word.upper() == "AND":
            conditions.append([])
        else:
            conditions[-1].append(word)
    return any(map(_is_first_send, conditions))


def _is_first_send(condition: Sequence[str]) -> bool:
    if condition[:1] == ["("] and condition[-1:] == [")"]:
        return _requires_first_send(condition[1:-1])
    name, *test = condition or [""]
    return name in _REDELIVERY_MARKS and [word.upper() for word in test] == ["IS", "NULL"]


# Mirrored queues.


def mirrors(mirror: MirroredQueues, destination: Destination) -> bool:
    """Return whether sends to a destination are mirrored."""
    return destination.is_queue and (mirror.temporary or not destination.is_temporary)


def mirror_problem(mirror: MirroredQueues, destination: Destination) -> str:
    """Return the effect of a mirror on a re-send to a queue."""
    topic = f"topic://{mirror.prefix}{destination.name}{mirror.postfix}"
    return f"{mirror.source}: the mirrored queue would copy a re-send to {topic} once more"
