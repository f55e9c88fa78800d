"""A newcomer's way through the README on a stock broker: each command as it is printed.

    PYTHONPATH=tests python -m support.machine.sealed env \
        python -m field.readme classic 6.3.1 FOLDER

In a network of its own, where the brokers' usual ports are free. Prints what it does, with seconds.
`FOLDER` holds `wheels` (all that pip may install), perhaps a `venv`, and gets everything else.
Commands behind it are left out.
"""

import json
import os
import re
import shlex
import subprocess
import sys
import time
import venv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from field.stock import ARTEMIS_PORTS, CLASSIC_PORTS, StockArtemis, StockClassic
from support.brokers.real import Broker
from support.jms.peer import JmsPeer
from support.machine.processes import run_program
from support.sidecar.terminal import Hidden, Question, answered
from support.waiting import eventually

ROOT = Path(__file__).parents[2]
BEGAN_S = time.monotonic()
REDELIVERED = "the first redelivery has come to the consumer"
HEADINGS = {"classic": "**Classic**", "artemis": "**Artemis**"}
OWN = "## Your own broker"
# What a newcomer types on a terminal: Enter takes the default, `n` tries redeliveries at once.
ANSWERS = (
    (Question("starting policy)"), ""),
    (Question("only show dead letters"), "n"),
    (Question("messages are kept"), ""),
    (Hidden("Password of"), "admin"),
)


def blocks() -> list[tuple[str, list[str]]]:
    """Return the commands of each block of the README, with the text before it."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    pieces = re.split(r"^```\n(.*?)^```\n", text, flags=re.DOTALL | re.MULTILINE)
    return [
        (before, block.strip().splitlines())
        for before, block in zip(pieces[::2], pieces[1::2], strict=False)
        if re.match(r"(pip|amqsidecar) ", block)
    ]


def commands_of(kind: str) -> list[str]:
    """Return what a newcomer with this broker runs, in order; the demo is on Artemis."""
    other = next(heading for name, heading in HEADINGS.items() if name != kind)
    own = False
    found = []
    for before, block in blocks():
        own = own or OWN in before
        if (own or kind == "artemis") and not before.rstrip().rpartition("\n")[2].startswith(other):
            found += block
    return found


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN_S:6.1f} s  {text}", flush=True)


class Newcomer:
    """Somebody at a terminal, in an empty folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "work"
        self.folder.mkdir()
        if not (folder / "venv").exists():
            venv.create(folder / "venv", with_pip=True)
        self.environment = {
            **{
                name: os.environ[name]
                for name in ("HOME", "LANG", "XDG_CACHE_HOME")
                if name in os.environ
            },
            "PATH": f"{folder / 'venv' / 'bin'}:{os.environ['PATH']}",
            "COLUMNS": "120",
            # The index of this network.
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(folder / "wheels"),
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            # Why: what is run is compiled then. 0 = not, since pip takes it for that of --compile.
            "PIP_NO_COMPILE": "0",
        }

    def run(self, command: str) -> str:
        """Run a command as it is printed; return its output."""
        say(f"$ {command}")
        # `pip install .` is said in a checkout, the rest in a folder of one's own.
        folder = ROOT if command.startswith("pip ") else self.folder
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout if not command.startswith("pip ") else "", end="")
        assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def answer(self, command: str) -> None:
        """Run a command that asks, on a terminal."""
        say(f"$ {command}")
        code, shown = answered(
            ["bash", "-c", command], ANSWERS, folder=self.folder, environment=self.environment
        )
        print(shown, end="")
        assert code == 0, f"{command}: exit code {code}"

    def delay_redeliveries(self) -> None:
        """Make the first delay of the starting policy longer than all commands take.

        Why: with its five seconds, a slow machine sends the message between `release` and `retry`.
        """
        policy = self.folder / "policy.yaml"
        policy.write_text(policy.read_text().replace("delay_ms: 5000", "delay_ms: 300000"))

    @contextmanager
    def running(self, command: str) -> Iterator[None]:
        """Run a service until the block ends."""
        say(f"$ {command}   (goes on)")
        with (self.folder / "run.log").open("wb") as log:
            process = subprocess.Popen(
                shlex.split(command),
                cwd=self.folder,
                env=self.environment,
                executable=str(self.folder.parent / "venv" / "bin" / "amqsidecar"),
                stdout=log,
                stderr=log,
            )
        try:
            yield
            process.terminate()
            assert process.wait(30) == 0, (self.folder / "run.log").read_text()
        finally:
            process.kill()
            process.wait()


def stock(kind: str, version: str) -> Broker:
    """Return a stock broker on its usual ports."""
    if kind == "classic":
        classic = StockClassic(version)
        assert classic.version == version
        classic._ports = dict(CLASSIC_PORTS)
        return classic
    artemis = StockArtemis("--require-login")
    assert artemis.version == version
    artemis._ports = dict(ARTEMIS_PORTS)
    return artemis


def main(arguments: Sequence[str]) -> int:
    kind, version, folder = arguments[0], arguments[1], Path(arguments[2])
    commands = commands_of(kind)
    watched = commands[commands.index("amqsidecar run") + 1 :]
    assert len(watched) == 8, watched
    with stock(kind, version) as broker:
        say(f"a stock {broker.kind} {broker.version} runs")
        newcomer = Newcomer(folder)
        for command in commands[: commands.index("amqsidecar run")]:
            if command in arguments[3:]:
                continue
            (newcomer.answer if " init " in command else newcomer.run)(command)
        newcomer.delay_redeliveries()
        peer = JmsPeer.of(broker, "openwire" if kind == "classic" else "core")
        with newcomer.running("amqsidecar run"):
            eventually(is_ready, what="the sidecar is ready", every_s=0.5)
            consumer = peer.start_flaky_consumer("orders", failures=-1)
            peer.fill("orders", 1)
            say("a message was sent to orders, and its consumer fails")
            identity = eventually(lambda: waiting(newcomer), what="it waits", every_s=0.1)
            for command in watched:
                newcomer.run(re.sub(r"\bID\b", identity, command))
            consumer.wait_for(lambda events: len({one.delivery for one in events}) > 1)
            say(REDELIVERED)
            consumer.stop()
    return 0


def is_ready() -> bool:
    done = subprocess.run(
        ["curl", "--silent", "--fail", "localhost:9464/readyz"], capture_output=True, check=False
    )
    return done.returncode == 0


def waiting(newcomer: Newcomer) -> str | None:
    """Return the id of the message that waits."""
    program = str(newcomer.folder.parent / "venv" / "bin" / "amqsidecar")
    listed = run_program(
        [program, "list", "--output", "json"], cwd=newcomer.folder, env=newcomer.environment, code=0
    )
    rows = json.loads(listed.stdout)["rows"]
    return rows[0]["redelivery_id"] if rows else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
