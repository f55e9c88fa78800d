"""Worlds in which messages fail for a reason that a forecast does not know.

Written apart from the code under test: it imports nothing of `amqsidecar`. A process decides which
re-sends succeed; a policy, here just its delays, acts in the world. Another policy meets the same
messages, repairs and outages, and chances of its own: what it comes to is the truth that a forecast
is held against.
"""

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

SECOND: Final = 1_000.0
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
SPAN_MS: Final = 24 * HOUR
"""In which messages die for the first time."""
UNTIL_MS: Final = 72 * HOUR
"""The end of the observation."""


class Policy(NamedTuple):
    """Delays by the formula of both brokers: the first one, times `multiplier`, up to a longest."""

    first_ms: float
    multiplier: float
    longest_ms: float
    resends: int

    def delays(self) -> list[float]:
        return [
            min(self.first_ms * self.multiplier**number, self.longest_ms)
            for number in range(self.resends)
        ]


LOGGED: Final = Policy(30 * SECOND, 2, HOUR, 6)
"""The policy of the history: 30 s to 16 min, 32 min in all."""
CANDIDATES: Final[Mapping[str, Policy]] = {
    "quick": Policy(5 * SECOND, 1.5, MINUTE, 6),
    "fewer": Policy(20 * SECOND, 3, HOUR, 3),
    "steady": Policy(2 * MINUTE, 1, HOUR, 6),
    "slow": Policy(10 * MINUTE, 1, HOUR, 3),
    "patient": Policy(5 * MINUTE, 3, 6 * HOUR, 5),
}
"""`patient` goes on for ten hours, beyond what the history has tried."""


@dataclass(frozen=True)
class Lives:
    """What a policy did in a world: one row per message, one column per re-send.

    Attributes:
        died_ms: first deaths.
        sent_ms: re-sends; infinity = none.
        back_ms: the deaths after them; infinity = none.
        late_ms: how much later than the policy says each went.
    """

    died_ms: Numbers
    sent_ms: Numbers
    back_ms: Numbers
    late_ms: Numbers

    @property
    def has_recovered(self) -> Mask:
        has_failed = np.isfinite(self.back_ms)
        return np.asarray((np.isfinite(self.sent_ms) & ~has_failed).any(axis=1))

    @property
    def share(self) -> float:
        return float(self.has_recovered.mean())

    @property
    def resends(self) -> int:
        return int(np.isfinite(self.sent_ms).sum())


class Try(NamedTuple):
    """Re-sends of some messages, one each.

    Attributes:
        message: their numbers.
        at_ms: when they are sent.
        since_ms: since the first death.
        waited_ms: since the death before.
        number: how many re-sends the message had before.
        luck: between 0 and 1, its own for each re-send.
    """

    message: npt.NDArray[np.int64]
    at_ms: Numbers
    since_ms: Numbers
    waited_ms: Numbers
    number: int
    luck: Numbers


class World(NamedTuple):
    """First deaths, and which re-sends succeed."""

    died_ms: Numbers
    succeed: Callable[[Try], Mask]


Process = Callable[[np.random.Generator, int], World]


def evenly(chance: np.random.Generator, count: int) -> Numbers:
    return np.sort(chance.uniform(0, SPAN_MS, count)).round()


def exponential(chance: np.random.Generator, count: int) -> World:
    """Each message's trouble is over after a time of its own; 5 % are poison."""
    repaired = chance.exponential(chance.uniform(3, 12) * MINUTE, count)
    repaired[chance.random(count) < 0.05] = np.inf
    return World(evenly(chance, count), lambda t: t.since_ms >= repaired[t.message])


def heavy(chance: np.random.Generator, count: int) -> World:
    """As above, but most within a minute and some after hours."""
    repaired = np.exp(chance.normal(np.log(chance.uniform(1, 6) * MINUTE), 1.5, count))
    return World(evenly(chance, count), lambda t: t.since_ms >= repaired[t.message])


def poison(chance: np.random.Generator, count: int) -> World:
    """Some never succeed, the others nearly at once."""
    is_poison = chance.random(count) < chance.uniform(0.3, 0.7)
    return World(evenly(chance, count), lambda t: ~is_poison[t.message] & (t.luck < 0.95))


def by_chance(chance: np.random.Generator, count: int) -> World:
    """Each attempt succeeds by the same chance: deadlocks, optimistic locks."""
    p = chance.uniform(0.3, 0.6)
    return World(evenly(chance, count), lambda t: t.luck < p)


def by_uneven_chance(chance: np.random.Generator, count: int) -> World:
    """Each message has a chance of its own, which stays."""
    p = chance.beta(1.5, 2.0, count)
    return World(evenly(chance, count), lambda t: t.luck < p[t.message])


def mixture(chance: np.random.Generator, count: int) -> World:
    """Half fail by chance, the others until they are repaired; they die of the same."""
    p = chance.uniform(0.35, 0.6)
    is_chance = chance.random(count) < 0.5
    repaired = chance.exponential(chance.uniform(8, 25) * MINUTE, count)
    return World(
        evenly(chance, count),
        lambda t: np.where(is_chance[t.message], t.luck < p, t.since_ms >= repaired[t.message]),
    )


def outage(chance: np.random.Generator, count: int) -> World:
    """The destination is out of order for a time; what comes then dies. 3 % are poison."""
    begins, ends = _outages(chance, 3 * HOUR, chance.uniform(8, 20) * MINUTE)
    is_poison = chance.random(count) < 0.03
    died = _within(chance, begins, ends, count)
    return World(died, lambda t: ~is_poison[t.message] & ~_are_in(begins, ends, t.at_ms))


def outage_and_chance(chance: np.random.Generator, count: int) -> World:
    """Outages, and between them each attempt succeeds by chance only."""
    begins, ends = _outages(chance, 4 * HOUR, chance.uniform(6, 15) * MINUTE)
    p = chance.uniform(0.5, 0.8)
    died = _within(chance, begins, ends, count // 2)
    died = np.sort(np.concatenate([died, evenly(chance, count - len(died))]))
    return World(died, lambda t: (t.luck < p) & ~_are_in(begins, ends, t.at_ms))


def cooling(chance: np.random.Generator, count: int) -> World:
    """Success depends on the time since the last attempt: a lock that each attempt takes again."""
    held = chance.uniform(2, 6) * MINUTE
    return World(evenly(chance, count), lambda t: t.luck < 1 - np.exp(-t.waited_ms / held))


def load(chance: np.random.Generator, count: int) -> World:
    """More deliveries at once than the consumer bears; `run` counts them, here is only when."""
    bursts = np.sort(chance.uniform(0, SPAN_MS, 25))
    sizes = chance.dirichlet(np.full(25, 1.5))
    which = chance.choice(25, count, p=sizes)
    died = np.sort(bursts[which] + chance.exponential(5 * MINUTE, count)).round()
    return World(died, lambda t: np.zeros(len(t.message), dtype=bool))


PROCESSES: Final[Mapping[str, Process]] = {
    one.__name__: one
    for one in (
        *(exponential, heavy, poison, by_chance, by_uneven_chance),
        *(mixture, outage, outage_and_chance, cooling, load),
    )
}


def run(process: str, seed: int, count: int, policy: Policy, run_number: int) -> Lives:
    """Let a policy act on the messages of a world.

    Args:
        process: a name in `PROCESSES`; it and the seed make the world.
        seed: as above.
        count: how many messages die.
        policy: what acts.
        run_number: another one has other chances in the same world; 0 = the history.
    """
    world = PROCESSES[process](_generator(process, seed), count)
    chance = _generator(process, seed, 1 + run_number)
    late = chance.uniform(0, 500, (count, policy.resends)).round()
    died_after = (2_000 * (0.5 + chance.random((count, policy.resends)))).round()
    luck = chance.random((count, policy.resends))
    if process == "load":
        bears = _generator(process, seed, 0).uniform(25, 60)
        return _run_by_load(world.died_ms, policy, late, died_after, luck, bears)
    sent, back = (np.full((count, policy.resends), np.inf) for _ in range(2))
    died = world.died_ms.copy()
    for number, delay_ms in enumerate(policy.delays()):
        at = died + delay_ms + late[:, number]
        rows = np.flatnonzero(at < UNTIL_MS)
        sent[rows, number] = at[rows]
        since, waited = (at - world.died_ms)[rows], (at - died)[rows]
        is_back = ~world.succeed(Try(rows, at[rows], since, waited, number, luck[rows, number]))
        back[rows[is_back], number] = (at + died_after[:, number])[rows[is_back]]
        died = np.where(np.isfinite(back[:, number]), back[:, number], 2 * UNTIL_MS)
    return Lives(world.died_ms, sent, back, late)


def _run_by_load(
    first: Numbers, policy: Policy, late: Numbers, died_after: Numbers, luck: Numbers, bears: float
) -> Lives:
    """A delivery fails the likelier, the more there were in the 30 s before it."""
    delays = policy.delays()
    sent, back = (np.full(late.shape, np.inf) for _ in range(2))
    waiting = [(at, row, -1) for row, at in enumerate(first.tolist())]
    heapq.heapify(waiting)
    recent: list[float] = []
    begin = 0
    while waiting:
        at, row, number = heapq.heappop(waiting)
        while begin < len(recent) and recent[begin] < at - 30 * SECOND:
            begin += 1
        count = len(recent) - begin
        recent.append(at)
        if number >= 0:
            sent[row, number] = at
            if luck[row, number] < 1 / (1 + (count / bears) ** 2):
                continue
            back[row, number] = at + died_after[row, number]
            at = back[row, number]
        if number + 1 < len(delays):
            following = at + delays[number + 1] + late[row, number + 1]
            if following < UNTIL_MS:
                heapq.heappush(waiting, (following, row, number + 1))
    return Lives(first, sent, back, late)


def _generator(process: str, seed: int, *more: int) -> np.random.Generator:
    return np.random.default_rng([seed, *process.encode(), *more])


def _outages(chance: np.random.Generator, up_ms: float, down_ms: float) -> tuple[Numbers, Numbers]:
    """Return begins and ends, over the whole observation; lengths vary by 0.6 in the logarithm."""
    count = int(2 * UNTIL_MS / up_ms) + 10
    up = chance.exponential(up_ms, count)
    down = down_ms * np.exp(chance.normal(0, 0.6, count))
    begins = np.cumsum(up) + np.concatenate([[0.0], np.cumsum(down)[:-1]])
    return begins, begins + down


def _within(chance: np.random.Generator, begins: Numbers, ends: Numbers, count: int) -> Numbers:
    """Return times within the outages of the span, evenly."""
    begins, ends = begins[begins < SPAN_MS], ends[begins < SPAN_MS]
    until = np.cumsum(ends - begins)
    at = np.sort(chance.uniform(0, until[-1], count))
    which = np.searchsorted(until, at)
    return (begins[which] + at - (until[which] - (ends - begins)[which])).round()


def _are_in(begins: Numbers, ends: Numbers, at_ms: Numbers) -> Mask:
    latest = np.searchsorted(begins, at_ms, side="right") - 1
    return (latest >= 0) & (at_ms < ends[np.maximum(latest, 0)])
