"""Real JMS applications for tests, demo and benchmarks: OpenWire, Artemis Core and qpid-jms.

    peer = JmsPeer.of(broker, "openwire")
    sent = peer.produce("orders", count=3)
    peer.fail("orders", messages=24, deliveries=1)
    dead = peer.consume("ActiveMQ.DLQ", count=24)

All peers of a Python process share one JVM, so that a peer costs nothing. A destination is the
name of a queue, `queue://NAME` or `topic://NAME`.
"""

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self

from support.brokers.real import Broker
from support.jms.message import Delivery, JmsMessage, Rate, Typed, typed
from support.jms.process import PeerError, PeerProcess, shared_process
from support.waiting import PATIENCE_S, eventually

__all__ = [
    "ALL_TYPES",
    "Delivery",
    "FlakyConsumer",
    "JmsMessage",
    "JmsPeer",
    "PeerError",
    "PeerProcess",
    "Rate",
    "SteadyProducer",
    "Typed",
    "shared_process",
]

_PATIENCE_MS: Final = int(PATIENCE_S * 1000)

ALL_TYPES = ("Text", "Bytes", "Map", "Object", "Stream", "Message", "NullText", "EmptyText")


@dataclass
class JmsPeer:
    """A JMS application with one provider at one broker; holds no connection between commands.

    Attributes:
        provider: openwire, core or qpid.
        url: the client's own URL, without login.
        url_options: options that every connection gets, by name.
        process: the JVM to use; its own makes it possible to kill the application alone.
    """

    provider: str
    url: str
    user: str = "admin"
    password: str = "admin"
    url_options: Mapping[str, Any] = field(default_factory=dict)
    process: PeerProcess = field(default_factory=shared_process)

    @classmethod
    def of(cls, broker: Broker, provider: str, **options: Any) -> Self:
        """Return a peer of a running broker.

        Args:
            broker: Classic or Artemis.
            provider: Classic: openwire, qpid, or qpid-jms for the connector with
                `transport.transformer=jms`. Artemis: core, qpid or openwire.
            options: further attributes.
        """
        url = broker.jms_url(provider)
        return cls(
            provider.removesuffix("-jms"),
            url,
            user=broker.user,
            password=broker.password,
            **options,
        )

    # Producing.

    def produce(
        self,
        destination: str,
        types: str | Sequence[str] = ALL_TYPES,
        *,
        count: int = 1,
        properties: Mapping[str, Any] | None = None,
        sample_properties: bool = True,
        test_id: str | None = None,
        ttl_ms: int = 0,
        persistent: bool = True,
        priority: int = 7,
        correlation_id: str | None = "correlation-1",
        reply_to: str | None = "reply.queue",
        jms_type: str | None = "my.type",
        group: str | None = "group-1",
        group_seq: int | None = None,
        text: str | None = None,
        body_size: int = 0,
        delivery_delay_ms: int | None = None,
        transacted: bool = False,
    ) -> list[JmsMessage]:
        """Send `count` messages of each type, and return them as the sender sees them.

        Args:
            types: one or more of ALL_TYPES.
            properties: further ones; a `Typed` keeps its Java type, an int becomes a long.
            sample_properties: one property of each Java type, odd texts, null and empty.
            test_id: prefix of the property `testId`, which differs for each message; None: random.
            text: body of Text messages.
            body_size: size of Text and Bytes bodies; 0: a small body with odd characters.
        """
        names = [types] if isinstance(types, str) else list(types)
        prefix = test_id or f"t{uuid.uuid4().hex[:8]}"
        return self._messages(
            "produce",
            destination=destination,
            types=names,
            count=count,
            properties=typed(properties),
            sampleProperties=sample_properties,
            testIds=[f"{prefix}-{number}" for number in range(count * len(names))],
            ttlMs=ttl_ms,
            persistent=persistent,
            priority=priority,
            correlationId=correlation_id,
            replyTo=reply_to,
            jmsType=jms_type,
            group=group,
            groupSeq=group_seq,
            text=text,
            bodySize=body_size,
            deliveryDelayMs=delivery_delay_ms,
            transacted=transacted,
        )

    def produce_each(self, messages: Sequence[Mapping[str, Any]]) -> list[JmsMessage]:
        """Send messages that differ in everything, over one connection.

        Args:
            messages: each as Peer.java takes it: `destination`, `type` (one of ALL_TYPES, or
                EmptyBytes), and what of `properties` (see `typed`), `correlationId`, ... it has.
        """
        return self._messages("produce_each", messages=list(messages))

    def produce_core(self, destination: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Send messages by Artemis's Core API, which can write what JMS can't.

        Args:
            messages: each with `coreType`, its body as hex, and `properties` as `[type, value]`.
        """
        lines = [{**one, "destination": destination} for one in messages]
        self._call("produce_core", messages=lines)

    def prepare_xa(self, destination: str, name: str, count: int) -> list[JmsMessage]:
        """Receive over Core in a branch of an XA transaction, prepare it, and disconnect."""
        return self._messages(
            "xa_prepare", destination=destination, name=name, count=count, waitMs=_PATIENCE_MS
        )

    def finish_xa(self, name: str, *, commits: bool) -> None:
        """Commit a prepared branch or roll it back, over a connection of its own."""
        self._call("xa_finish", name=name, commits=commits)

    def fill(
        self,
        destination: str,
        count: int,
        *,
        size: int = 1024,
        batch: int = 500,
        test_id: str = "n",
        properties: Mapping[str, Any] | None = None,
        persistent: bool = True,
        ttl_ms: int = 0,
        per_second: float = 0,
    ) -> Rate:
        """Send many persistent Text messages fast, in transactions of `batch`.

        Each has `testId` = `test_id` and its number, and the number as int property `n`.

        Args:
            size: characters per body.
            per_second: pace; 0: as fast as it goes. Use `batch=1` with it.
        """
        return self._rate(
            "fill",
            destination=destination,
            count=count,
            size=size,
            batch=batch,
            testIdPrefix=test_id,
            sampleProperties=False,
            properties=typed(properties),
            persistent=persistent,
            ttlMs=ttl_ms,
            perSecond=per_second,
        )

    def start_producer(
        self,
        destination: str,
        types: Sequence[str] = ALL_TYPES,
        *,
        pause_ms: int = 0,
        group: str | None = "group-1",
        consumer: "FlakyConsumer | None" = None,
        ahead: int = 0,
    ) -> "SteadyProducer":
        """Start a producer in the background; see `SteadyProducer`.

        Args:
            types: of the messages of each transaction.
            pause_ms: between two transactions.
            group: of all messages.
            consumer: the producer waits for it, however slow both are; None: it waits for nobody.
            ahead: no transaction begins while so many more were sent than the consumer has
                received successfully.
        """
        return SteadyProducer(
            self.process,
            provider=self.provider,
            user=self.user,
            password=self.password,
            url=self._url({}),
            destination=destination,
            types=list(types),
            pauseMs=pause_ms,
            testIdPrefix=f"t{uuid.uuid4().hex[:8]}-",
            priority=7,
            correlationId="correlation-1",
            replyTo="reply.queue",
            jmsType="my.type",
            group=group,
            consumer=None if consumer is None else consumer.name,
            ahead=ahead,
        )

    # Consuming.

    def consume(
        self,
        destination: str,
        count: int | None = None,
        *,
        wait_ms: int | None = None,
        transacted: bool = False,
        selector: str | None = None,
        client_id: str | None = None,
        subscription: str | None = None,
    ) -> list[JmsMessage]:
        """Receive and acknowledge until `count` messages are there or none came for `wait_ms`.

        Args:
            count: None: all there are.
            wait_ms: None: long when a count is given, else 500 ms: too short a time to wait for
                what must come.
            subscription: name of a durable subscription, which needs the client id, too.
        """
        if wait_ms is None:
            wait_ms = 500 if count is None else _PATIENCE_MS
        return self._messages(
            "consume",
            destination=destination,
            count=count,
            waitMs=wait_ms,
            transacted=transacted,
            selector=selector,
            clientId=client_id,
            subscription=subscription,
        )

    def browse(
        self,
        queue: str,
        *,
        limit: int | None = None,
        selector: str | None = None,
        count: int | None = None,
    ) -> list[JmsMessage]:
        """Return the messages of a queue without taking them; Classic shows the first 400.

        With a count, look until exactly this many are shown: under load a browser of Classic may
        end before it has seen what was committed.
        """

        def look() -> list[JmsMessage]:
            return self._messages("browse", destination=queue, limit=limit, selector=selector)

        if count is None:
            return look()
        found: list[JmsMessage] = []

        def are_shown() -> bool:
            found[:] = look()
            return len(found) == count

        eventually(are_shown, what=f"a browser shows {count} messages of {queue}")
        return found

    def drain(
        self,
        destination: str,
        count: int | None = None,
        *,
        batch: int = 100,
        wait_ms: int = _PATIENCE_MS,
    ) -> Rate:
        """Consume many messages fast, in transactions, timed from the first to the last."""
        return self._rate(
            "drain", destination=destination, count=count, batch=batch, waitMs=wait_ms
        )

    def move(self, source: str, to: str, count: int, *, batch: int, wait_ms: int = 5000) -> Rate:
        """Move messages to another queue in transactions of `batch`, as a plain JMS client does."""
        return self._rate(
            "move", destination=source, to=to, count=count, batch=batch, waitMs=wait_ms
        )

    # Topic subscriptions.

    def forward(
        self,
        source: str,
        to: str,
        count: int = 1,
        *,
        copies: bool = False,
        transacted: bool = False,
        selector: str | None = None,
        wait_ms: int = _PATIENCE_MS,
    ) -> list[JmsMessage]:
        """Consume messages and send each on; return them as sent.

        Args:
            source: queue to consume from.
            to: queue to send to; may be the same.
            count: messages at most.
            copies: False = send the received object itself. True = make a new text message and
                copy every property but `JMS*`, as retry wrappers and bridges do.
            transacted: receive and send in one transaction per message.
            selector: JMS selector of what is received.
            wait_ms: give up after this time without a message.
        """
        return self._messages(
            "forward",
            destination=source,
            to=to,
            count=count,
            copies=copies,
            transacted=transacted,
            selector=selector,
            waitMs=wait_ms,
        )

    def durable_subscribe(self, topic: str, client_id: str, name: str) -> None:
        """Make a durable subscription and go offline."""
        self._call("subscribe", destination=_topic(topic), clientId=client_id, subscription=name)

    def durable_unsubscribe(self, client_id: str, name: str) -> None:
        """Remove a durable subscription."""
        self._call("unsubscribe", clientId=client_id, subscription=name)

    def consume_durable(
        self, topic: str, client_id: str, name: str, count: int | None = None, **options: Any
    ) -> list[JmsMessage]:
        """Consume from a durable subscription, as `consume` does."""
        return self.consume(_topic(topic), count, client_id=client_id, subscription=name, **options)

    def fail_durable(
        self, topic: str, client_id: str, name: str, **options: Any
    ) -> list[JmsMessage]:
        """Fail what a durable subscription delivers, as `fail` does."""
        return self.fail(_topic(topic), client_id=client_id, subscription=name, **options)

    # Failing.

    def fail(
        self,
        destination: str,
        how: str = "rollback",
        *,
        messages: int,
        deliveries: int = 1,
        max_redeliveries: int = 0,
        wait_ms: int = _PATIENCE_MS,
        quiet_ms: int | None = None,
        within_ms: int = 2 * _PATIENCE_MS,
        selector: str | None = None,
        client_id: str | None = None,
        subscription: str | None = None,
    ) -> list[JmsMessage]:
        """Fail every delivery, and return each of them in order.

        Ends when `messages` different ones were seen `deliveries` times each and nothing came for
        `quiet_ms`.

        Args:
            how: `rollback`, `recover`, `listener` (it throws), `close` (the connection, before the
                commit), or `reject` (qpid only: AMQP outcome rejected).
            max_redeliveries: the client's own limit (OpenWire, qpid), after which it tells the
                broker to give the message up. Core has none: the broker's max-delivery-attempts.
            quiet_ms: None: 500 ms where the client only gives up at the next delivery (qpid, but
                for `reject`, and `close`), else 0.
            within_ms: an error when it has not ended by then.

        Raises:
            PeerError: nothing more came for `wait_ms`; it says what came, and how often.
        """
        if self.provider == "qpid" and how == "listener":
            raise ValueError(
                "qpid-jms releases a message whose listener throws, so that no broker ever gives "
                "it up: fail in another way, or start_flaky_consumer"
            )
        if quiet_ms is None:
            gives_up_late = how == "close" or (self.provider == "qpid" and how != "reject")
            quiet_ms = 500 if gives_up_late else 0
        return self._messages(
            "fail",
            destination=destination,
            how=how,
            messages=messages,
            deliveries=deliveries,
            waitMs=wait_ms,
            quietMs=quiet_ms,
            withinMs=within_ms,
            selector=selector,
            clientId=client_id,
            subscription=subscription,
            url=self._url(self._limit(max_redeliveries, how)),
        )

    def start_flaky_consumer(
        self,
        destination: str,
        *,
        failures: int = 0,
        failures_property: str | None = None,
        how: str = "rollback",
        max_redeliveries: int = 0,
        full: bool = False,
        selector: str | None = None,
        client_id: str | None = None,
        subscription: str | None = None,
        shared: str | None = None,
    ) -> "FlakyConsumer":
        """Start a consumer in the background that fails the first deliveries of each message.

        It counts by `testId`, else by JMSMessageID, reports each delivery, and reconnects for ever.

        Args:
            failures: how many deliveries of a message fail before one succeeds; -1: all.
            failures_property: whole-number property that says it per message, where there is one.
            how: as in `fail`.
            max_redeliveries: as in `fail`; 0: one failure makes a dead letter.
            full: report whole messages.
            shared: `durable` or `non-durable`: the subscription has several consumers.
        """
        return FlakyConsumer(
            self.process,
            provider=self.provider,
            user=self.user,
            password=self.password,
            url=self._url(self._limit(max_redeliveries, how)),
            destination=destination,
            failures=failures,
            failuresProperty=failures_property,
            how=how,
            full=full,
            selector=selector,
            clientId=client_id,
            subscription=subscription,
            shared=shared,
        )

    def _limit(self, max_redeliveries: int, how: str) -> dict[str, Any]:
        if self.provider == "openwire":
            return {
                "jms.redeliveryPolicy.maximumRedeliveries": max_redeliveries,
                "jms.redeliveryPolicy.initialRedeliveryDelay": 0,
                "jms.redeliveryPolicy.redeliveryDelay": 0,
            }
        if self.provider == "qpid":
            return {
                "jms.redeliveryPolicy.maxRedeliveries": max_redeliveries,
                "jms.redeliveryPolicy.outcome": "REJECTED",
                # Why: Classic counts a lost connection against every message on its way.
                **({"jms.prefetchPolicy.all": 0} if how == "close" else {}),
            }
        # Why: the Core client counts a recover against every message on its way, seen or not.
        return {"consumerWindowSize": 0} if how == "recover" else {}

    def _url(self, options: Mapping[str, Any]) -> str:
        own = {"jms.deserializationPolicy.allowList": "*"} if self.provider == "qpid" else {}
        merged = {**own, **options, **self.url_options}
        text = "&".join(f"{name}={value}" for name, value in merged.items())
        return f"{self.url}?{text}" if text else self.url

    def _call(self, op: str, **arguments: Any) -> Any:
        arguments.setdefault("url", self._url({}))
        return self.process.call(
            op, provider=self.provider, user=self.user, password=self.password, **arguments
        )

    def _messages(self, op: str, **arguments: Any) -> list[JmsMessage]:
        return [JmsMessage.parse(line) for line in self._call(op, **arguments)]

    def _rate(self, op: str, **arguments: Any) -> Rate:
        result = self._call(op, **arguments)
        return Rate(result["count"], result["batch"], result["elapsedS"], result["perSecond"])


class _Background(ABC):
    """What runs in the JVM by itself; a context manager that stops it.

    Attributes:
        name: in the JVM.
    """

    def __init__(self, process: PeerProcess, operation: str, **arguments: Any) -> None:
        """Start it."""
        self._process = process
        self.name = uuid.uuid4().hex
        process.on_event(self.name, self._receive)
        process.call(operation, name=self.name, **arguments)

    @abstractmethod
    def stop(self) -> None:
        """Stop it after the messages in its hand."""

    @abstractmethod
    def _receive(self, event: Mapping[str, Any]) -> None:
        """Take an event of it; called in another thread."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class SteadyProducer(_Background):
    """A JMS producer in the background; a context manager that stops it.

    It sends one transaction after the other, with a message of each type, and goes on over a new
    connection when one fails.
    """

    def __init__(self, process: PeerProcess, **arguments: Any) -> None:
        """Start it."""
        self._lock = threading.Lock()
        self._begun: list[JmsMessage] = []
        self._confirmed: list[JmsMessage] = []
        self._in_doubt: list[JmsMessage] = []
        self._is_stopped = False
        super().__init__(process, "start_producer", **arguments)

    @property
    def confirmed(self) -> list[JmsMessage]:
        """The messages of the transactions that the broker has confirmed, as the sender sees them.

        Once stopped, these are all.
        """
        with self._lock:
            return list(self._confirmed)

    @property
    def in_doubt(self) -> list[JmsMessage]:
        """Those of transactions that ended with an error: each may have been sent, or not."""
        with self._lock:
            return list(self._in_doubt)

    def stop(self) -> None:
        """Stop after the transaction in hand; safe to call twice."""
        if self._is_stopped:
            return
        self._is_stopped = True
        if not self._process.call("stop_producer", name=self.name, waitMs=_PATIENCE_MS):
            raise PeerError(f"the producer runs after {PATIENCE_S:g} s: is the broker paused?")

    def _receive(self, event: Mapping[str, Any]) -> None:
        with self._lock:
            if event["outcome"] == "sent":
                self._begun.append(JmsMessage.parse(event["message"]))
                return
            ended = self._confirmed if event["outcome"] == "committed" else self._in_doubt
            ended += self._begun
            self._begun.clear()


class FlakyConsumer(_Background):
    """A JMS consumer in the background that fails on purpose; a context manager that stops it."""

    def __init__(self, process: PeerProcess, **arguments: Any) -> None:
        """Start it; returns when it has connected."""
        self._events: list[Delivery] = []
        self._changed = threading.Condition()
        super().__init__(process, "start_flaky", **arguments)

    def events(self, outcome: str | None = None) -> list[Delivery]:
        """Return the reports so far, in order; with a kind only outcomes of this kind."""
        with self._changed:
            return [one for one in self._events if outcome in (None, one.outcome)]

    def succeeded(self) -> list[str]:
        """Return the ids of the messages that succeeded, in order; twice when it happened twice."""
        return [one.id for one in self.events("succeeded")]

    def wait_for(
        self,
        condition: Callable[[list[Delivery]], bool],
        *,
        within_s: float = PATIENCE_S,
        what: str = "condition on the flaky consumer's events",
    ) -> list[Delivery]:
        """Wait until the condition holds for the events, and return them."""
        with self._changed:
            if not self._changed.wait_for(lambda: condition(self._events), within_s):
                last = "\n".join(str(one) for one in self._events[-10:])
                raise TimeoutError(f"{what}: not within {within_s:g} s; last events:\n{last}")
            return list(self._events)

    def wait_for_successes(self, count: int, *, within_s: float = PATIENCE_S) -> list[str]:
        """Wait until `count` different messages have succeeded, and return all successes."""
        self.wait_for(
            lambda events: len({one.id for one in events if one.outcome == "succeeded"}) >= count,
            within_s=within_s,
            what=f"{count} messages succeed",
        )
        return self.succeeded()

    def stop(self) -> None:
        """Stop after the delivery in hand."""
        if not self._process.call("stop_flaky", name=self.name, waitMs=_PATIENCE_MS):
            raise PeerError(
                f"the flaky consumer runs after {PATIENCE_S:g} s: is the broker paused?"
            )

    def _receive(self, event: Mapping[str, Any]) -> None:
        count = event.get("deliveryCount")
        message = event.get("message")
        delivery = Delivery(
            outcome=event["outcome"],
            at_ms=event.get("atMs", 0),
            id=event.get("id", ""),
            delivery=event.get("delivery", 0),
            message_id=event.get("messageId", ""),
            delivery_count=None if count is None else int(count),
            redelivery_count=event.get("amqsidecarRedeliveryCount"),
            why=event.get("why", ""),
            message=None if message is None else JmsMessage.parse(message),
        )
        with self._changed:
            self._events.append(delivery)
            self._changed.notify_all()


def _topic(name: str) -> str:
    return name if name.startswith("topic://") else f"topic://{name}"
