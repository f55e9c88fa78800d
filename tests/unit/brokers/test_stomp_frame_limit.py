"""What size of a frame ends a connection to Classic over STOMP is learned from its ends."""

from amqsidecar.brokers.classic.link_settings import FrameLimit


def test_nothing_is_refused_before_a_connection_ended() -> None:
    assert FrameLimit().problem(10**9) is None


def test_what_ended_a_connection_is_refused_and_what_is_smaller_is_not() -> None:
    limit = FrameLimit()
    assert limit.learn(["The maximum data length was exceeded"], 1000)
    assert limit.problem(999) is None
    assert "a frame of 1000 bytes" in str(limit.problem(1000))


def test_the_smallest_counts() -> None:
    """Whichever of both limits it was."""
    limit = FrameLimit()
    for size in (2000, 1000, 3000):
        assert limit.learn(["", "The maximum frame size was exceeded"], size)
    assert limit.problem(999) is None
    assert limit.problem(1000) is not None


def test_other_ends_and_ends_without_sends_teach_nothing() -> None:
    limit = FrameLimit()
    assert not limit.learn(["The broker is shutting down"], 1000)
    assert limit.learn(["The maximum frame size was exceeded"], 0)
    assert limit.problem(10**9) is None
