"""Kill the owner of a token over STOMP on Artemis again and again while it acknowledges.

    PYTHONPATH=tests python -m chaos.token_kills --kills 300 --seed 0

Each owner is a process with a link and nothing else. It moves dead letters as fast as it can and
kills itself a few milliseconds after a commit; the next one starts at once. The broker traces how
it closes consumers: this slows down one of the two threads between which it loses messages
(`amqsidecar.brokers.stomp_artemis.token`), so that it loses one at about every twentieth kill.
"""

import argparse
import multiprocessing
import os
import random
import signal
import sys
from collections import Counter
from itertools import count
from multiprocessing.connection import Connection
from threading import Timer
from typing import NamedTuple
from uuid import uuid4

from amqsidecar.brokers.artemis.management import ManagementQuestion
from amqsidecar.engine.crash_points import ACCEPTING
from support.brokers.broker_xml import STOCK_ADDRESS_SETTINGS, attempts_without_limit
from support.brokers.real import ArtemisBroker
from support.links.cycles import resend
from support.links.stomp_artemis import StompArtemisHarness

SETTINGS = STOCK_ADDRESS_SETTINGS + attempts_without_limit("kills.DLQ")
TRACED = ("org.apache.activemq.artemis.core.server.impl.ServerConsumerImpl",)

_CYCLE_MAX = 5
_DEAD_LETTERS_MIN = 300
_DELAY_MAX_S = 0.01
_IDLE_MAX = 50
# Why so long: the broker may wait 10 s for the end of a connection, until it closes the consumers.
_TOKEN_TIMEOUT_S = 60.0
_PATIENCE_S = 120.0


class Tally(NamedTuple):
    """What the kills did.

    Attributes:
        kills: owners that were killed.
        stuck_tokens: how often the broker had to be restarted, because no owner got the token.
        stuck_guards: messages that the broker has lost in front of the token.
        stuck_dead_letters: dead letters that came only after a last restart of the broker.
        lost: messages that were put and did not arrive.
        doubled: messages that arrived more than once, counted once for each surplus copy.
    """

    kills: int
    stuck_tokens: int
    stuck_guards: int
    stuck_dead_letters: int
    lost: int
    doubled: int


class Death(NamedTuple):
    """When an owner kills itself.

    Attributes:
        cycle: in its how many-th cycle.
        delay_s: how long after the commit, while it acknowledges.
    """

    cycle: int
    delay_s: float


def own(harness: StompArtemisHarness, reports: Connection, seed: str, death: Death | None) -> None:
    """Take the token and move dead letters until death, or until no more come.

    Args:
        harness: tells the broker and the names.
        reports: gets whether the token came.
        seed: decides how many dead letters a cycle takes.
        death: None = it ends in good order.
    """
    chance = random.Random(seed)
    commits = count(1)

    def die(place: str) -> None:
        if place == ACCEPTING and death is not None and next(commits) == death.cycle:
            Timer(death.delay_s, os.kill, (os.getpid(), signal.SIGKILL)).start()

    link = harness.make_link(f"owner-{uuid4().hex}", crash_point=die).take(
        f"{harness.prefix}.token"
    )
    token = link.token.take(_TOKEN_TIMEOUT_S)
    reports.send(token is not None)
    if token is None:
        return
    link.attach([harness.intake()], 50)
    idle = 0
    while idle < _IDLE_MAX or death is not None:
        link.wait(0.02)
        deliveries = link.receive(chance.randint(1, _CYCLE_MAX))
        idle = 0 if deliveries else idle + 1
        token += 1
        link.commit_cycle(deliveries, [resend(one) for one in deliveries], token)
    link.close()


def run_owner(harness: StompArtemisHarness, seed: str, death: Death | None) -> bool:
    """Run an owner to its end; return whether it got the token."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=own, args=(harness, theirs, seed, death))
    process.start()
    theirs.close()
    got = ours.poll(_PATIENCE_S) and bool(ours.recv())
    process.join(_PATIENCE_S)
    if process.is_alive():
        process.kill()
        raise AssertionError("an owner neither ended nor died")
    expected = -signal.SIGKILL if got and death is not None else 0
    assert process.exitcode == expected, process.exitcode
    return got


def kill_owners(kills: int, seed: int) -> Tally:
    """Kill owners one after the other and count what became of token and messages."""
    broker = ArtemisBroker(address_settings=SETTINGS)
    broker.traced = TRACED
    with broker:
        return _kill_owners(StompArtemisHarness(broker, "kills"), kills, seed)


def _kill_owners(harness: StompArtemisHarness, kills: int, seed: int) -> Tally:
    prefix = harness.prefix
    chance = random.Random(seed)
    first = harness.make_link("first").take(f"{prefix}.token")
    first.token.create(0)
    first.close()
    put: list[str] = []
    killed = stuck_tokens = 0
    while killed < kills:
        if harness.depth(harness.dead_letter_queue) < _DEAD_LETTERS_MIN:
            put += harness.put_dead_letters(f"{prefix}.{killed}", _DEAD_LETTERS_MIN)
        death = Death(chance.randint(1, 3), chance.uniform(0, _DELAY_MAX_S))
        if run_owner(harness, f"{seed} {killed}", death):
            killed += 1
            continue
        stuck_tokens += 1
        print(f"after {killed} kills: the token is stuck", flush=True)
        restart(harness)
    run_owner(harness, str(seed), None)
    question = ManagementQuestion(f"queue.{prefix}.token", attribute="DeliveringCount")
    guards = int(harness.management.ask(question).value)
    stuck = harness.depth(harness.dead_letter_queue)
    if stuck:
        restart(harness)
        assert run_owner(harness, str(seed), None)
    origins = {one.rpartition("-")[0] for one in put}
    arrived = Counter(one.id for name in origins for one in harness.drain(name))
    harness.close()
    return Tally(
        kills,
        stuck_tokens,
        guards,
        stuck,
        lost=len(set(put) - arrived.keys()),
        doubled=sum(arrived.values()) - len(arrived),
    )


def restart(harness: StompArtemisHarness) -> None:
    """Restart the broker, which hands out everything that is stuck."""
    harness.close()
    harness.broker.restart()
    harness.connect()


def main(arguments: list[str]) -> int:
    """Run the command; the exit code is 1 if a token was stuck, or a message lost or doubled."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    tally = kill_owners(options.kills, options.seed)
    print(tally)
    return 1 if tally.stuck_tokens or tally.lost or tally.doubled else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
