"""The link to Artemis over Core: what the contract of all links does not say."""

from contextlib import closing

import pytest

from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from support.brokers.real import Broker
from support.links.core_artemis import CoreArtemisHarness

pytestmark = pytest.mark.broker


def test_the_token_is_not_waited_for_once_it_was_read(
    artemis: Broker, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a commit and the token that it sent may come in one read.

    To wait then lasts until the next heartbeat, 7.5 s later.
    """
    unread: list[int] = []
    harness = CoreArtemisHarness(artemis, unique)

    def take() -> CoreArtemisTake:
        link = harness.make_link("instance").take(f"{unique}.token")
        wait_for_token = link._token._wait

        def waiting(timeout_s: float) -> bool:
            with monkeypatch.context() as patch:
                wait = link._connection.wait

                def counting(left_s: float) -> None:
                    unread.append(len(link._session.deliveries))
                    wait(left_s)

                patch.setattr(link._connection, "wait", counting)
                return wait_for_token(timeout_s)

        monkeypatch.setattr(link._token, "_wait", waiting)
        return link

    with closing(harness):
        with closing(take()) as first:
            first.create_token(1)
        for _ in range(6):
            # A token that was handed out before is sent anew.
            with closing(take()) as link:
                assert link.take_token(10) == 1
                harness.drop(link)
    assert unread
    assert not any(unread)
