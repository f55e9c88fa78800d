"""Applications at a steady load, and the count of what became of each message."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self

from kubernetes.broker_pods import Kind
from kubernetes.namespace import Namespace
from kubernetes.values import DELAY
from support.jms.ledger import altered, count
from support.jms.message import Delivery, JmsMessage
from support.jms.peer import ALL_TYPES, JmsPeer
from support.waiting import eventually

PAUSE_MS = 400
# How many must have died and come back, all types of them, after something was done to a pod.
GOES_ON = 5 * len(ALL_TYPES)
# Why a bound: what is new waits behind what is old, which on a busy machine would become ever more.
AHEAD = 2 * GOES_ON
GOES_ON_WITHIN_S = 300.0
SETTLES_WITHIN_S = 180.0
ALWAYS = -1
FAILURES = "failures"
"""The property that says how many deliveries of a message fail."""


@dataclass(frozen=True)
class Tally:
    """What became of all messages; what must not be is named by id."""

    sent: int
    deaths: int
    recovered: int
    exhausted: int
    lost: list[str]
    doubled: list[str]
    altered: list[str]

    def cells(self) -> list[str]:
        """Return the numbers, in the order of the fields."""
        faults = (self.lost, self.doubled, self.altered)
        numbers = (self.sent, self.deaths, self.recovered, self.exhausted, *map(len, faults))
        return [f"{number:,}" for number in numbers]

    @property
    def is_clean(self) -> bool:
        """Whether all messages have come to one end, as they were sent."""
        ended = self.recovered + self.exhausted == self.sent
        return ended and not (self.lost or self.doubled or self.altered)


Account = Callable[[Tally], None]
"""What a test gives its tally to."""


class Load:
    """A producer and a consumer that makes each message die once; a context manager.

    The producer waits where the consumer is `AHEAD` messages behind.
    """

    def __init__(
        self,
        peer: JmsPeer,
        kind: Kind,
        queue: str = "orders",
        *,
        group: str | None = "group-1",
    ) -> None:
        self.peer = peer
        self._group = group
        self.kind = kind
        self.queue = queue
        self._besides: list[JmsMessage] = []
        self._is_settled = False

    def __enter__(self) -> Self:
        self._consumer = self.peer.start_flaky_consumer(
            self.queue, failures=1, failures_property=FAILURES, full=True
        )
        self._producer = self.peer.start_producer(
            self.queue,
            pause_ms=PAUSE_MS,
            group=self._group,
            consumer=self._consumer,
            ahead=AHEAD,
        )
        return self

    def __exit__(self, *_: object) -> None:
        if not self._is_settled:
            self._producer.stop()
            self._consumer.stop()

    def send_hopeless(self) -> None:
        """Send some that die for ever."""
        self._besides += self.peer.produce(
            self.queue, properties={FAILURES: ALWAYS}, group=self._group
        )

    def send_backlog(self, count: int, *, until: int = 0) -> None:
        """Send many at once, of which each dies once; return when so many of them have died."""
        sent = self.peer.produce(self.queue, "Text", count=count, group=None)
        self._besides += sent
        ids = {str(one.test_id) for one in sent}
        eventually(
            lambda: (
                len(ids.intersection(one.id for one in self._consumer.events("failed"))) >= until
            ),
            within_s=GOES_ON_WITHIN_S,
            every_s=0.2,
            what=f"{until} of {count} messages die",
        )

    def go_on(self) -> None:
        """Wait until messages that are sent from now on have died and come back."""
        before = len(self._producer.confirmed)

        def news() -> set[str]:
            new = {str(one.test_id) for one in self._producer.confirmed[before:]}
            return new.intersection(self._consumer.succeeded())

        eventually(
            lambda: len(news()) >= GOES_ON,
            within_s=GOES_ON_WITHIN_S,
            every_s=0.2,
            what=f"{GOES_ON} messages die and come back",
            last=lambda _: f"{len(news())} of {len(self._producer.confirmed) - before} sent did",
        )

    def settle(self, namespace: Namespace, pod: str | None = None) -> Tally:
        """Send no more, wait until all have come to an end and nothing waits, and count.

        Args:
            pod: whose sidecar says what waits; None: one of the release's.
        """
        self._producer.stop()
        final = f"{self.kind.dead_letter_queue}.exhausted"
        exhausted: list[JmsMessage] = []

        def is_over() -> set[str | None] | bool:
            """Return True, or the ids that are on their way."""
            exhausted.extend(self.peer.consume(final, wait_ms=200))
            ended = {one.id for one in self._consumer.events("succeeding")}
            ended |= {str(one.test_id) for one in exhausted}
            sent = {str(one.test_id) for one in (*self._producer.confirmed, *self._besides)}
            return sent <= ended

        eventually(is_over, within_s=SETTLES_WITHIN_S, every_s=0.5, what="all messages end")
        eventually(
            lambda: namespace.unsent(pod or namespace.pods()[0]["metadata"]["name"]) == 0,
            within_s=60,
            every_s=0.5,
            what="nothing waits",
        )
        self._consumer.stop()
        self._is_settled = True
        exhausted += self.peer.consume(final)
        for queue in (self.queue, self.kind.dead_letter_queue):
            assert self.peer.browse(queue) == []
        return self._tally(exhausted)

    def deliveries(self) -> list[Delivery]:
        """Return what the consumer was given so far, whole messages."""
        return [one for one in self._consumer.events() if one.message is not None]

    def newest_delays(self) -> set[Any]:
        """Return the delays that messages say which have come back from now on."""
        before = len(self.deliveries())
        self.go_on()
        messages = [one.message for one in self.deliveries()[before:]]
        return {one.value(DELAY) for one in messages if one is not None} - {None}

    def _tally(self, exhausted: Iterable[JmsMessage]) -> Tally:
        sent = [*self._producer.confirmed, *self._producer.in_doubt, *self._besides]
        events = self._consumer.events()
        ends = [str(one.test_id) for one in exhausted]
        unknown = [str(one.test_id) for one in self._producer.in_doubt]
        result = count((str(one.test_id) for one in sent), events, ends, unknown=unknown)
        seen = {*result.recovered, *result.exhausted}
        return Tally(
            # Why: one that its producer lost the broker over, and that nobody saw, was not sent.
            sent=len(sent) - len(set(unknown) - seen),
            deaths=sum(one.outcome == "failed" for one in events),
            recovered=len(result.recovered),
            exhausted=len(result.exhausted),
            lost=list(result.lost),
            doubled=list(result.doubled),
            altered=altered(sent, events, exhausted),
        )
