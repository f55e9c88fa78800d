"""The story of the demo: messages die, wait and come back, and the sidecar is killed meanwhile.

At the end every message is counted by its id, as the consumers saw it. Everything listens on
127.0.0.1 only and is gone afterwards.
"""

import signal
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import FrameType
from typing import Final

from rich.console import Console
from rich.panel import Panel

from amqsidecar.demo.applications import ALWAYS
from amqsidecar.demo.stage import Batch, Stage
from amqsidecar.demo.view import FRAMES_PER_S, View, closing_table, with_view

# Bound: with start and end, the whole demo takes less than three minutes, whatever happens.
FINISH_WITHIN_S: Final = 100.0
FAILED: Final = 1
INTERRUPTED: Final = 130
LEFT_MESSAGES: Final = 25
TRY_IT: Final = """\
{console}

25 payments died while their database was away, and would wait for an hour. The database is back.
Three clicks: the group of [bold]demo.payments[/] on the first screen, [bold]Retry…[/],
[bold]Retry 25 messages[/]. Nothing happens before the last one. Ctrl-C ends everything."""
LOOK_NEXT: Final = """\
[bold]The console, with something to retry[/]
  amqsidecar demo --keep
[bold]A first redelivery on your own broker[/]
  amqsidecar init
[bold]What would happen to a message?[/] Your rules, without a broker:
  amqsidecar explain --set policy.source=broker.xml --address orders
  amqsidecar explain --set policy.source=activemq.xml --destination queue://orders"""


@dataclass(frozen=True)
class Script:
    """How long the demo is."""

    many: int
    few: int
    spread_s: float
    kill_after_s: float
    dead_s: float

    def groups(self) -> Sequence[Batch]:
        """Return which messages fail how often."""
        return (
            Batch("demo.orders", 2, "fails twice, then works", self.many),
            Batch("demo.mail", 1, "fails once, then works", self.many),
            Batch("demo.poison", ALWAYS, "fails always", self.few),
            Batch("demo.noise", ALWAYS, "fails, a rule drops it", self.few),
        )


FULL: Final = Script(many=34, few=17, spread_s=12, kill_after_s=10, dead_s=4)
QUICK: Final = Script(many=8, few=4, spread_s=2, kill_after_s=1.5, dead_s=1)


class Cut(Exception):
    """The demo has to end now."""


class DemoStory:
    """The steps of the demo, in a thread of its own beside the view."""

    def __init__(self, stage: Stage, script: Script, *, keeps: bool) -> None:
        self.stage = stage
        self.keeps = keeps
        self.caption = f"Starting the broker: {stage.title}"
        self._script = script
        self._cut = threading.Event()
        self._failure: BaseException | None = None
        # Why not Thread.join: interrupted by Ctrl-C, it takes a running thread for ended.
        self._ended = threading.Event()
        self._is_over = threading.Event()
        self._has_begun = False

    def begin(self) -> None:
        """Start it."""
        self._has_begun = True
        threading.Thread(target=self._run, name="show", daemon=True).start()

    def goes_on(self, wait_s: float) -> bool:
        """Wait a moment; return whether the show goes on. Raises its failure."""
        is_over = self._is_over.wait(wait_s)
        if self._failure is not None:
            raise self._failure
        return not is_over

    def stay(self) -> None:
        """Wait until something breaks, or a signal ends the process."""
        self._ended.wait()
        if self._failure is not None:
            raise self._failure

    def end(self) -> None:
        """Make it end soon, and wait for it."""
        self._cut.set()
        if self._has_begun:
            self._ended.wait(60)

    def _run(self) -> None:
        try:
            with self.stage.open(), ThreadPoolExecutor(1) as pool:
                self._perform(pool)
        except BaseException as failure:  # noqa: BLE001 - told to the main thread
            if not self._cut.is_set():
                self._failure = failure
        finally:
            self._is_over.set()
            self._ended.set()

    def _perform(self, pool: ThreadPoolExecutor) -> None:
        script, stage = self._script, self.stage
        self._begin("Starting the sidecar: amqsidecar run")
        stage.start_sidecar()
        self._begin("Applications send messages, and consumers fail with them")
        sending = pool.submit(stage.produce, script.spread_s)
        self._cut.wait(script.kill_after_s)
        self._begin("kill -9: the sidecar is dead. Waiting messages wait; new dead letters pile up")
        stage.kill_sidecar()
        self._cut.wait(script.dead_s)
        self._begin("Restarting it: the token in the broker proves which cycle was committed")
        stage.start_sidecar()
        self._begin("It continues where it stopped, late messages first: nothing is lost")
        sending.result()
        stage.finish(FINISH_WITHIN_S)
        self._begin("Every message has reached its end")
        if self.keeps:
            stage.leave_a_group(LEFT_MESSAGES)
            self._is_over.set()
            self._cut.wait()

    def _begin(self, caption: str) -> None:
        if self._cut.is_set():
            raise Cut
        self.caption = caption


def watch(show: DemoStory, view: View) -> None:
    """Show how it goes until it has ended."""
    began_s = time.monotonic()
    show.begin()
    is_going = True
    while is_going:
        is_going = show.goes_on(1 / FRAMES_PER_S)
        view(show.caption, show.stage.snapshot(), time.monotonic() - began_s)


def close_with(console: Console, show: DemoStory) -> int:
    """Print how it ended and where to look next; return the exit code, if need be much later."""
    stage, result = show.stage, show.stage.result()
    redelivery_id = stage.schedule.survivor()
    if redelivery_id is not None:
        console.print(f"\n[bold]One of them:[/] amqsidecar show {redelivery_id}\n")
        told = stage.sidecar.told("show", redelivery_id)
        console.print(told, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")
    console.print(closing_table(stage.title, result, stage.deaths))
    console.print()
    console.print(Panel(LOOK_NEXT, title="Where to look next", border_style="grey50"))
    if show.keeps:
        console.print(TRY_IT.format(console=stage.console_line), highlight=False, soft_wrap=True)
        show.stay()
    return 0 if result.is_clean else FAILED


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM like Ctrl-C."""
    raise KeyboardInterrupt


def perform(console: Console, stage: Stage, script: Script, *, keeps: bool) -> int:
    """Play the story and print how it ended; return the exit code.

    Returns:
        0 = nothing was lost or doubled; `FAILED`, or `INTERRUPTED`.
    """
    signal.signal(signal.SIGTERM, interrupt)
    show = DemoStory(stage, script, keeps=keeps)
    console.print(f"{stage.console_line}\n", highlight=False, soft_wrap=True)
    try:
        with_view(console, lambda view: watch(show, view))
        return close_with(console, show)
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        console.print("\nInterrupted; ending the broker, its applications and the sidecar.")
        return INTERRUPTED
    except Exception as failure:  # noqa: BLE001 - whatever it is, it is printed and ends the demo
        console.print(f"\nThe demo failed: {failure}", markup=False, soft_wrap=True)
        return FAILED
    finally:
        show.end()
