"""Worlds in which messages fail for a reason that a forecast does not know.

Written apart from the code under test: it imports nothing of `amqsidecar`. A process decides which
re-sends succeed; a policy, here just its delays, acts in the world. Another policy meets the same
messages, repairs and outages, and chances of its own: what it comes to is the truth that a forecast
is held against.
"""

import heapq
from collections import deque
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
UNTIL_MS: Final = 168 * HOUR
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
HISTORIES: Final = (LOGGED, Policy(5 * SECOND, 2, 5 * MINUTE, 10), Policy(10 * MINUTE, 1, HOUR, 4))
"""Of worlds that nobody tuned to: their seed chooses one."""
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


Delivered = Callable[[float, int, int, float], bool]
"""Whether a delivery succeeds: at which time, of which message, which re-send (-1 = it dies for the
first time), by which luck. It is asked in the order of time, and remembers."""


class World(NamedTuple):
    """First deaths, and which re-sends succeed.

    Attributes:
        died_ms: the first deaths.
        succeed: where deliveries don't matter to each other.
        in_order: where they do: returns the destination as it is before the first delivery.
    """

    died_ms: Numbers
    succeed: Callable[[Try], Mask] | None
    in_order: Callable[[], Delivered] | None = None


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
    """More deliveries at once than the consumer bears: the more in 30 s, the fewer succeed."""
    died = _bursts(chance, count, 25, 5 * MINUTE)
    bears = chance.uniform(25, 60)

    def fresh() -> Delivered:
        recent: deque[float] = deque()

        def delivered(at: float, _row: int, _number: int, luck: float) -> bool:
            while recent and recent[0] < at - 30 * SECOND:
                recent.popleft()
            recent.append(at)
            return luck < 1 / (1 + ((len(recent) - 1) / bears) ** 2)

        return delivered

    return World(died, None, fresh)


def daily(chance: np.random.Generator, count: int) -> World:
    """A cycle of a day: hardly anything succeeds at noon, nearly all at night."""
    low, high = chance.uniform(0.05, 0.2), chance.uniform(0.8, 0.95)

    def works(at: Numbers) -> Numbers:
        return low + (high - low) * (1 + np.cos(at / (24 * HOUR) * 2 * np.pi)) / 2

    died = chance.uniform(0, 96 * HOUR, 4 * count)
    died = np.sort(died[chance.random(len(died)) < 1 - works(died)][:count]).round()
    return World(died, lambda t: t.luck < works(t.at_ms))


def shard(chance: np.random.Generator, count: int) -> World:
    """One shard of twelve is out for hours; half of what dies is its own."""
    begins, ends = _outages(chance, 6 * HOUR, chance.uniform(20, 90) * MINUTE)
    own = _within(chance, begins, ends, count // 2)
    died = np.concatenate([own, chance.uniform(0, SPAN_MS, count - len(own)).round()])
    is_own = np.arange(count) < len(own)
    is_own |= chance.random(count) < 1 / 12
    p = chance.uniform(0.7, 0.9)
    order = np.argsort(died, kind="stable")
    is_own = is_own[order]
    return World(
        died[order],
        lambda t: (t.luck < p) & ~(is_own[t.message] & _are_in(begins, ends, t.at_ms)),
    )


def release(chance: np.random.Generator, count: int) -> World:
    """A release in the middle: each attempt succeeds by another chance from then on."""
    middle = chance.uniform(0.35, 0.65) * SPAN_MS
    before, after = chance.uniform(0.15, 0.35), chance.uniform(0.7, 0.9)
    return World(
        evenly(chance, count), lambda t: t.luck < np.where(t.at_ms < middle, before, after)
    )


def quota(chance: np.random.Generator, count: int) -> World:
    """So many may succeed in each ten minutes; the others fail."""
    died = _bursts(chance, count, 12, 10 * MINUTE)
    most = max(2, int(count / 12 / chance.uniform(4, 10)))

    def fresh() -> Delivered:
        used: dict[int, int] = {}

        def delivered(at: float, _row: int, number: int, _luck: float) -> bool:
            slot = int(at // (10 * MINUTE))
            is_left = number >= 0 and used.get(slot, 0) < most
            used[slot] = used.get(slot, 0) + is_left
            return is_left

        return delivered

    return World(died, None, fresh)


def batches(chance: np.random.Generator, count: int) -> World:
    """Messages die in batches, and each batch is repaired as a whole."""
    number = int(chance.integers(15, 40))
    begins = np.sort(chance.uniform(0, SPAN_MS, number))
    repaired = begins + np.exp(chance.normal(np.log(12 * MINUTE), 1.2, number))
    died = np.concatenate([begins[at : at + 1] for at in chance.integers(0, number, count)])
    died = died + chance.uniform(0, MINUTE, count)
    order = np.argsort(died)
    which = np.searchsorted(begins, died[order], side="right") - 1
    return World(died[order].round(), lambda t: t.at_ms >= repaired[which[t.message]])


def rare(chance: np.random.Generator, count: int) -> World:
    """Most succeed soon by chance; a few of the same cause wait for hours, and some for ever."""
    p = chance.uniform(0.6, 0.9)
    kind = chance.choice(3, count, p=(0.9, 0.07, 0.03))
    repaired = chance.exponential(chance.uniform(1, 5) * HOUR, count)
    return World(
        evenly(chance, count),
        lambda t: np.select(
            [kind[t.message] == 0, kind[t.message] == 1],
            [t.luck < p, t.since_ms >= repaired[t.message]],
            False,
        ),
    )


def nightly(chance: np.random.Generator, count: int) -> World:
    """Each night the destination is out of order for hours; else it works by chance."""
    begins: Numbers = np.arange(8.0) * 24 * HOUR + float(chance.uniform(0, 24 * HOUR))
    ends: Numbers = begins + float(chance.uniform(1.5, 4)) * HOUR
    p = chance.uniform(0.5, 0.8)
    died = chance.uniform(0, 96 * HOUR, 8 * count)
    likely = np.where(_are_in(begins, ends, died), 1.0, 0.1)
    died = np.sort(died[chance.random(len(died)) < likely][:count]).round()
    return World(died, lambda t: (t.luck < p) & ~_are_in(begins, ends, t.at_ms))


def tenants(chance: np.random.Generator, count: int) -> World:
    """Forty tenants, few of them large, each with outages of its own."""
    shares = 1 / np.arange(1, 41)
    tenant = chance.choice(40, count, p=shares / shares.sum())
    died = np.zeros(count)
    outages = []
    for one in range(40):
        begins, ends = _outages(chance, 8 * HOUR, chance.uniform(5, 60) * MINUTE)
        outages.append((begins, ends))
        mine = tenant == one
        if not (begins < SPAN_MS).any():
            died[mine] = chance.uniform(0, SPAN_MS, int(mine.sum()))
        else:
            died[mine] = _within(chance, begins, ends, int(mine.sum()))
    order = np.argsort(died)
    tenant, died = tenant[order], died[order].round()

    def succeed(tries: Try) -> Mask:
        found = np.zeros(len(tries.message), dtype=bool)
        for one, (begins, ends) in enumerate(outages):
            mine = tenant[tries.message] == one
            found[mine] = ~_are_in(begins, ends, tries.at_ms[mine])
        return found

    return World(died, succeed)


def tokens(chance: np.random.Generator, count: int) -> World:
    """A bucket of tokens: each delivery takes one, also if it fails because there is none."""
    died = _bursts(chance, count, 15, 4 * MINUTE)
    most, per_ms = count / 60, count / 40 / HOUR

    def fresh() -> Delivered:
        level, last = most, 0.0

        def delivered(at: float, _row: int, number: int, _luck: float) -> bool:
            nonlocal level, last
            level, last = min(most, level + (at - last) * per_ms), at
            is_there = number >= 0 and level >= 1
            level = max(level - 1, -most / 2)
            return is_there

        return delivered

    return World(died, None, fresh)


def rollback(chance: np.random.Generator, count: int) -> World:
    """A bad release breaks most attempts until it is rolled back hours later."""
    begins = chance.uniform(0.2, 0.4) * SPAN_MS
    ends = begins + chance.uniform(3, 8) * HOUR
    good, bad = chance.uniform(0.75, 0.95), chance.uniform(0.02, 0.15)
    return World(
        evenly(chance, count),
        lambda t: t.luck < np.where((t.at_ms >= begins) & (t.at_ms < ends), bad, good),
    )


def overload(chance: np.random.Generator, count: int) -> World:
    """Too many deliveries bring the destination down; each one more keeps it down for longer."""
    died = _bursts(chance, count, 20, 3 * MINUTE)
    most = int(max(4, count / 20 * chance.uniform(0.15, 0.4)))
    stays = chance.uniform(20, 90) * SECOND

    def fresh() -> Delivered:
        recent: deque[float] = deque()
        down_until = 0.0

        def delivered(at: float, _row: int, number: int, luck: float) -> bool:
            nonlocal down_until
            while recent and recent[0] < at - 30 * SECOND:
                recent.popleft()
            recent.append(at)
            if at < down_until or len(recent) > most:
                down_until = max(down_until, at + stays)
                return False
            return number >= 0 and luck < 0.97

        return delivered

    return World(died, None, fresh)


def warmup(chance: np.random.Generator, count: int) -> World:
    """After an outage the destination works better and better, for an hour or two."""
    begins, ends = _outages(chance, 5 * HOUR, chance.uniform(5, 20) * MINUTE)
    takes = chance.uniform(0.5, 2) * HOUR
    died = _within(chance, begins, ends + takes / 3, count)

    def works(at: Numbers) -> Numbers:
        latest = np.maximum(np.searchsorted(begins, at, side="right") - 1, 0)
        return np.clip((at - ends[latest]) / takes, 0.0, 0.95)

    return World(died, lambda t: t.luck < works(t.at_ms))


def flapping(chance: np.random.Generator, count: int) -> World:
    """The destination fails and works again every few seconds or minutes."""
    many = int(2 * UNTIL_MS / (3 * MINUTE))
    up = chance.exponential(chance.uniform(0.3, 2) * MINUTE, many)
    down = chance.exponential(chance.uniform(0.3, 2) * MINUTE, many)
    begins = np.cumsum(up) + np.concatenate([[0.0], np.cumsum(down)[:-1]])
    ends = begins + down
    died = _within(chance, begins, ends, count)
    return World(died, lambda t: ~_are_in(begins, ends, t.at_ms))


def in_line(chance: np.random.Generator, count: int) -> World:
    """Messages of an order succeed one after the other; the first by chance only."""
    died = evenly(chance, count)
    size = int(chance.integers(3, 9))
    order, place = np.divmod(np.arange(count), size)
    died = np.minimum.reduceat(died, np.arange(0, count, size))[order] + place * 2 * SECOND
    p = chance.uniform(0.2, 0.5)

    def fresh() -> Delivered:
        following = np.zeros(count // size + 1, dtype=np.int64)

        def delivered(_at: float, row: int, number: int, luck: float) -> bool:
            is_its_turn = following[order[row]] == place[row]
            does = number >= 0 and bool(is_its_turn) and (luck < p or place[row] > 0)
            following[order[row]] += does
            return does

        return delivered

    return World(died, None, fresh)


def stubborn(chance: np.random.Generator, count: int) -> World:
    """A message needs so many attempts, whatever the time between them."""
    needed = chance.geometric(chance.uniform(0.25, 0.5), count) + chance.integers(0, 3)
    return World(evenly(chance, count), lambda t: t.number + 1 >= needed[t.message])


def by_hand(chance: np.random.Generator, count: int) -> World:
    """A person mends everything at nine each morning; until then hardly anything succeeds."""
    first = chance.uniform(0, 24) * HOUR
    p = chance.uniform(0.02, 0.15)

    def mended(message: npt.NDArray[np.int64]) -> Numbers:
        return first + np.ceil((died[message] - first) / (24 * HOUR)) * 24 * HOUR

    died = evenly(chance, count)
    return World(died, lambda t: (t.at_ms >= mended(t.message)) | (t.luck < p))


def hourly_job(chance: np.random.Generator, count: int) -> World:
    """A job at each full hour brings the data that messages wait for; it misses some."""
    misses = chance.uniform(0.1, 0.4)
    rounds = chance.geometric(1 - misses, count)
    died = evenly(chance, count)
    ready = (np.floor(died / HOUR) + rounds) * HOUR
    return World(died, lambda t: t.at_ms >= ready[t.message])


def half_bad(chance: np.random.Generator, count: int) -> World:
    """One of two consumers is bad for hours at a time, so that half of the attempts fail then."""
    begins, ends = _outages(chance, 5 * HOUR, chance.uniform(40, 150) * MINUTE)
    died = _within(chance, begins, ends, count)
    good = chance.uniform(0.85, 0.98)
    return World(died, lambda t: t.luck < np.where(_are_in(begins, ends, t.at_ms), good / 2, good))


def same_key(chance: np.random.Generator, count: int) -> World:
    """Messages of one key must not be delivered within some seconds of each other."""
    key = chance.integers(0, max(2, count // 20), count)
    near = chance.uniform(20, 90) * SECOND
    died = _bursts(chance, count, 30, 4 * MINUTE)

    def fresh() -> Delivered:
        latest: dict[int, float] = {}

        def delivered(at: float, row: int, number: int, luck: float) -> bool:
            before = latest.get(int(key[row]), -np.inf)
            latest[int(key[row])] = at
            return number >= 0 and at - before >= near and luck < 0.95

        return delivered

    return World(died, None, fresh)


def restarts(chance: np.random.Generator, count: int) -> World:
    """A leak: attempts succeed less and less until the consumer is restarted, again and again."""
    period = chance.uniform(2, 10) * HOUR
    begin = chance.uniform(0, 1) * period

    def works(at: Numbers) -> Numbers:
        return np.clip(0.98 - ((at + begin) % period / period) ** 2, 0.02, 1.0)

    died = chance.uniform(0, SPAN_MS, 6 * count)
    died = np.sort(died[chance.random(len(died)) > works(died)][:count]).round()
    return World(died, lambda t: t.luck < works(t.at_ms))


def backlog(chance: np.random.Generator, count: int) -> World:
    """The destination works off what came at so many per minute; a longer queue times out."""
    died = _bursts(chance, count, 18, 5 * MINUTE)
    per_ms = count / 18 / (chance.uniform(5, 40) * MINUTE)
    most = count / 18 * chance.uniform(0.05, 0.3)

    def fresh() -> Delivered:
        waiting, last = 0.0, 0.0

        def delivered(at: float, _row: int, number: int, _luck: float) -> bool:
            nonlocal waiting, last
            waiting, last = max(0.0, waiting - (at - last) * per_ms), at
            is_in_time = number >= 0 and waiting < most
            waiting += 1.0
            return is_in_time

        return delivered

    return World(died, None, fresh)


def stale(chance: np.random.Generator, count: int) -> World:
    """Attempts succeed by chance until the data is too old; then never."""
    p, expires = chance.uniform(0.3, 0.7), chance.exponential(chance.uniform(5, 60) * MINUTE, count)
    return World(evenly(chance, count), lambda t: (t.luck < p) & (t.since_ms < expires[t.message]))


def two_needs(chance: np.random.Generator, count: int) -> World:
    """A message waits for two things, one of them common to the messages of ten minutes."""
    died = evenly(chance, count)
    own = chance.exponential(chance.uniform(2, 8) * MINUTE, count)
    slots = chance.exponential(chance.uniform(2, 8) * MINUTE, int(SPAN_MS // (10 * MINUTE)) + 1)
    ready = np.maximum(own, slots[(died // (10 * MINUTE)).astype(np.int64)])
    return World(died, lambda t: t.since_ms >= ready[t.message])


def breaker(chance: np.random.Generator, count: int) -> World:
    """After some failures in a row the client refuses everything for a minute or more."""
    p, most = chance.uniform(0.5, 0.8), int(chance.integers(3, 8))
    opens = chance.uniform(30, 180) * SECOND

    def fresh() -> Delivered:
        in_row, open_until = 0, 0.0

        def delivered(at: float, _row: int, number: int, luck: float) -> bool:
            nonlocal in_row, open_until
            if at < open_until:
                return False
            does = number >= 0 and luck < p
            in_row = 0 if does else in_row + 1
            if in_row >= most:
                in_row, open_until = 0, at + opens
            return does

        return delivered

    return World(evenly(chance, count), None, fresh)


def _named(*processes: Process) -> Mapping[str, Process]:
    return {one.__name__: one for one in processes}


KNOWN: Final = _named(
    *(exponential, heavy, poison, by_chance, by_uneven_chance),
    *(mixture, outage, outage_and_chance, cooling, load),
)
"""What the models were made for."""
FOREIGN: Final = _named(
    *(daily, shard, release, quota, batches, rare, nightly, tenants, tokens, rollback),
    *(overload, warmup, flapping, in_line, stubborn, hourly_job, same_key, stale),
)
"""What they were not made for; numbers of the models may be chosen by their first seeds."""
HELD_BACK: Final = _named(
    *(by_hand, half_bad, restarts, backlog, two_needs, breaker),
)
"""Never looked at when the numbers of models are chosen."""
PROCESSES: Final[Mapping[str, Process]] = {**KNOWN, **FOREIGN, **HELD_BACK}


def policy_of_history(process: str, seed: int) -> Policy:
    """Return the policy that acts in the history of a world."""
    return LOGGED if process in KNOWN else HISTORIES[seed % len(HISTORIES)]


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
    count = len(world.died_ms)
    chance = _generator(process, seed, 1 + run_number)
    late = chance.uniform(0, 500, (count, policy.resends)).round()
    died_after = (2_000 * (0.5 + chance.random((count, policy.resends)))).round()
    luck = chance.random((count, policy.resends))
    if world.in_order is not None:
        return _run_in_order(world.died_ms, world.in_order(), policy, late, died_after, luck)
    assert world.succeed is not None
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


def _run_in_order(
    first: Numbers,
    delivered: Delivered,
    policy: Policy,
    late: Numbers,
    died_after: Numbers,
    luck: Numbers,
) -> Lives:
    """Let deliveries happen one after the other, because they matter to each other."""
    delays = policy.delays()
    sent, back = (np.full(late.shape, np.inf) for _ in range(2))
    waiting = [(at, row, -1) for row, at in enumerate(first.tolist())]
    heapq.heapify(waiting)
    while waiting:
        at, row, number = heapq.heappop(waiting)
        has_succeeded = delivered(at, row, number, luck[row, max(number, 0)])
        if number >= 0:
            sent[row, number] = at
            if has_succeeded:
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


def _bursts(chance: np.random.Generator, count: int, bursts: int, lasts_ms: float) -> Numbers:
    """Return first deaths that come in bursts of different sizes."""
    begins = np.sort(chance.uniform(0, SPAN_MS, bursts))
    which = chance.choice(bursts, count, p=chance.dirichlet(np.full(bursts, 1.5)))
    return np.sort(begins[which] + chance.exponential(lasts_ms, count)).round()


def _outages(chance: np.random.Generator, up_ms: float, down_ms: float) -> tuple[Numbers, Numbers]:
    """Return begins and ends, over the whole observation; lengths vary by 0.6 in the logarithm."""
    count = int(2 * UNTIL_MS / up_ms) + 10
    up = chance.exponential(up_ms, count)
    down = down_ms * np.exp(chance.normal(0, 0.6, count))
    begins = np.cumsum(up) + np.concatenate([[0.0], np.cumsum(down)[:-1]])
    return begins, begins + down


def _within(chance: np.random.Generator, begins: Numbers, ends: Numbers, count: int) -> Numbers:
    """Return times within the outages of the span, evenly; in all of it where it has none."""
    begins, ends = begins[begins < SPAN_MS], ends[begins < SPAN_MS]
    if not len(begins):
        return evenly(chance, count)
    until = np.cumsum(ends - begins)
    at = np.sort(chance.uniform(0, until[-1], count))
    which = np.searchsorted(until, at)
    return (begins[which] + at - (until[which] - (ends - begins)[which])).round()


def _are_in(begins: Numbers, ends: Numbers, at_ms: Numbers) -> Mask:
    latest = np.searchsorted(begins, at_ms, side="right") - 1
    return (latest >= 0) & (at_ms < ends[np.maximum(latest, 0)])
