"""Poison messages on two real brokers: watch them die, wait, come back; `make demo`.

Starts ActiveMQ Classic and Apache Artemis, JMS applications that fail on purpose, and one real
`amqsidecar run` for each broker. In the middle both sidecars are killed with `kill -9`. At the end
every message is counted by its id, as the applications saw it; the exit code is 1 when one is lost
or doubled. Everything listens on 127.0.0.1 only and is gone afterwards. With `--keep` (`make demo
KEEP=1`) it goes on until Ctrl-C, with a group of failures on each console for you to retry.
"""

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.panel import Panel
from stage import ALWAYS, Group, Stage
from view import FRAMES_PER_S, View, closing_table, with_view

from support.brokers import ArtemisBroker, ClassicBroker
from support.jms_process import PeerError, PeerProcess

HERE = Path(__file__).parent
# Bound: with start and end, the whole demo takes less than three minutes, whatever happens.
FINISH_WITHIN_S = 100.0
FAILED = 1
INTERRUPTED = 130
LEFT_MESSAGES = 25
TRY_IT = """\
{consoles}

25 payments died while their database was away, and would wait for an hour. It is back.
Three clicks: the group of [bold]demo.payments[/] on the first screen, [bold]Retry…[/],
[bold]Retry 25 messages[/]. Nothing happens before the last one. Ctrl-C ends everything."""
LOOK_NEXT = """\
[bold]What would happen to a message?[/] The rules of the demo, without a broker:
  .venv/bin/amqsidecar explain --destination queue://demo.orders \\
    --redelivery-count 1 --set policy.source=deploy/demo/artemis.yaml
[bold]The console, with something to retry[/]
  make demo KEEP=1
[bold]A first redelivery on your own broker, in five minutes[/]
  README.md
[bold]Why nothing is lost or doubled[/]
  sidecar/README.md
[bold]More kills: 2,000 messages, every point of the cycle[/]
  make brokers && .venv/bin/pytest tests/end_to_end/test_kills.py"""


@dataclass(frozen=True)
class Script:
    """How long the demo is.

    Attributes:
        many, few: messages per queue.
        spread_s: over how many seconds they are sent.
        kill_after_s: from the first message on.
        dead_s: how long the sidecars stay dead.
    """

    many: int
    few: int
    spread_s: float
    kill_after_s: float
    dead_s: float

    def groups(self) -> Sequence[Group]:
        """Return who fails how."""
        return (
            Group("demo.orders", 2, "fails twice, then works", self.many),
            Group("demo.mail", 1, "fails once, then works", self.many),
            Group("demo.poison", ALWAYS, "fails always", self.few),
            Group("demo.noise", ALWAYS, "fails, a rule drops it", self.few),
        )


FULL = Script(many=34, few=17, spread_s=14, kill_after_s=11, dead_s=4)
QUICK = Script(many=8, few=4, spread_s=2, kill_after_s=1.5, dead_s=1)


class Cut(Exception):
    """Somebody wants the demo to end now."""


class Show:
    """What happens, in order, in a thread of its own; the view looks on."""

    def __init__(self, stages: Sequence[Stage], script: Script, *, keeps: bool) -> None:
        self.stages = stages
        self.keeps = keeps
        self.caption = "Starting ActiveMQ Classic and Apache Artemis"
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
        """Wait a moment; say whether there is more to see. Raises what went wrong."""
        is_over = self._is_over.wait(wait_s)
        if self._failure is not None:
            raise self._failure
        return not is_over

    def stay(self) -> None:
        """Wait until something breaks, or the process is told to end."""
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
            with ExitStack() as stack, ThreadPoolExecutor(2 * len(self.stages)) as pool:
                self._perform(stack, pool)
        except BaseException as failure:  # noqa: BLE001 - told to the main thread
            if not self._cut.is_set():
                self._failure = failure
        finally:
            self._is_over.set()
            self._ended.set()

    def _perform(self, stack: ExitStack, pool: ThreadPoolExecutor) -> None:
        def both(act: Callable[[Stage], object]) -> None:
            if self._cut.is_set():
                raise Cut
            list(pool.map(act, self.stages))

        script = self._script
        both(lambda stage: stack.enter_context(stage.open()))
        self.caption = "Starting one sidecar for each broker: amqsidecar run"
        both(Stage.start_sidecar)
        self.caption = "Applications send messages, and consumers fail with them"
        sending = [pool.submit(stage.produce, script.spread_s) for stage in self.stages]
        self._wait(script.kill_after_s)
        self.caption = "kill -9: both sidecars are dead. What waited, waits; what dies, piles up"
        both(Stage.kill_sidecar)
        self._wait(script.dead_s)
        self.caption = "Starting them again: the token in the broker tells what was committed"
        both(Stage.start_sidecar)
        self.caption = "They go on where they were, the late ones first: nothing is lost"
        for one in sending:
            one.result()
        both(lambda stage: stage.finish(FINISH_WITHIN_S))
        self.caption = "Every message has come to its end"
        if self.keeps:
            both(lambda stage: stage.leave_a_group(LEFT_MESSAGES))
            self._is_over.set()
            self._cut.wait()

    def _wait(self, seconds: float) -> None:
        if self._cut.wait(seconds):
            raise Cut


def make_stages(folder: Path, script: Script, process: PeerProcess) -> Sequence[Stage]:
    """Return one stage for each broker; nothing is started yet."""
    classic, artemis = ClassicBroker(), ArtemisBroker()
    return (
        Stage(
            title=f"Classic {classic.version}",
            broker=classic,
            broker_url=classic.openwire_url,
            provider="openwire",
            how="rollback",
            policy=HERE / "classic.activemq.xml",
            dead_letter_queue="ActiveMQ.DLQ",
            groups=script.groups(),
            folder=folder / "classic",
            process=process,
        ),
        Stage(
            title=f"Artemis {artemis.version}",
            broker=artemis,
            broker_url=artemis.amqp_url,
            provider="qpid",
            # Why: a rollback of qpid-jms drains its link, and was seen to wait a minute for that.
            how="reject",
            policy=HERE / "artemis.yaml",
            dead_letter_queue="DLQ",
            groups=script.groups(),
            folder=folder / "artemis",
            process=process,
        ),
    )


def watch(show: Show, view: View) -> None:
    """Show how it goes until it has ended."""
    began_s = time.monotonic()
    show.begin()
    is_going = True
    while is_going:
        is_going = show.goes_on(1 / FRAMES_PER_S)
        snapshots = [stage.snapshot() for stage in show.stages]
        view.show(show.caption, snapshots, time.monotonic() - began_s)


def close_with(console: Console, show: Show, invitation: str) -> int:
    """Print how it ended and where to look next; return the exit code, if need be much later."""
    stages = show.stages
    results = {stage.title: (stage.result(), stage.deaths) for stage in stages}
    redelivery_id = stages[0].schedule.survivor()
    if redelivery_id is not None:
        console.print(f"\n[bold]One of them:[/] amqsidecar show {redelivery_id}\n")
        told = stages[0].sidecar.run_command("show", redelivery_id)
        console.print(told, markup=False, highlight=False, no_wrap=True, overflow="ellipsis")
    console.print(closing_table(results))
    console.print()
    console.print(Panel(LOOK_NEXT, title="Where to look next", border_style="grey50"))
    if show.keeps:
        console.print(invitation, highlight=False, soft_wrap=True)
        show.stay()
    return 0 if all(result.is_clean for result, _ in results.values()) else FAILED


def interrupt(_number: int, _frame: FrameType | None) -> None:
    """Treat SIGTERM like Ctrl-C."""
    raise KeyboardInterrupt


def main(arguments: Sequence[str]) -> int:
    """Run the demo; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer messages, half the time")
    parser.add_argument("--keep", action="store_true", help="go on afterwards, until Ctrl-C")
    options = parser.parse_args(arguments)
    script = QUICK if options.quick else FULL
    console = Console()
    signal.signal(signal.SIGTERM, interrupt)
    with (
        tempfile.TemporaryDirectory(prefix="amqsidecar-demo-") as folder,
        closing(PeerProcess()) as process,
    ):
        stages = make_stages(Path(folder), script, process)
        show = Show(stages, script, keeps=options.keep)
        consoles = "\n".join(f"Console of {one.title}: {one.console}" for one in stages)
        console.print(f"{consoles}\n", highlight=False, soft_wrap=True)
        try:
            with_view(console, lambda view: watch(show, view))
            return close_with(console, show, TRY_IT.format(consoles=consoles))
        except KeyboardInterrupt:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            console.print("\nInterrupted; ending brokers, applications and sidecars.")
            with suppress(PeerError):
                process.kill()
            return INTERRUPTED
        except Exception as failure:  # noqa: BLE001 - whatever it is, it is told and ends the demo
            console.print(f"\nThe demo failed: {failure}", markup=False, soft_wrap=True)
            return FAILED
        finally:
            show.end()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
