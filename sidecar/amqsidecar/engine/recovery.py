"""How an interrupted cycle ended, as the token tells."""

from enum import Enum, auto

from amqsidecar.model.schedule import StoreState

TOKEN_QUEUE_PREFIX = "amqsidecar.token."  # noqa: S105 - the name of a queue
"""Followed by the name of an instance."""


class TokenVerdict(Enum):
    """What a token says about the store's last cycle."""

    CLEAN = auto()  # no cycle is unfinished, and the token agrees
    COMMITTED = auto()  # the unfinished cycle happened
    ROLLED_BACK = auto()  # the unfinished cycle did not happen
    IN_DOUBT = auto()  # the token is gone or is not ours: nobody can tell


def judge_token(state: StoreState, token: int | None) -> TokenVerdict:
    """Return what a token says.

    Args:
        state: what the store said when it was opened.
        token: the number on the token; None = the token is known to be missing.
    """
    if state.unfinished is None:
        return TokenVerdict.CLEAN if token == state.cycle else TokenVerdict.IN_DOUBT
    if token == state.unfinished.cycle:
        return TokenVerdict.COMMITTED
    if token == state.cycle:
        return TokenVerdict.ROLLED_BACK
    return TokenVerdict.IN_DOUBT
