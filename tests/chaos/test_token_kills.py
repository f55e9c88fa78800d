"""The short form of `chaos.token_kills`."""

import pytest

from chaos.token_kills import kill_owners
from support.tier import at_length

pytestmark = [pytest.mark.broker, pytest.mark.timeout(at_length(1800, otherwise=300))]

# Without guards about four of a hundred kills left the token stuck.
KILLS = at_length(300, otherwise=30)


def test_the_token_comes_back_after_each_kill() -> None:
    """The broker loses a guard in its place; no dead letter is lost or doubled."""
    tally = kill_owners(KILLS, seed=0)
    assert (tally.stuck_tokens, tally.lost, tally.doubled) == (0, 0, 0)
