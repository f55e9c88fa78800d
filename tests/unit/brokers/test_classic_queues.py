"""The queues of the broker that a link to Classic remembers."""

from amqsidecar.brokers.classic.queues import ClassicQueues


def test_a_link_that_reads_no_queue_forgets_deleted_ones() -> None:
    """`observe` looks for months, and applications may make a queue for each request."""
    queues = ClassicQueues("broker:61616", ".exhausted")
    for number in range(100):
        queues.told(f"replies.{number}", is_removed=False)
        queues.told(f"replies.{number}", is_removed=True)
    assert not any(one for one in vars(queues).values() if isinstance(one, set))
