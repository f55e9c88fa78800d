"""Transactions over AMQP: declare, work under an id, discharge.

A transaction is declared ahead of its use, so that a cycle does not wait for it; an unused one
costs the broker nothing and ends with the connection.

Quirk (both brokers): a discharge overtakes transacted sends that wait for credit, because it goes
over another link. It may be sent only after every send was answered (`wire-facts.md` 4b).

Source: AMQP 1.0, part 4 (transactions).
"""

from collections.abc import Callable
from typing import Any

import cproton
from cproton import ffi, lib

from amqsidecar.brokers.amqp.connection import AmqpConnection
from amqsidecar.brokers.amqp.links import (
    DECLARED,
    TRANSACTIONAL_STATE,
    AmqpDelivery,
    Sender,
    is_answered,
    refusal_words,
)
from amqsidecar.brokers.sends_ahead import begin_nothing
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.errors import BrokerRefused, LinkLost

_VALUE = b"\x00\x53\x77"
_DECLARE = _VALUE + b"\x00\x53\x31\xc0\x02\x01\x40"
_ACCEPTED = b"\x00\x53\x24\x45"
# Bound: a commit writes to the broker's disk, which may be slow; not forever.
_ANSWER_TIMEOUT_S = 60.0
_STATE_BYTES_MAX = 512


class Transaction:
    """One declared transaction: its id and the two states that refer to it.

    Attributes:
        send_state: engine data for a send under this transaction.
        accept_state: engine data for an accept under this transaction.
    """

    def __init__(self, transaction_id: bytes) -> None:
        self.id = transaction_id
        encoded_id = bytes((0xA0, len(transaction_id))) + transaction_id
        self.send_state = _data(_list(encoded_id))
        self.accept_state = _data(_list(encoded_id, _ACCEPTED))
        self._answer = ffi.new("char[]", _STATE_BYTES_MAX)
        # Why: the engine encodes the answer again, so the same words are the same bytes.
        self._accepted = self._encoded(self.accept_state)

    def accept(self, in_hand: AmqpDelivery) -> None:
        """Accept a delivery under this transaction; it stays unsettled."""
        pointer = in_hand.pointer
        lib.pn_data_copy(lib.pn_disposition_data(lib.pn_delivery_local(pointer)), self.accept_state)
        lib.pn_delivery_update(pointer, TRANSACTIONAL_STATE)

    def refusal(self, delivery: Any) -> str | None:
        """Return why the broker did not take an answered send; None = it did."""
        if lib.pn_delivery_remote_state(delivery) == TRANSACTIONAL_STATE:
            data = lib.pn_disposition_data(lib.pn_delivery_remote(delivery))
            if self._encoded(data) == self._accepted:
                return None
        return refusal_words(delivery) or "accepted, but outside of the transaction"

    def _encoded(self, data: Any) -> bytes:
        """Return engine data as the engine encodes it; empty when it is too long."""
        size = lib.pn_data_encode(data, self._answer, _STATE_BYTES_MAX)
        return bytes(ffi.buffer(self._answer, size)[:]) if size > 0 else b""


class Coordinator:
    """Declares and discharges; one transaction is open at a time, and one is declared ahead."""

    def __init__(self, connection: AmqpConnection, crash_point: CrashPoint = no_crash) -> None:
        """Attach to the coordinator.

        Args:
            connection: whose transactions these are.
            crash_point: called while the broker commits.

        Raises:
            BrokerRefused: the broker has no transactions.
            LinkLost: no answer in time.
        """
        self.connection = connection
        self.crash_point = crash_point
        self._sender = Sender(
            connection,
            "amqsidecar-coordinator",
            None,
            capability="amqp:local-transactions",
            target_type=cproton.PN_COORDINATOR,
        )
        self._declaring: Any = None
        sender = self._sender
        if not connection.run_until(lambda: sender.refusal is not None or sender.credit > 1):
            raise LinkLost(f"{connection.place} does not answer about transactions")
        if sender.refusal is not None:
            raise BrokerRefused(f"{connection.place} has no AMQP transactions: {sender.refusal}")
        connection.parts.append(self)

    def declare_ahead(self) -> None:
        """Ask for the next transaction without waiting for it."""
        if self._declaring is None and self._sender.credit > 1:
            self._declaring = self._sender.send(_DECLARE)

    def begin(self) -> Transaction:
        """Return a transaction that the broker has declared.

        Raises:
            LinkLost: no answer in time, or the broker can't declare one.
        """
        self.declare_ahead()
        declaring = self._declaring
        if declaring is None or not self.connection.run_until(
            lambda: is_answered(declaring) or self._sender.refusal, _ANSWER_TIMEOUT_S
        ):
            raise LinkLost(f"{self.connection.place} did not declare a transaction in time")
        self._raise_if_closed()
        self._declaring = None
        if lib.pn_delivery_remote_state(declaring) != DECLARED:
            words = refusal_words(declaring)
            raise LinkLost(f"{self.connection.place} declared no transaction: {words}")
        data = lib.pn_disposition_data(lib.pn_delivery_remote(declaring))
        transaction_id = _first_binary(data)
        lib.pn_delivery_settle(declaring)
        return Transaction(transaction_id)

    def commit(
        self, transaction: Transaction, meanwhile: Callable[[], None] = begin_nothing
    ) -> str | None:
        """Commit; None = durable, a text = undone, with the reason.

        Args:
            transaction: every send of it was answered.
            meanwhile: called once the broker was asked.

        Raises:
            LinkLost: unknown whether it happened.
        """
        discharge = self._ask_to_end(transaction, is_failed=False)
        self.crash_point("committing")
        meanwhile()
        return self._answer(discharge)

    def abort(self, transaction: Transaction) -> None:
        """Undo all of it.

        Raises:
            LinkLost: no answer in time; the broker undoes it when the connection ends.
        """
        self._answer(self._ask_to_end(transaction, is_failed=True))

    def _ask_to_end(self, transaction: Transaction, *, is_failed: bool) -> Any:
        encoded_id = bytes((0xA0, len(transaction.id))) + transaction.id
        fail = b"\x41" if is_failed else b"\x42"
        message = _VALUE + b"\x00\x53\x32" + _list(encoded_id, fail)
        if not self.connection.run_until(
            lambda: self._sender.credit > 0 or self._sender.refusal, _ANSWER_TIMEOUT_S
        ):
            raise LinkLost(f"{self.connection.place} takes no discharge")
        self._raise_if_closed()
        # Why before: the next one may be wanted while the broker commits this one.
        self.declare_ahead()
        discharge = self._sender.send(message)
        self.connection.pump(0)
        return discharge

    def _answer(self, discharge: Any) -> str | None:
        if not self.connection.run_until(
            lambda: is_answered(discharge) or self._sender.refusal, _ANSWER_TIMEOUT_S
        ):
            raise LinkLost(f"{self.connection.place} did not answer a discharge in time")
        self._raise_if_closed()
        words = refusal_words(discharge)
        lib.pn_delivery_settle(discharge)
        return words

    def _raise_if_closed(self) -> None:
        if self._sender.refusal is not None:
            raise LinkLost(
                f"{self.connection.place} closed the coordinator: {self._sender.refusal}"
            )

    def close(self) -> None:
        self._sender.close()

    @property
    def is_closed(self) -> bool:
        return self._sender.is_closed


def _list(*items: bytes) -> bytes:
    content = b"".join(items)
    return bytes((0xC0, len(content) + 1, len(items))) + content


def _data(encoded: bytes) -> Any:
    data = ffi.gc(cproton.pn_data(16), cproton.pn_data_free)
    cproton.pn_data_decode(data, encoded)
    return data


def _first_binary(data: Any) -> bytes:
    cproton.pn_data_rewind(data)
    if cproton.pn_data_next(data) and cproton.pn_data_type(data) == cproton.PN_LIST:
        cproton.pn_data_enter(data)
        if cproton.pn_data_next(data) and cproton.pn_data_type(data) == cproton.PN_BINARY:
            return bytes(cproton.pn_data_get_binary(data))
    raise LinkLost("the broker declared a transaction without an id")
