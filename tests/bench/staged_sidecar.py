"""The installed command with its stages timed: where the processor time of a message goes.

`bench.stages` starts it in place of `python -m amqsidecar`. A stage is a function that runs a few
times per cycle, so that timing it costs nothing per message; its time is without that of the stages
that it calls. When the process ends it logs a line of `Told`.
"""

import atexit
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import wraps
from threading import get_ident
from typing import Any, Final, ParamSpec, TypeVar

import msgspec

from amqsidecar.brokers.connection.byte_stream import ByteStream
from amqsidecar.brokers.core.connection import CoreConnection
from amqsidecar.brokers.core_artemis.take import CoreArtemisTake
from amqsidecar.brokers.openwire.connection import OpenWireConnection
from amqsidecar.brokers.openwire.take import OpenWireTake
from amqsidecar.brokers.sends_ahead import SendsAhead
from amqsidecar.cli.main import main
from amqsidecar.engine.cycle import CycleEngine
from amqsidecar.engine.cycle_events import CycleStats
from amqsidecar.engine.dispatch import Dispatch
from amqsidecar.model.event import AnyEvent
from amqsidecar.stores.sqlite import transaction
from amqsidecar.stores.sqlite.database import SqliteDatabase
from amqsidecar.stores.sqlite.transaction import SqliteTransaction
from amqsidecar.wiring.parts import ProcessParts

OTHERS: Final = "all else in the cycles' thread"

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Told(msgspec.Struct, tag_field="event", tag="stages"):
    """What was spent from the end of the first cycle to that of the last one.

    Attributes:
        moved: messages sent.
        process_ns: processor time of the whole process.
        stages_ns: of the thread that runs the cycles, by stage.
    """

    moved: int
    process_ns: int
    stages_ns: dict[str, int]


class Stages:
    """Processor time by stage, of the thread that makes it: the one of the cycles."""

    def __init__(self) -> None:
        self._thread = get_ident()
        self._stages_ns: dict[str, int] = defaultdict(int)
        self._running = [OTHERS]
        self._since_ns = time.thread_time_ns()
        self._began_ns = 0
        self._told = Told(0, 0, {})

    def of(self, owner: Any, **names: str) -> None:
        """Time functions of a class or a module; each gets the name of its stage."""
        for function, name in names.items():
            setattr(owner, function, self._timed(name, getattr(owner, function)))

    def _timed(
        self, name: str, function: Callable[Arguments, Result]
    ) -> Callable[Arguments, Result]:
        @wraps(function)
        def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Result:
            if get_ident() != self._thread:
                return function(*arguments, **options)
            self._switch()
            self._running.append(name)
            try:
                return function(*arguments, **options)
            finally:
                self._switch()
                self._running.pop()

        return call

    def _switch(self) -> None:
        now_ns = time.thread_time_ns()
        self._stages_ns[self._running[-1]] += now_ns - self._since_ns
        self._since_ns = now_ns

    def committed(self, sent: int) -> None:
        """Count a cycle."""
        self._switch()
        now_ns = time.process_time_ns()
        if not self._began_ns:
            self._stages_ns.clear()
            self._began_ns = now_ns
        elif sent:
            moved = self._told.moved + sent
            self._told = Told(moved, now_ns - self._began_ns, dict(self._stages_ns))

    def tell(self) -> None:
        """Log the line."""
        print(msgspec.json.encode(self._told).decode(), file=sys.stderr, flush=True)


def run() -> None:
    """Run the command."""
    stages = Stages()
    stages.of(ByteStream, _read="read the socket", flush="write to the socket")
    for connection in (CoreConnection, OpenWireConnection):
        stages.of(connection, _split="cut packets, decode messages")
    for session in (CoreArtemisTake, OpenWireTake):
        stages.of(
            session,
            receive="read provenance",
            commit_cycle="acknowledge, await answers, settle",
        )
    stages.of(SendsAhead, begin="make and encode re-sends")
    stages.of(Dispatch, choose="choose what is sent")
    stages.of(CycleEngine, _decide="judge", _begin="begin the cycle")
    stages.of(
        SqliteTransaction,
        claim_due="claim what is due",
        record_cycle="record the cycle",
        finish_cycle="finish the cycle before",
    )
    stages.of(
        transaction,
        add_rows="write rows and messages",
        delete_rows="delete rows and messages",
        write_block="write events",
        failures_of="count failures",
    )
    stages.of(SqliteDatabase, run="begin and commit of the store")
    stages.of(ProcessParts, _observe="metrics and log")
    observe = ProcessParts._observe

    def counted(parts: ProcessParts, events: Sequence[AnyEvent], stats: CycleStats | None) -> None:
        observe(parts, events, stats)
        if stats is not None:
            stages.committed(stats.sent)

    ProcessParts._observe = counted  # type: ignore[assignment,method-assign]
    atexit.register(stages.tell)
    main()


if __name__ == "__main__":
    run()
