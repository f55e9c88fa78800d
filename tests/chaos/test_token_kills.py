"""The short form of `chaos.token_kills`."""

import pytest

from chaos.token_kills import kill_owners

# Why in proof: that a guard is before each token is shown by `test_stomp_artemis_link.py`.
pytestmark = [pytest.mark.broker, pytest.mark.proof, pytest.mark.timeout(1800)]

# Without guards about four of a hundred kills left the token stuck.
KILLS = 300


def test_the_token_comes_back_after_each_kill() -> None:
    """The broker loses a guard in its place; no dead letter is lost or doubled."""
    tally = kill_owners(KILLS, seed=0)
    assert (tally.stuck_tokens, tally.lost, tally.doubled) == (0, 0, 0)
