"""Keeps a link reading the dead-letter queues that are to be read.

If a queue that the operator named can't be read at the start, the process ends. A found queue that
can't be read is left out, reported once, and tried again at each look.
"""

import re
from collections.abc import Callable, Mapping, Sequence

import structlog

from amqsidecar.broker import IntakeQueue, IntakeSession, LookSession
from amqsidecar.engine.intake import IntakeNames
from amqsidecar.errors import BrokerRefused, DiscoveryRefused, QueueRefused
from amqsidecar.model.left_behind import REFUSED, LeftBehind
from amqsidecar.runtime.mode import LiveMode

MENDS_REFUSAL = (
    "skipped for now; the others are read, and each discovery tries it again: give the sidecar's "
    "user the right to read it (deploy/guides/broker-side.md), or fix the queue"
)
NONE_KNOWN = (
    "no dead-letter queue of the broker is known, so nothing is taken yet; discovery continues, "
    "or name the queues in intake.queues"
)
MANUAL = "dead letters stay in their queues, by redelivery.mode or redelivery.manual"
ALL_REFUSED = (
    "no dead-letter queue can be read, so nothing is taken; waiting messages are still sent"
)

_COUNT_MAX = 1_000_000_000
# Bound: where many queues come one after the other, each is a line with all before it.
_LOGGED_MAX = 100
# Why: the broker's words may hold a number of a connection or consumer, new with each refusal.
_CHANGING = re.compile(r"[0-9a-f-]{12,}|\d+")

log = structlog.get_logger("amqsidecar.service")

FindIntake = Callable[[LookSession], Sequence[IntakeQueue]]
"""Finds the dead-letter queues to read; called again and again; may raise `DiscoveryRefused`."""

ReportIntake = Callable[[int, Mapping[str, str], str], None]
"""Takes the number of queues read, the refused queues with the broker's words, and the problem."""


class IntakeKeeper:
    """The read and unread dead-letter queues, over all links of a process.

    Args:
        named: the operator's; if empty, the found queues.
        find: finds further queues.
        report_health: see `ReportIntake`.
        mode: which queues are left to a person; `finals` are always read.
    """

    def __init__(
        self,
        named: Sequence[IntakeQueue],
        find: FindIntake,
        report_health: ReportIntake,
        mode: LiveMode,
    ) -> None:
        self._mode = mode
        self._named = tuple(named)
        self._find = find
        self._report_health = report_health
        self._has_looked = self._stays = False
        self._found: tuple[IntakeQueue, ...] = ()
        self._told_queues: list[str] | None = None
        self._told_refused: dict[str, str] = {}
        self._told_problem = ""

    def look(
        self,
        link: IntakeSession,
        names: IntakeNames,
        prefetch: int,
        finals: Sequence[IntakeQueue] = (),
    ) -> tuple[LeftBehind, ...]:
        """Find queues, make the link read them, and return the messages that it leaves, and why.

        Args:
            names: learns the dead-letter queues that are read.
            prefetch: see `IntakeSession.attach`.
            finals: final dead-letter queues that are read besides.

        Raises:
            QueueRefused: a named queue can't be read, and this is the first look.
            LinkLost: the connection is gone.
        """
        problem = ""
        try:
            wanted = self._named or tuple(self._find(link))
        except DiscoveryRefused as refused:
            wanted = self._found
            so = "only those found before are read" if wanted else "nothing is taken"
            problem = (
                f"which dead-letter queues there are can't be asked, so {so}: {refused}"
                "; or name them in intake.queues. Waiting messages are still sent"
            )
        self._found = wanted
        # Why all: a queue that is refused now may be read later.
        if wanted != names.queues:
            names.replace(wanted)
        stays_before, self._stays = self._stays, False
        if wanted:
            try:
                wanted = self._mode.now.automatic(link, wanted)
                self._stays = not wanted
            except (DiscoveryRefused, QueueRefused) as refused:
                if not self._has_looked:
                    raise
                wanted, problem = (), str(refused)
        if self._stays and not stays_before:
            log.info("intake_manual", meaning=MANUAL)
        # Why once only: a queue left out meanwhile would be read from its front again.
        if not (finals and self._has_looked):
            refused_queues = self._attach(link, list(wanted), prefetch)
            self._has_looked = True
        if finals:
            refused_queues = self._attach(link, [*wanted, *finals], prefetch)
        left_behind = tuple(
            LeftBehind(one.destination, REFUSED, _count(link, one), words, at_least=True)
            for one, words in refused_queues.items()
        )
        left_behind += link.left_behind()
        read = [one.destination.name for one in wanted if one not in refused_queues]
        all_refused = {one.queue.name: one.meaning for one in left_behind if one.reason == REFUSED}
        if self._stays:
            problem = ""
        elif not read and not problem:
            problem = ALL_REFUSED if all_refused else NONE_KNOWN
        self._report(read, all_refused, problem)
        return left_behind

    def _attach(
        self, link: IntakeSession, wanted: list[IntakeQueue], prefetch: int
    ) -> dict[IntakeQueue, str]:
        """Make the link read all that it can, and return the others with the broker's words."""
        refused: dict[IntakeQueue, str] = {}
        while True:
            try:
                link.attach(wanted, prefetch)
            except QueueRefused as words:
                said = {words.queue: str(words), **words.others}
                found = {
                    one: said[name] for one in wanted if (name := one.destination.name) in said
                }
                if not found or (self._named and not self._has_looked):
                    raise
                refused |= found
                wanted = [one for one in wanted if one not in found]
            else:
                return refused

    def _report(self, read: list[str], refused: dict[str, str], problem: str) -> None:
        is_harmless = bool(read) or problem == NONE_KNOWN
        self._report_health(len(read), refused, "" if is_harmless else problem)
        if read and read != self._told_queues:
            log.info("intake", count=len(read), queues=read[:_LOGGED_MAX])
        self._told_queues = read
        for name, words in refused.items():
            if lasting_words(words) != lasting_words(self._told_refused.get(name, "")):
                log.warning("intake_queue_refused", queue=name, reason=words, meaning=MENDS_REFUSAL)
        for name in self._told_refused.keys() - refused.keys():
            if name in read:
                log.info("intake_queue_read_again", queue=name)
        self._told_refused = refused
        if problem and lasting_words(problem) != lasting_words(self._told_problem):
            log.warning("intake_limited" if read else "intake_empty", meaning=problem)
        self._told_problem = problem


def _count(link: IntakeSession, queue: IntakeQueue) -> int:
    try:
        return link.count(queue, _COUNT_MAX)
    except BrokerRefused:
        return 0


def lasting_words(words: str) -> str:
    """Return words of a broker without what changes from one refusal to the next."""
    return _CHANGING.sub("#", words)
