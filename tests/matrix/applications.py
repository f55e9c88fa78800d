"""The applications of the matrix: they send, look at a message once and fail it, and take it."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from matrix.specimens import STOMP, Specimen
from support.brokers.real import Broker
from support.jms.message import Delivery, JmsMessage
from support.jms.peer import JmsPeer
from support.wires.stomp_peer import Frame, StompError, StompPeer

Observation = Mapping[str, Any]
"""What a consumer reports of one message, by field."""
USER = "app"
FIRST_QUIET_S = 4.0
QUIET_S = 2.5

Settle = Callable[[StompPeer, Frame], None]
"""Accepts or refuses a frame."""


def has_more(count: Callable[[], int], seen: int, _events: object) -> bool:
    return count() > seen


class Application(Protocol):
    """A client of a broker; the same messages twice, before and after a death."""

    def send(self, queue: str, messages: Mapping[str, Specimen]) -> None:
        """Send each specimen, by its test id."""
        ...

    def fail(self, queue: str, count: int) -> dict[str, Observation]:
        """Receive this many messages, fail each so that the broker gives it up; by test id."""
        ...

    def take(self, queue: str, count: int) -> dict[str, Observation]:
        """Receive and acknowledge what is there, `count` at most; by test id."""
        ...


def application(broker: Broker, client: str) -> Application:
    """Return a client: openwire, core, qpid, qpid-jms or stomp."""
    if client == STOMP:
        return StompApplication(broker)
    peer = JmsPeer.of(broker, client)
    return JmsApplication(replace(peer, user=USER, password=USER))


@dataclass(frozen=True)
class JmsApplication:
    """A JMS application."""

    peer: JmsPeer

    def send(self, queue: str, messages: Mapping[str, Specimen]) -> None:
        """See Application."""
        self.peer.produce_each([one.described(queue, key) for key, one in messages.items()])

    def fail(self, queue: str, count: int) -> dict[str, Observation]:
        """See Application."""
        return self._received(queue, count, failures=-1, quiet_s=FIRST_QUIET_S)

    def take(self, queue: str, count: int) -> dict[str, Observation]:
        """See Application."""
        return self._received(queue, count, failures=0, quiet_s=QUIET_S)

    def _received(
        self, queue: str, count: int, *, failures: int, quiet_s: float
    ) -> dict[str, Observation]:
        # Why a flaky consumer: it connects again where the broker closes it at a message that it
        # can't convert.
        how = "reject" if self.peer.provider == "qpid" else "rollback"
        outcome = "failed" if failures else "succeeded"
        # Why: qpid-jms gives a redelivery up by itself that is beyond its own limit.
        limit = 0 if failures else 1000
        with self.peer.start_flaky_consumer(
            queue, failures=failures, how=how, max_redeliveries=limit, full=True
        ) as flaky:

            def settled() -> int:
                return len({one.id for one in flaky.events(outcome)})

            seen = -1
            while seen < settled() < count:
                seen = settled()
                more = partial(has_more, settled, seen)
                with contextlib.suppress(TimeoutError):
                    flaky.wait_for(more, within_s=quiet_s)
        return _by_test_id(flaky.events("failing" if failures else "succeeding"))


def _by_test_id(receipts: Sequence[Delivery]) -> dict[str, Observation]:
    """Return what was seen first of each message."""
    messages = [one.message for one in reversed(receipts) if one.message is not None]
    return {str(one.test_id): _observed(one) for one in messages}


def _observed(message: JmsMessage) -> Observation:
    fields = {**message._fields(), "JMSXDeliveryCount": message.delivery_count}
    user = fields.pop("property JMSXUserID", None)
    return {**fields, "JMSXUserID": user and user[1]}


_STOMP_FIELDS = {
    "message-id": "JMSMessageID",
    "destination": "JMSDestination",
    "timestamp": "JMSTimestamp",
    "correlation-id": "JMSCorrelationID",
    "reply-to": "JMSReplyTo",
    "type": "JMSType",
    "priority": "JMSPriority",
    "persistent": "JMSDeliveryMode",
    "expires": "JMSExpiration",
    "redelivered": "JMSRedelivered",
    "JMSXUserID": "JMSXUserID",
    "JMSXGroupID": "group id",
    "JMSXGroupSeq": "group sequence",
    "_AMQ_GROUP_ID": "group id",
    "_AMQ_GROUP_SEQUENCE": "group sequence",
    "_AMQ_VALIDATED_USER": "JMSXUserID",
}
_OF_THE_FRAME = {"ack", "subscription", "content-length", "receipt"}


@dataclass(frozen=True)
class StompApplication:
    """A STOMP 1.2 application."""

    broker: Broker

    def send(self, queue: str, messages: Mapping[str, Specimen]) -> None:
        """See Application."""
        with self._connected() as stomp:
            for test_id, specimen in messages.items():
                headers, body = self._frame(specimen)
                stomp.send(self._name(queue), {"testId": test_id, **headers}, body)

    def fail(self, queue: str, count: int) -> dict[str, Observation]:
        """See Application.

        Classic: NACK. Artemis: look and hang up, since it drops what is NACKed.
        """
        settle = StompPeer.nack if self.broker.kind == "classic" else None
        return self._received(queue, count, "client-individual", settle, FIRST_QUIET_S)

    def take(self, queue: str, count: int) -> dict[str, Observation]:
        """See Application.

        Classic hangs up at an id that an AMQP producer has given, so nothing is accepted one by
        one. Artemis: what is on its way when a client with `auto` hangs up would be gone.
        """
        if self.broker.kind == "classic":
            return self._received(queue, count, "auto", None, QUIET_S)
        return self._received(queue, count, "client-individual", StompPeer.ack, QUIET_S)

    def _received(
        self, queue: str, count: int, ack: str, settle: Settle | None, quiet_s: float
    ) -> dict[str, Observation]:
        frames: list[Frame] = []
        seen = -1
        # Why again: the broker hangs up at a message that it can't convert.
        while seen < len(frames) < count:
            seen = len(frames)
            with self._connected(quiet_s) as stomp:
                self._subscribe(stomp, queue, ack=ack, count=count)
                with contextlib.suppress(TimeoutError, StompError):
                    while len(frames) < count:
                        frames.append(stomp.receive())
                if settle is not None:
                    # Why: Classic hangs up at an id that an AMQP producer has given.
                    with contextlib.suppress(StompError, OSError):
                        for frame in frames[seen:]:
                            settle(stomp, frame)
        return self._observations(frames)

    def _connected(self, timeout_s: float = 10.0) -> StompPeer:
        port = self.broker.ports["STOMP_PORT" if self.broker.kind == "classic" else "PORT"]
        return StompPeer(port, USER, USER, timeout_s=timeout_s)

    def _subscribe(self, stomp: StompPeer, queue: str, *, ack: str, count: int) -> None:
        own = (
            {"activemq.prefetchSize": str(2 * count + 2)}
            if self.broker.kind == "classic"
            else {"subscription-type": "ANYCAST", "consumer-window-size": "-1"}
        )
        stomp.subscribe(self._name(queue), ack=ack, headers=own)

    def _name(self, queue: str) -> str:
        return f"/queue/{queue}" if self.broker.kind == "classic" else queue

    def _frame(self, specimen: Specimen) -> tuple[dict[str, str], bytes]:
        given = specimen.options
        headers = {name: str(value) for name, value in specimen.properties.items()}
        names = {
            "correlationId": "correlation-id",
            "jmsType": "type",
            "priority": "priority",
            "group": "JMSXGroupID",
            "groupSeq": "JMSXGroupSeq",
        }
        headers |= {name: str(given[key]) for key, name in names.items() if key in given}
        if "replyTo" in given:
            headers["reply-to"] = self._reply_to(given["replyTo"])
        if "ttlMs" in given:
            headers["expires"] = str(int(time.time() * 1000) + given["ttlMs"])
        if given.get("persistent") is False:
            headers["persistent"] = "false"
        if self.broker.kind == "artemis":
            headers["destination-type"] = "ANYCAST"
        body = {
            "Text": given.get("text", "plain text").replace("\0", "").encode(),
            "EmptyText": b"",
            "EmptyBytes": b"",
        }.get(specimen.type, b"\0\1\xffA\n\0")
        if specimen.type.endswith("Bytes"):
            headers["content-length"] = str(len(body))
        return headers, body

    def _reply_to(self, name: str) -> str:
        if self.broker.kind == "artemis":
            return name.replace("topic://", "topic://") if "://" in name else f"queue://{name}"
        return f"/topic/{name.removeprefix('topic://')}" if "://" in name else f"/queue/{name}"

    def _observations(self, frames: Sequence[Frame]) -> dict[str, Observation]:
        return {one.headers.get("testId", ""): self._observed(one) for one in frames}

    def _observed(self, frame: Frame) -> Observation:
        seen: dict[str, Any] = {
            "type": "Bytes" if "content-length" in frame.headers else "Text",
            "body": frame.body.hex(),
            "body error": None,
        }
        for name, value in frame.headers.items():
            if name not in _OF_THE_FRAME:
                seen[_STOMP_FIELDS.get(name, f"property {name}")] = value
        if self.broker.kind == "artemis":
            # Why: it is the number of the delivery, not of the message.
            seen.pop("JMSMessageID")
        return seen
