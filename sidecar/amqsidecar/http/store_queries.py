"""Store queries: the questions of pages and API, and the threads that answer them.

The server's thread never waits for a store. A question goes to one of a few threads, each with an
open store of its own (a store belongs to one thread), and comes back as an awaitable.
"""

import asyncio
import queue
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from functools import cache, partial
from pathlib import Path
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar, cast

import msgspec

from amqsidecar.clock import Clock
from amqsidecar.errors import BrokerError, ConfigError, SidecarError, StoreError, StoreUnavailable
from amqsidecar.http.access import Caller, HttpRefused
from amqsidecar.http.masking import HIDDEN, Masking
from amqsidecar.http.rights import Right, Rights
from amqsidecar.http.seen_schedule import (
    seen_gate,
    seen_policies,
    seen_schedule,
    seen_state,
)
from amqsidecar.messages.edit import edit_message
from amqsidecar.messages.view import view_message
from amqsidecar.model.message import MessageEdit, MessageView
from amqsidecar.model.schedule import RowView, StoreState
from amqsidecar.operations.active_rules import Policies
from amqsidecar.operations.browse import read_story, row_named
from amqsidecar.operations.last_death import LogLinks, no_links
from amqsidecar.operations.lying import ReadLying
from amqsidecar.operations.message import (
    EDIT_BYTES_MAX,
    VIEW_BYTES_MAX,
    MessagePage,
    message_page,
)
from amqsidecar.operations.preview import OpenGate
from amqsidecar.operations.status import SidecarStatus
from amqsidecar.runtime.worker import join_all
from amqsidecar.schedule import OpenSchedule, Schedule
from amqsidecar.telemetry import audit
from amqsidecar.telemetry.health import Health

THREADS: Final = 3
MAX_QUESTIONS: Final = 64
"""Maximum queued queries; more are refused."""

_IDLE_S: Final = 60.0

AnswerT = TypeVar("AnswerT")

RenderMetrics = Callable[[str], tuple[bytes, str]]
"""The `Accept` header to the body and its content type."""


class QueryContext(NamedTuple):
    """An open store and its state, as the caller sees them.

    Attributes:
        read_state: see `state`.
        may: returns the schedule limited to a right of the caller.
    """

    store: Schedule
    read_state: Callable[[], StoreState]
    now_ms: int
    may: Callable[[Right], Schedule]

    @property
    def state(self) -> StoreState:
        """The state, the same for all of a query; cycles go on meanwhile."""
        return self.read_state()


StoreQuery = Callable[[QueryContext], AnswerT]


class NoStore(SidecarError):
    """There is no schedule: the broker keeps it."""


class StoreBusy(SidecarError):
    """Too many queries wait already."""


class Tools(msgspec.Struct, frozen=True, kw_only=True):
    """Dependencies from the composition root; None = this sidecar can't do it.

    Attributes:
        final_suffix: of final dead-letter queues (`redelivery.final_suffix`).
        second_person_above: see `needs_second`.
        policies: the rules, and the means to ask other rules.
        gate: asks the broker whether it takes sends.
        lying: reads messages in a final dead-letter queue.
        reports: folder of the jobs' reports.
        audit: file of the audit.
        links: see `LogLinks`.
        webhooks: subscriptions by name, each with its matters.
        sidecar_status: returns the sidecar's own status.
        lateness: as in `ProcessCounts`.
    """

    final_suffix: str
    policies: Policies
    second_person_above: int | None = None
    gate: OpenGate | None = None
    lying: ReadLying | None = None
    reports: Path | None = None
    audit: Path | None = None
    links: LogLinks = no_links
    webhooks: Mapping[str, str] = msgspec.field(default_factory=dict)
    sidecar_status: Callable[[], SidecarStatus] | None = None
    lateness: Callable[[], list[tuple[float | None, int]]] | None = None


class StoreQueries:
    """Answers questions about the schedule, each from an open store; `close` ends it."""

    def __init__(
        self,
        *,
        clock: Clock,
        health: Health,
        render_metrics: RenderMetrics,
        open_schedule: OpenSchedule | None,
        tools: Tools,
        masking: Masking,
    ) -> None:
        self.clock = clock
        self.health = health
        self.render_metrics = render_metrics
        self._tools = tools
        self.masking = masking
        self._open_schedule = open_schedule
        self._jobs = queue.Queue[_Job | None](MAX_QUESTIONS)
        self._threads: list[Thread] = []

    async def ask(self, caller: Caller, question: StoreQuery[AnswerT]) -> AnswerT:
        """Run a caller's question in another thread; return its result, or raise its exception.

        This is the only access to a schedule, limited to the destinations the caller may view.

        Example:
            await queries.ask(caller, lambda at: at.store.tallies())

        Raises:
            HttpRefused: the caller's rights do not suffice.
            NoStore: there is no schedule to ask.
            StoreBusy: too many questions wait.
            StoreUnavailable: the store can't be reached.
        """
        if self._open_schedule is None:
            raise NoStore("this sidecar has no schedule of its own to show")
        if not self._threads:
            for number in range(THREADS):
                thread = Thread(target=self._work, name=f"queries-{number}", daemon=True)
                self._threads.append(thread)
                thread.start()
        job = _Job(question, caller.rights)
        try:
            self._jobs.put_nowait(job)
        except queue.Full:
            raise StoreBusy("too many queries are waiting; try again soon") from None
        return cast("AnswerT", await asyncio.wrap_future(job.future))

    def tools(self, caller: Caller) -> Tools:
        """Return the tools that a caller may use: none that tell of all destinations at once."""
        tools, rights = self._tools, caller.rights
        if not rights.is_limited:
            return tools
        return msgspec.structs.replace(
            tools,
            policies=seen_policies(tools.policies, rights),
            gate=None if tools.gate is None else partial(seen_gate, tools.gate, rights),
            reports=None,
            audit=None,
            webhooks=dict.fromkeys(tools.webhooks, ""),
            sidecar_status=None,
            lateness=None,
        )

    def view(self, encoding: str, message: bytes, max_bytes: int, *, sees: bool) -> MessageView:
        """Return a kept message as `may_read` lets it be seen; to be called in a query."""
        return self.masking.message(view_message(encoding, message, max_bytes), sees=sees)

    def edit(self, encoding: str, message: bytes, change: MessageEdit, *, sees: bool) -> bytes:
        """Return a kept message after an edit; to be called in a query.

        Raises:
            HttpRefused: it changes masked parts.
            EditRefused: it can't be made.
        """
        looks = self.view(encoding, message, EDIT_BYTES_MAX, sees=sees)
        self.masking.check_edit(looks, change, sees=sees)
        return edit_message(encoding, message, change)

    def may_read(self, at: QueryContext, caller: Caller, reference: str) -> bool:
        """Whether a caller may see the content of a message, for a query."""
        if caller.rights.bodies is None:
            return self.masking.may_see(caller)
        places = at.may(Right.BODIES)
        is_known = read_story(places, reference, at.state.uid) is not None
        return is_known and self.masking.shows_any

    def may_probe(self, at: QueryContext, caller: Caller, reference: str) -> bool:
        """Whether a caller may see all of a message, so that no question reveals more."""
        return self.may_read(at, caller, reference) and not self.masking.has_patterns

    def check_reads(self, at: QueryContext, caller: Caller, reference: str) -> None:
        """Refuse the content of a message that a caller may not see, for a query.

        Raises:
            HttpRefused: it is known, and its content is not for them.
        """
        if self.may_read(at, caller, reference):
            return
        is_unlimited = caller.rights.bodies is None
        if is_unlimited or read_story(at.store, reference, at.state.uid) is not None:
            raise HttpRefused(403, HIDDEN)

    def message(
        self,
        at: QueryContext,
        reference: str,
        caller: Caller,
        max_bytes: int = VIEW_BYTES_MAX,
    ) -> MessagePage | None:
        """Return a message and its life as a caller may see them; for a query.

        Args:
            reference: row number or redelivery id.
            caller: who asks.
            max_bytes: of the body at most.
        """
        sees, tools = self.may_read(at, caller, reference), self.tools(caller)
        page = message_page(
            at.store,
            reference,
            at.state.uid,
            at.now_ms,
            partial(self.view, sees=sees),
            acting=tools.policies.acting(),
            lying=tools.lying if sees else None,
            max_bytes=max_bytes,
        )
        if page is None:
            return None
        if page.view is not None and sees:
            audit.write("read-message", audit.ActKind.READ, message=reference)
        return self.masking.page(page, sees=sees)

    def content(self, store: Schedule, reference: str) -> tuple[RowView, bytes] | None:
        """Return a row and its message's bytes, for a query; None = it is not here.

        Raises:
            HttpRefused: it lies in its final queue, and the broker does not show it.
        """
        row = row_named(store, reference)
        if row is None:
            return None
        if row.is_in_final_queue and self._tools.lying is not None:
            try:
                return row, self._tools.lying(row).message
            except BrokerError as error:
                raise HttpRefused(502, str(error)) from error
        data = store.message(row.id)
        return None if data is None else (row, data)

    def close(self) -> None:
        """End the queries, and close all stores that answer in `STOP_S`; safe to call twice."""
        with suppress(queue.Empty):
            while job := self._jobs.get_nowait():
                job.future.cancel()
        for _ in self._threads:
            self._jobs.put(None)
        join_all(self._threads)
        self._threads.clear()

    def _opened(self) -> Schedule:
        assert self._open_schedule is not None  # noqa: S101 - else there is no thread
        try:
            return self._open_schedule()
        except ConfigError as error:
            # Why: the file of a password is gone for a moment while it is replaced.
            raise StoreUnavailable(str(error)) from error

    def _work(self) -> None:
        opened: Schedule | None = None
        while True:
            try:
                job = self._jobs.get(timeout=_IDLE_S)
            except queue.Empty:
                _close(opened)
                opened = None
                continue
            if job is None:
                _close(opened)
                return
            if not job.future.set_running_or_notify_cancel():
                continue
            try:
                if opened is None:
                    opened = self._opened()
                    self.masking.group_key = opened.group_key
                at = _context(opened, self.clock.now_ms(), job.rights)
                answer = job.context.run(job.question, at)
                job.future.set_result(answer)
            except StoreError as error:
                _close(opened)
                opened = None
                job.future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - it is raised where it was asked
                job.future.set_exception(error)


def _context(store: Schedule, now_ms: int, rights: Rights) -> QueryContext:
    may = partial(seen_schedule, store, rights)
    read_state = cache(lambda: seen_state(store.state(), rights))
    return QueryContext(may(Right.VIEW), read_state, now_ms, may)


def _close(opened: Schedule | None) -> None:
    if opened is not None:
        opened.close()


class _Job:
    def __init__(self, question: StoreQuery[Any], rights: Rights) -> None:
        self.question = question
        self.rights = rights
        # Why: who asks is known to the context of the request only.
        self.context = copy_context()
        self.future = Future[Any]()
