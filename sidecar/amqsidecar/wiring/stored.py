"""Assembles the service with a schedule in a store."""

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from threading import Lock

import structlog

from amqsidecar import __version__
from amqsidecar.clock import NOTICED_MS, SteadyClock, SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.sections.intake import Backlog
from amqsidecar.config.sections.policy import WaitEnd
from amqsidecar.config.sections.redelivery import ExhaustedChoice
from amqsidecar.engine.crash_points import CrashPoint, no_crash
from amqsidecar.engine.gates import Gates
from amqsidecar.engine.intake import named_queues
from amqsidecar.engine.judging.death_groups import DeathGroups, no_note
from amqsidecar.engine.judging.judge import Readers
from amqsidecar.engine.manual import ALL, Manual
from amqsidecar.engine.rules_at_work import different_rules, left_by_all, rules_at_work
from amqsidecar.errors import StoreUnavailable
from amqsidecar.messages.kept_message import group_of
from amqsidecar.model.marker import ServiceMark, ServiceMarkKind
from amqsidecar.model.row_changes import Exhausting
from amqsidecar.operations.retention import Retention
from amqsidecar.runtime.discovery import Discovery, unread_queues
from amqsidecar.runtime.housekeeping import Housekeeping
from amqsidecar.runtime.in_place import InPlaceIndex
from amqsidecar.runtime.journaling import Journaling
from amqsidecar.runtime.late_notes import NoteProblems
from amqsidecar.runtime.mode import LOOK_S, LiveMode
from amqsidecar.runtime.observer import Observer
from amqsidecar.runtime.open_resends import OpenResends
from amqsidecar.runtime.operating import Operating
from amqsidecar.runtime.service import Service, log_clock_step
from amqsidecar.runtime.stored import StoredMode, StoredSettings
from amqsidecar.runtime.takeover import Takeover
from amqsidecar.runtime.watching import Watching
from amqsidecar.runtime.work import MakeJudge
from amqsidecar.runtime.worker import KeptSchedule, Worker, all_running
from amqsidecar.schedule import Schedule
from amqsidecar.webhooks.outbox import forget_outboxes
from amqsidecar.wiring.parts import ProcessParts, stopping
from amqsidecar.wiring.rules import (
    load_cause_notes,
    load_gates,
    load_grouping,
    load_reports,
    load_retention,
    log_gate_fault,
    manual_of,
    need_groups,
)
from amqsidecar.wiring.schedules import open_instance, open_schedule, store_folder

ReadConfig = Callable[[], Config]
"""Reads the options; raises ConfigError."""


def _index(parts: ProcessParts, make_judge: MakeJudge) -> InPlaceIndex:
    """Return the index of the messages in dead-letter queues."""
    config, options = parts.config, parts.config.observe
    return InPlaceIndex(
        named=named_queues(config.intake.queues),
        # Why another: it is called in a thread of its own.
        find_intake=Discovery(parts.rules.classic, is_silent=True).find,
        make_judge=make_judge,
        clock=parts.clock,
        interval_s=options.interval_s,
        max_messages=options.max_messages,
        max_per_second=options.max_per_second,
        mode=parts.mode,
        report=lambda left: parts.health.left_behind(left, "index"),
        report_discards=parts.metrics.would_discard,
    )


def _watching(parts: ProcessParts, mode: StoredMode, instance: str) -> Iterator[Worker]:
    """Yield what looks at queues that are re-sent to or not read, where wanted."""
    config, options, metrics = parts.config, parts.config.outcomes, parts.metrics
    if not options.watch:
        return
    window_ms = options.window_s * 1000
    # Why another: it is called in a thread of its own.
    find_intake = Discovery(parts.rules.classic, is_silent=True).find
    named = named_queues(config.intake.queues)
    in_place = _index(parts, mode.make_judge)
    yield Watching(
        schedule=KeptSchedule(parts.open_schedule),
        brokers=parts.links,
        # Why another: opening a link removes the remains of a crashed one of its instance.
        instance=f"{instance}-watch",
        clock=parts.clock,
        window_ms=window_ms,
        interval_s=options.interval_s,
        resends=OpenResends(window_ms, metrics.outcomes),
        # Why only with a journal: the history shows outcomes by the observations themselves.
        keeps_proofs=bool(config.journal.path),
        find_unread=lambda link: unread_queues(
            link,
            named,
            find_intake,
            config.redelivery.final_suffix,
            parts.mode.now,
        ),
        in_place=in_place,
        report_counted=lambda is_counted: metrics.set_value(
            "amqsidecar_outcomes_not_counted", not is_counted
        ),
    ).worker


def run_stored(
    config: Config, crash_point: CrashPoint, read_again: ReadConfig | None = None
) -> None:
    """Run until SIGTERM or SIGINT; raises as `run_service`."""
    # Why two clocks: the broker's own time is the wall clock's; no step may change a delay.
    clock = SteadyClock()
    parts = ProcessParts(config, clock, SystemClock(), crash_point, needs_token=True)
    metrics = parts.metrics
    gates = load_gates(config)
    # Why at once: a store that can't be used ends the process and not a loop.
    schedule = open_schedule(config, clock, for_service=True)
    try:
        state = schedule.state()
        step = clock.start_at_least(state.taken_until_ms)
        if step.by_ms <= -NOTICED_MS:
            log_clock_step(step)
            parts.health.clock(step)
        read_mode = partial(_read_mode, parts, read_again or (lambda: config), state.instance)
        own, parts.mode = parts.mode.now, LiveMode(read_mode(), read_mode)
        if parts.mode.now != own:
            log.warning("different_modes", left=str(parts.mode.now), meaning=_DIFFERENT_MODES)
        journaling = [*_journaling(parts, state.instance)]
        keep_start(
            schedule, parts.rules.mark(ServiceMarkKind.START, state.instance, clock.now_ms())
        )
        schedule.keep_for_journal(bool(config.journal.path))
        problems = NoteProblems(
            clock, partial(metrics.add, "amqsidecar_cause_notes_ambiguous_total", 1)
        )
        notes = load_cause_notes(config, clock, parts.rules.classic, problems)
        find_note = no_note if notes is None else notes.find
        # Why a lock: the cycle judges, and so does the index of messages that lie in queues.
        death_groups = DeathGroups(load_grouping(config), find_note, Lock())
        mode = StoredMode(
            schedule=schedule,
            death_groups=death_groups,
            notes=notes,
            reports=load_reports(config, problems),
            make_link=parts.links.make,
            make_judge=parts.rules.judges(
                parts.chance,
                Readers(
                    message_group=group_of if need_groups(gates) else None,
                    advice=notes.advise if notes is not None and notes.obeys else None,
                    death_group=death_groups.of_delivery,
                ),
            ),
            parts=parts.engine_parts(),
            gates=Gates(
                gates,
                lambda gate, count: metrics.add("amqsidecar_gate_waits_total", count, gate),
                log_gate_fault,
            ),
            settings=StoredSettings(
                holds_backlog=config.intake.backlog is Backlog.HOLD,
                backlog_threshold=config.intake.backlog_threshold,
                exhausting=_exhausting(config),
                accepts_orphans=config.store.accept_orphans,
                rules_digest=parts.rules.digest,
            ),
            health=parts.health,
            mode=parts.mode,
        )
        named = named_queues(config.intake.queues)
        service = parts.make_service(mode.open, named, parts.rules.intake, clock.look)
        mode.renew = service.renew
        beside = _beside(parts, mode, service, state.instance, journaling)
        parts.run(service, beside)
    finally:
        schedule.close()
        parts.log_events.flush()


def _read_mode(parts: ProcessParts, read: ReadConfig, instance: str) -> Manual:
    """Return the mode: the dead letters left to a person; see `LiveMode`."""
    own = manual_of(read(), parts.rules.given)
    if not parts.config.store.is_shared:
        return own
    with closing(parts.open_schedule()) as schedule:
        return left_by_all(schedule, instance, own)


@contextmanager
def _beside(
    parts: ProcessParts,
    mode: StoredMode,
    service: Service,
    instance: str,
    journaling: Sequence[Worker],
) -> Iterator[None]:
    """Run the workers on the schedule beside the service, each with its own connection."""
    config, clock = parts.config, parts.clock
    retention = load_retention(config)
    operating = Operating(
        schedule=KeptSchedule(parts.open_schedule),
        clock=clock,
        suffix=config.redelivery.final_suffix,
        runner=f"service:{os.getpid()}:{secrets.token_hex(8)}",
        wake=service.wake,
        metrics=parts.metrics,
        exhausting=_exhausting(config) if config.policy.wait_ends is WaitEnd.EXHAUST else None,
    )
    workers = [*_takeover(parts, mode), operating.worker, *journaling]
    workers += [*_watching(parts, mode, instance), *_reporting(parts)]
    _show_mode(parts)
    with all_running(workers):
        _housekeeping(parts, instance, mode.death_groups, retention).plan(service.service_clock)
        service.service_clock.every(LOOK_S, "mode", partial(parts.mode.follow, service.renew))
        service.service_clock.every(LOOK_S, "shown_mode", partial(_show_mode, parts))
        yield


def _show_mode(parts: ProcessParts) -> None:
    now = parts.mode.now
    parts.metrics.set_mode(is_manual=now.is_any, redelivers_in_place=now.redelivers)


def _housekeeping(
    parts: ProcessParts, instance: str, death_groups: DeathGroups, retention: Retention | None
) -> Housekeeping:
    config = parts.config
    return Housekeeping(
        open_schedule=parts.open_schedule,
        clock=parts.clock,
        metrics=parts.metrics,
        keep_ms=config.history.keep_days * 86_400_000,
        max_events=config.history.max_events,
        retention=retention,
        folder=store_folder(config),
        rules_change=partial(parts.rules.change, instance),
        learn=death_groups.learn,
        forget_outboxes=lambda schedule, now_ms: forget_outboxes(
            schedule, config.webhooks.subscriptions, now_ms
        ),
        # Why not where others share it: each has a clock of its own.
        keeps_clock_gap=not config.store.is_shared,
    )


def run_observing(config: Config) -> None:
    """Look until SIGTERM or SIGINT, and take and send nothing; raises as `run_service`."""
    clock = SystemClock()
    parts = ProcessParts(config, clock, clock, no_crash, needs_token=False)
    parts.mode = LiveMode(Manual([ALL]))
    _show_mode(parts)
    schedule = open_schedule(config, clock, for_service=True)
    try:
        instance = schedule.state().instance
        keep_start(schedule, parts.rules.mark(ServiceMarkKind.OBSERVE, instance, clock.now_ms()))
        death_groups = DeathGroups(load_grouping(config), no_note)
        observer = Observer(
            make_link=parts.links.make,
            schedule=KeptSchedule(parts.open_schedule),
            index=_index(
                parts,
                parts.rules.judges(parts.chance, Readers(death_group=death_groups.of_delivery)),
            ),
            clock=clock,
            attempts=parts.attempts,
            health=parts.health,
        )
        serving, reporting = parts.serving(), all_running(_reporting(parts))
        with parts.sending(), serving as address, stopping(observer.stop), reporting:
            _housekeeping(parts, instance, death_groups, None).plan(observer.service_clock)
            log.info("started", version=__version__, http=address, mode="observe")
            observer.run()
    finally:
        schedule.close()


def _takeover(parts: ProcessParts, mode: StoredMode) -> Iterator[Worker]:
    """Yield what settles cycles left by other sidecars on the same schedule."""
    config = parts.config
    if not config.store.is_shared:
        return
    yield Takeover(
        open_schedule=parts.open_schedule,
        open_instance=lambda instance: open_instance(config, parts.clock, instance),
        make_link=parts.links.make,
        make_engine=mode.settler,
        every_s=config.store.lease_s / 2,
        report=parts.metrics.took_over,
    ).worker


def _reporting(parts: ProcessParts) -> list[Worker]:
    """Return what reports to people, where it is wanted."""
    if not parts.config.webhooks.subscriptions:
        return []
    from amqsidecar.wiring.webhooks import reporting  # noqa: PLC0415 - only where it is wanted

    return reporting(parts)


def _is_on_volume_of(journal: str, store: Path | None) -> bool:
    """Return whether a journal, which need not be there yet, lies on the volume of a store."""
    from amqsidecar.journals.folder import local_folder  # noqa: PLC0415 - only where it is wanted

    folder = local_folder(journal)
    if store is None or folder is None:
        return False
    folder = folder.absolute()
    there = next(one for one in (folder, *folder.parents) if one.exists())
    return there.stat().st_dev == store.stat().st_dev


def _journaling(parts: ProcessParts, instance: str) -> Iterator[Worker]:
    """Yield what writes the configured journal.

    Raises:
        ConfigError: a library that it needs is not installed.
    """
    options, crash_point = parts.config.journal, parts.crash_point
    if not options.path:
        return
    from amqsidecar.journals.folder import open_folder  # noqa: PLC0415 - only where it is wanted

    folder = open_folder(options.path, instance, lambda: crash_point("segment_hidden"))
    from amqsidecar.journals.writer import JournalWriter  # noqa: PLC0415 - an extra, which is there

    yield Journaling(
        schedule=KeptSchedule(parts.open_schedule),
        writer=JournalWriter(
            folder, sidecar=options.name or instance, cause_text=options.cause_text
        ),
        clock=parts.clock,
        metrics=parts.metrics,
        segment_events=options.segment_events,
        segment_ms=options.segment_s * 1000,
        keep_ms=options.keep_days * 86_400_000,
        shares_volume=_is_on_volume_of(options.path, store_folder(parts.config)),
        crash_point=crash_point,
    ).worker


log = structlog.get_logger("amqsidecar.service")


_DIFFERENT_MODES = (
    "what one of the sidecars on this schedule leaves to a person, all leave: give all the same "
    "redelivery.mode and redelivery.manual (expected during a rolling update)"
)


def _exhausting(config: Config) -> Exhausting:
    return Exhausting(
        final_suffix=config.redelivery.final_suffix,
        keeps_exhausted=config.redelivery.exhausted is ExhaustedChoice.KEEP,
    )


def keep_start(schedule: Schedule, mark: ServiceMark) -> None:
    """Keep the start of a service, and log which sidecars on its schedule have other rules.

    A full store does not prevent a start, because due messages can be sent. If the process dies
    inside, the start is kept or not.
    """
    try:
        schedule.add_service_mark(mark)
        meaning = different_rules(rules_at_work(schedule), mark.rules_digest)
    except StoreUnavailable as failed:
        log.warning("start_not_kept", reason=str(failed))
        return
    if meaning:
        log.warning("different_rules", meaning=meaning)
