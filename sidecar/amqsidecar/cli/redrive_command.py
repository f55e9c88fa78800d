"""`amqsidecar redrive`: executes a plan of bulk redelivery."""

import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from amqsidecar.cli.options import ConfigFile, Output, OutputFormat, Sets, read_config
from amqsidecar.cli.printing import print_json, print_line, progress_bar, say

if TYPE_CHECKING:
    from amqsidecar.config.schema import Config
    from amqsidecar.runtime.redrive.redrive import Hand, Plan, Redrive, RedriveTotals
    from amqsidecar.schedule import Schedule

_EXIT_INTERRUPTED = 130


class PlaceChoice(StrEnum):
    """Where planned messages lie; the same words as `PlannedPlace`."""

    QUEUE = "queue"
    STORE = "store"


PlanPath = Annotated[
    str,
    typer.Option(
        "--plan",
        metavar="PATH",
        help="The table `redrive_plan` made by `amqsidecar pipeline redrive`.",
        show_default=False,
    ),
]
State = Annotated[
    Path,
    typer.Option(
        "--state",
        metavar="FOLDER",
        help="Folder of this execution's progress and messages in hand, created if missing; run "
        "the same command with the same folder to continue.",
        show_default=False,
    ),
]
From = Annotated[
    PlaceChoice,
    typer.Option(
        "--from",
        help="Which of the planned messages: those in final dead-letter queues of the broker, or "
        "those that the store of this configuration holds or has parked.",
    ),
]
SidecarName = Annotated[
    str | None,
    typer.Option(
        "--sidecar",
        metavar="NAME",
        help="Only messages of this sidecar's journal; default: of all.",
        show_default=False,
    ),
]


def redrive(
    plan: PlanPath,
    state: State,
    place: From = PlaceChoice.QUEUE,
    sidecar: SidecarName = None,
    config_file: ConfigFile = None,
    sets: Sets = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Redeliver the messages of a plan, each once.

    No others are redelivered; the pace is the plan's.

    \b
    JSON: {"plan_id", "planned", "sent", "waiting", "parked", "left": {reason: count}, "stopped"}
    """  # noqa: D301 - the backspace makes the library keep the lines
    config = read_config(config_file, sets)
    from amqsidecar.errors import ConfigError, Problem  # noqa: PLC0415 - keeps `--help` fast

    try:
        from amqsidecar.pipeline.redrive.plan import RedrivePlan  # noqa: PLC0415 - an extra
    except ImportError as error:
        what = f'needs Parquet: pip install "amqsidecar[journal]" ({error})'
        raise ConfigError([Problem("--plan", what)]) from error
    from amqsidecar.cli.user import enter_as_user  # noqa: PLC0415 - as above
    from amqsidecar.telemetry import audit  # noqa: PLC0415 - as above

    enter_as_user(config, is_needed=True)
    found = RedrivePlan(plan)
    with progress_bar("redrive", found.message_count) as advance:
        execution = _execution(found, state, place, sidecar, config, advance)
        with _stopping(execution.stop):
            outcome = execution.run()
    audit.write(
        "redrive",
        selection={"plan": found.plan_id, "from": place, "sidecar": sidecar},
        count=found.message_count,
        after=outcome,
    )
    if place is PlaceChoice.QUEUE:
        _write_journal(config, state, found.plan_id)
    _print_totals(outcome, state, output)
    if outcome.stopped:
        raise typer.Exit(_EXIT_INTERRUPTED)


def _execution(
    plan: "Plan",
    folder: Path,
    place: PlaceChoice,
    sidecar: str | None,
    config: "Config",
    advance: Callable[[int], None],
) -> "Redrive":
    """Wire one run.

    Raises:
        ConfigError: the folder can't be used, or belongs to another execution.
    """
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - keeps `--help` fast
    from amqsidecar.errors import ConfigError, Problem  # noqa: PLC0415 - as above
    from amqsidecar.model.redrive import PlannedPlace  # noqa: PLC0415 - as above
    from amqsidecar.runtime.redrive.progress import ProgressFile  # noqa: PLC0415 - as above
    from amqsidecar.runtime.redrive.redrive import Redrive  # noqa: PLC0415 - as above

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError([Problem("--state", f"{folder}: {error.strerror}")]) from error
    clock = SystemClock()
    open_hand = _queue_hand if place is PlaceChoice.QUEUE else _store_hand
    return Redrive(
        plan=plan,
        place=PlannedPlace(place.value),
        sidecar=sidecar,
        open_hand=open_hand(config, folder, plan.plan_id),
        progress=ProgressFile(folder / "progress.json", plan.plan_id, PlannedPlace(place.value)),
        clock=clock,
        advance=advance,
        say=say,
    )


def _queue_hand(
    config: "Config", folder: Path, plan_id: str
) -> Callable[[], AbstractContextManager["Hand"]]:
    import os  # noqa: PLC0415 - as above

    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - as above
    from amqsidecar.errors import ConfigError, Problem  # noqa: PLC0415 - as above
    from amqsidecar.runtime.redrive.from_queue import queue_hand  # noqa: PLC0415 - as above
    from amqsidecar.runtime.work import MAX_MESSAGES  # noqa: PLC0415 - as above
    from amqsidecar.wiring.crash_points import crash_point_of  # noqa: PLC0415 - as above
    from amqsidecar.wiring.links import LinkMaker  # noqa: PLC0415 - as above

    if not config.broker.url:
        raise ConfigError(
            [Problem("broker.url", "is not set: give the broker that has the queues")]
        )
    clock, crash_point = SystemClock(), crash_point_of(os.environ)
    # Why now: a second execution of the plan is refused before it does anything.
    schedule = _open_own(folder, plan_id, for_service=True)
    links = LinkMaker(config, clock, crash_point)

    return lambda: queue_hand(
        links.make,
        schedule,
        final_suffix=config.redelivery.final_suffix,
        allowed_origins=config.redelivery.allowed_origins,
        plan_id=plan_id,
        clock=clock,
        max_messages=config.cycle.max_messages or MAX_MESSAGES,
        say=say,
        crash_point=crash_point,
        login_outdated=links.login_outdated,
    )


def _open_own(folder: Path, plan_id: str, *, for_service: bool = False) -> "Schedule":
    """Open the schedule of an execution."""
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - as above
    from amqsidecar.stores.open import open_file  # noqa: PLC0415 - as above

    path, instance = folder / "schedule.db", f"redrive-{plan_id}"
    return open_file(path, SystemClock(), instance=instance, for_service=for_service)


def _write_journal(config: "Config", folder: Path, plan_id: str) -> None:
    """Write the execution's events so far into the journal, if one is configured.

    So the next plan excludes messages that this one has sent. If the process dies before, the next
    run does it.
    """
    options = config.journal
    if not options.path:
        return
    from amqsidecar.journals.folder import open_folder  # noqa: PLC0415 - as above
    from amqsidecar.journals.writer import JournalWriter  # noqa: PLC0415 - as above
    from amqsidecar.runtime.journaling import write_all  # noqa: PLC0415 - as above

    with closing(_open_own(folder, plan_id)) as schedule:
        instance = schedule.state().instance
        writer = JournalWriter(
            open_folder(options.path, instance, lambda: None),
            sidecar=options.name or instance,
            cause_text=options.cause_text,
        )
        write_all(schedule, writer, options.segment_events)


def _store_hand(
    config: "Config", _folder: Path, plan_id: str
) -> Callable[[], AbstractContextManager["Hand"]]:
    from amqsidecar.clock import SystemClock  # noqa: PLC0415 - as above
    from amqsidecar.config.store_url import BROKER_HELD  # noqa: PLC0415 - as above
    from amqsidecar.errors import ConfigError, Problem  # noqa: PLC0415 - as above
    from amqsidecar.runtime.redrive.from_store import store_hand  # noqa: PLC0415 - as above
    from amqsidecar.stores.open import open_schedule  # noqa: PLC0415 - as above

    if config.store.url == BROKER_HELD:
        what = "keeps no history of a plan's execution: use `amqsidecar retry` with ids"
        raise ConfigError([Problem("store.url", f"{BROKER_HELD} {what}")])
    clock = SystemClock()
    return lambda: store_hand(lambda: open_schedule(config, clock), plan_id=plan_id, clock=clock)


@contextmanager
def _stopping(stop: Callable[[], None]) -> Iterator[None]:
    """End the execution between cycles on SIGINT and SIGTERM; a second one ends the program."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, _frame: object) -> None:
        signal.signal(number, before[signal.Signals(number)])
        stop()

    for number in before:
        signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_totals(outcome: "RedriveTotals", folder: Path, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(outcome)
    else:
        print_line(f"redrive {outcome.plan_id}: {outcome.sent} of {outcome.planned} sent")
        for reason, count in sorted(outcome.left.items()):
            print_line(f"left {reason}: {count}")
    if outcome.parked:
        say(
            f"{outcome.parked} can't be sent and are kept; list them with `amqsidecar list --set "
            f"store.url=sqlite:///{folder.absolute()}/schedule.db`"
        )
    if outcome.stopped:
        say("stopped; the same command does the rest")
