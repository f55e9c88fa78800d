"""Exchanges a token of the doctor's own: the base of exactly-once, tried once."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from amqsidecar.broker import TakeSession
from amqsidecar.diagnosis.finding import Finding, new_finding
from amqsidecar.engine.send_gate import unsendable
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost, SendsRefused
from amqsidecar.model.destination import Destination
from amqsidecar.trials import ExaminedSession, ExaminedTakeSession

OpenLook = Callable[[], AbstractContextManager[ExaminedSession]]
"""Opens a link to look, for the time of a block."""

OpenTake = Callable[[str], AbstractContextManager[ExaminedTakeSession]]
"""Opens a link with a token queue, for the time of a block."""

_TOKEN_WAIT_S = 10.0
# Why: a link waiting for a token removes any other message, which ends its wait.
_TOKEN_WAITS = 3


def transaction_findings(
    looking: OpenLook,
    taking: OpenTake,
    token_queue: Destination,
    at_work: Callable[[ExaminedSession], None],
) -> Iterator[Finding]:
    """Yield whether transactions hold, on a private token queue.

    One transaction is committed, one is rolled back, then another connection is asked which token
    there is. If the process dies inside, the token queue stays in the broker.

    Raises:
        LinkLost: the connection is gone.
        BrokerRefused: the token queue can't be used.
    """
    try:
        with taking(token_queue.name) as link:
            number, words = _exchange(link, token_queue)
            at_work(link)
        if number is not None:
            with taking(token_queue.name) as link:
                found = _take(link)
            if found != number:
                words = f"token {number} was committed, but the broker hands out {found}"
    finally:
        yield from _clean_up(looking, token_queue)
    if words:
        yield new_finding("transactions_broken", token_queue.name, words=words)
    else:
        yield new_finding("transactions_hold", token_queue.name)


def _exchange(link: TakeSession, token_queue: Destination) -> tuple[int | None, str]:
    """Commit one transaction, roll another back; return the remaining token.

    Returns:
        Its number and "", or None and the problem.
    """
    if not link.token.exists():
        link.token.create(1)
    number = _take(link)
    if number is None:
        return None, "the broker does not deliver a message that was sent"
    try:
        link.commit_cycle([], [], number + 1)
    except (BrokerRefused, LinkLost):
        raise
    except BrokerError as error:
        return None, f"a transaction that takes and sends was not committed: {error}"
    try:
        link.commit_cycle([], [unsendable(token_queue)], number + 2)
    except SendsRefused:
        return number + 1, ""
    return None, "a transaction with a message that can't be sent was committed"


def _take(link: TakeSession) -> int | None:
    for _ in range(_TOKEN_WAITS):
        number = link.token.take(_TOKEN_WAIT_S)
        if number is not None:
            return number
    return None


def _clean_up(looking: OpenLook, token_queue: Destination) -> Iterator[Finding]:
    try:
        with looking() as link:
            words = link.trials().remove(token_queue)
    except BrokerError as error:
        words = str(error)
    if words is not None:
        yield new_finding("token_queue_left", token_queue.name, words=words)
