"""The content of a token that a wire of Artemis, or AMQP, has left; sans-IO.

A token of AMQP is a number. A token of STOMP also names dead letters, since STOMP acknowledges them
only after its commit: the reader has to acknowledge dead letters that are still there.
"""

import json
from collections.abc import Mapping
from typing import NamedTuple
from uuid import uuid4

Accepted = Mapping[str, frozenset[int]]
"""Numbers of messages by the name of their dead-letter queue."""


class Token(NamedTuple):
    """The content of a token.

    Attributes:
        lineage: new with each first token, so that no cycle number is taken for a duplicate.
        cycle: the last committed cycle.
        accepted: dead letters that were accepted, and may still lie in their queues.
    """

    lineage: str
    cycle: int
    accepted: Accepted


def encode(token: Token) -> bytes:
    """Return the body of a token of STOMP."""
    accepted = {name: sorted(numbers) for name, numbers in token.accepted.items() if numbers}
    value = {"lineage": token.lineage, "cycle": token.cycle, "accepted": accepted}
    return json.dumps(value, separators=(",", ":")).encode()


def decode(body: bytes) -> Token | None:
    """Return the token that a body is; None = it is something else."""
    try:
        value = json.loads(body)
        if type(value) is int:
            value = {"lineage": uuid4().hex, "cycle": value, "accepted": {}}
        accepted = {
            str(name): frozenset(int(number) for number in numbers)
            for name, numbers in value["accepted"].items()
        }
        cycle = value["cycle"]
        if type(cycle) is not int or not 0 <= cycle < 2**63:
            return None
        return Token(str(value["lineage"]), cycle, accepted)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
