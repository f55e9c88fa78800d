"""Outcomes of messages, counted from the steps of their lives; numbers only, by numpy.

A person who retries, redirects or restores a message after its end begins a new life of it. Lives
are divided by time. A message's outcome is that of its last life; re-sends count in every life.

The steps of a life are put in order by their redelivery counts, not by their times: sidecars have
clocks of their own. Round n of a life is its death with count n - 1 and its re-send n; the death
after that is in round n + 1. The act that begins a further life is the death of its round 1.

A note names the cause of a death, and its consumer. A proof is of a re-send: if it was consumed,
the message has recovered wherever it was sent; if it lay in its queue, the horizon begins then.
"""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow
from numpy.typing import NDArray

_Numbers = NDArray[np.int64]
_Flags = NDArray[np.bool_]

NOTHING: Final = 0
"""In place of the number of a text that is null."""
NONE: Final = -1
"""In place of an attempt, a stage or a time that a row of counts does not have."""

RESENT, SUPPRESSED, FIRST_END = 0, 1, 2
"""Acts on a message that died, by number: two sends, then the ends."""
GIVEN_UP: Final = ("exhausted", "discarded", "cancelled", "dead_lettered")
ENDS: Final = (*GIVEN_UP, "redirected")
"""A message is redirected if it stays away after a send to another place than that of its death."""
_REDIRECTED: Final = FIRST_END + ENDS.index("redirected")
RENEWED: Final = FIRST_END + len(ENDS)
"""An act of a person that begins a new life, if the message has ended."""
NOTED, CONSUMED, QUEUED = (RENEWED + number for number in (1, 2, 3))
"""A note on a death, and proofs of a re-send's outcome."""
SEND_OUTCOMES: Final = ("returned", "returned_later", "stayed", "open")
MESSAGE_OUTCOMES: Final = (*ENDS, "recovered", "waiting", "too_young")
HOURLY_OUTCOMES: Final = ("returned", "recovered")
"""Of re-sends by hour and by the consumer that had failed."""
OUTCOMES: Final = (
    *(("resend", outcome) for outcome in SEND_OUTCOMES),
    *(("message", outcome) for outcome in MESSAGE_OUTCOMES),
    *(("hourly", outcome) for outcome in HOURLY_OUTCOMES),
)
"""Kind and outcome of a row of counts, by number."""
FIRST_MESSAGE: Final = len(SEND_OUTCOMES)
"""Place in `OUTCOMES` of the first of messages."""
FIRST_HOURLY: Final = FIRST_MESSAGE + len(MESSAGE_OUTCOMES)
_HOUR_MS: Final = 3_600_000
_RECOVERED, _WAITING, _TOO_YOUNG = (
    MESSAGE_OUTCOMES.index(one) for one in ("recovered", "waiting", "too_young")
)

MOMENT_STEP: Final = 16
"""A moment is a time in milliseconds times this, plus the number of the step."""
_STEP_BITS: Final = 34
"""Brokers count redeliveries in 32 bits; a step is twice that."""
_NEVER: Final = np.iinfo(np.int64).max
_POWERS: Final = 10 ** np.arange(1, 19, dtype=np.int64)

STEPS: Final = pyarrow.schema(
    [
        (name, pyarrow.int64())
        for name in ("id", "check", "step", "moment", "stream", "place", "cause")
    ]
)
"""One row per death, send, end, act of a person that may begin a new life, note or proof.

`id` and `check` together identify the message. `step` is 2 * round, plus 1 if it is no death; of a
note it is 2 * the time of its death in milliseconds, plus 1, and `place` is its consumer. `moment`
see `MOMENT_STEP`; the others are numbers of texts.
"""
_TOLD: Final = ("consumer", "queued_ms", "consumed")
"""Columns beside `STEPS`: the consumer of a death; for a send, until when it was in its queue and
whether it was consumed; `NOTHING` = unknown."""

GROUP: Final = ("origin", "cause_group")
KEYS: Final = (
    *GROUP,
    *("target", "attempt"),
    *("entry_stage", "exit_stage", "after_ms", "hour", "what"),
)
SUMS: Final = ("messages", "negative_times", "implied_returns", "repeated_resends", "proved")
COUNTS: Final = pyarrow.schema([(name, pyarrow.int64()) for name in (*KEYS, *SUMS)])
"""The counts behind all tables: re-sends, messages, and again re-sends by the hour.

`hour` counts from the epoch. `target` is where a redirected message was sent, or the consumer that
failed; else `NOTHING`. `what` is 2 * the place in `OUTCOMES`, plus 1 if left-truncated.
"""


class ObservedStreams(NamedTuple):
    """The observed streams, and how long each was observed.

    Attributes:
        streams: the numbers of the streams, ascending.
        until_ms: the end of each stream's observation.
        horizon_ms: time without a return after which a re-sent message counts as recovered.
        since_ms: only messages that first died at or after this; `NONE` = all.
    """

    streams: _Numbers
    until_ms: _Numbers
    horizon_ms: int
    since_ms: int


class _Rounds(NamedTuple):
    """The rounds of lives, in order; an absent value is 0 with a false flag.

    `life` is the number of the life among all, of which some may have no round.
    """

    life: _Numbers
    number: _Numbers
    is_first: _Flags
    is_last: _Flags
    has_died: _Flags
    died_ms: _Numbers
    died_place: _Numbers
    died_until_ms: _Numbers
    cause: _Numbers
    has_acted: _Flags
    act: _Numbers
    acted_ms: _Numbers
    acted_place: _Numbers
    acted_until_ms: _Numbers
    resends: _Numbers
    consumer: _Numbers
    is_consumed: _Flags

    def where(self, kept: _Flags) -> "_Rounds":
        """Return these rounds; the first and the last of a life are found again."""
        rounds = _Rounds(**{name: one[kept] for name, one in self._asdict().items()})
        begins = _changes(rounds.life)
        return rounds._replace(is_first=begins, is_last=np.append(begins, True)[1:])


def count_lives(steps: pyarrow.Table, observed: ObservedStreams) -> pyarrow.Table:
    """Return `COUNTS` of messages: of each re-send, of each message, and of re-sends by hour.

    Args:
        steps: `STEPS`; all steps of each message that has one, in any order.
    """
    division, steps = _divided(steps)
    if not len(steps):
        return COUNTS.empty_table()
    order, life, message_of = _in_order(steps, division)
    rounds = _rounds(steps, order, life, observed)
    rounds, next_ms, has_next, is_next_death = _with_next(rounds)
    is_send = rounds.has_acted & (rounds.act < FIRST_END)
    took_ms = next_ms - rounds.acted_ms
    return_ms = np.maximum(took_ms, 0)
    seen_ms = np.clip(rounds.acted_until_ms - rounds.acted_ms, 0, observed.horizon_ms)
    # Why by the next round: a later send or death with a higher count proves a return.
    is_returned = has_next & (return_ms <= seen_ms)
    stayed = ~is_returned & (seen_ms >= observed.horizon_ms)
    message = message_of[rounds.life[rounds.is_first]]
    is_counted, messages = _messages(rounds, message, is_send & stayed, is_send, observed)
    sends = {
        "origin": np.where(rounds.has_died, rounds.died_place, rounds.acted_place),
        "cause_group": rounds.cause,
        "target": np.full(len(took_ms), NOTHING),
        "attempt": rounds.number,
        "entry_stage": np.full(len(took_ms), NONE),
        "exit_stage": np.full(len(took_ms), NONE),
        "after_ms": np.where(is_returned, return_ms, seen_ms),
        "hour": np.full(len(took_ms), NONE),
        "what": _what(
            np.select([is_returned, stayed & has_next, stayed], [0, 1, 2], 3), ~rounds.has_died
        ),
        "messages": np.ones(len(took_ms), dtype=np.int64),
        "negative_times": has_next & (took_ms < 0),
        "implied_returns": has_next & ~is_next_death,
        "repeated_resends": rounds.resends > 1,
        "proved": stayed & rounds.is_consumed,
    }
    of_life = np.cumsum(rounds.is_first) - 1
    chosen = is_send & is_counted[of_life]
    # Why only these: of younger re-sends only the returns are known.
    is_known = chosen & (seen_ms >= observed.horizon_ms)
    by_hour = {
        **{name: np.full(len(took_ms), NONE) for name in KEYS},
        **{name: np.zeros(len(took_ms), dtype=np.int64) for name in SUMS},
        **{name: sends[name] for name in (*GROUP, "messages", "proved")},
        "target": rounds.consumer,
        "hour": rounds.acted_ms // _HOUR_MS,
        "what": _what(FIRST_HOURLY + stayed, np.zeros(len(took_ms), dtype=np.bool_)),
    }
    rows = {
        name: np.concatenate([sends[name][chosen], by_hour[name][is_known], messages[name]]).astype(
            np.int64
        )
        for name in COUNTS.names
    }
    rows["after_ms"] = rounded_ms(rows["after_ms"])
    return add_up(pyarrow.table(rows, schema=COUNTS))


def add_up(counts: pyarrow.Table) -> pyarrow.Table:
    """Return `COUNTS` with one row per key, in the order of keys; none where all sums are zero."""
    keys = [_column(counts, name) for name in KEYS]
    order, begins = _by_key(keys)
    starts = np.flatnonzero(begins)
    first = order[starts]
    summed = [one[first] for one in keys]
    for name in SUMS:
        values = _column(counts, name)
        # Why asked: of most messages there is nothing to mark.
        there = values.any()
        summed.append(np.add.reduceat(values[order], starts) if there else values[: len(starts)])
    is_there = np.any(summed[len(KEYS) :], axis=0)
    return pyarrow.table([one[is_there] for one in summed], schema=COUNTS)


def _by_key(columns: Sequence[_Numbers]) -> tuple[_Numbers, _Flags]:
    """Return the order of rows by these columns, and where in it a row differs from the last."""
    key = np.zeros(len(columns[0]), dtype=np.int64)
    room = _NEVER
    # Why one key: numpy sorts one whole number ten times as fast as several columns.
    for column in columns if len(key) else ():
        low, high = int(column.min()), int(column.max())
        if high - low < len(column):
            ranks, width = column - low, high - low + 1
        else:
            ranks, width = _ranks(column)
        room //= width
        if width > 1:
            key = key * width + ranks
    if room:
        order = np.argsort(key)
        return order, _changes(key[order])
    order = np.lexsort(columns[::-1])
    return order, np.logical_or.reduce([_changes(one[order]) for one in columns])


def _ranks(values: _Numbers) -> tuple[_Numbers, int]:
    """Return the rank of each value among the sorted distinct values, and their number."""
    # Why by Arrow: it finds few distinct values of many in a tenth of the time of `np.unique`.
    found = pyarrow.array(values).dictionary_encode()
    order = np.argsort(found.dictionary.to_numpy())
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[order] = np.arange(len(order))
    return ranks[found.indices.to_numpy()], len(order)


def rounded_ms(time_ms: _Numbers) -> _Numbers:
    """Return times rounded down to three digits: exact below 1 s, at most 1 % less above."""
    digits = np.searchsorted(_POWERS, time_ms, side="right")
    unit = 10 ** np.maximum(digits - 2, 0)
    return np.where(time_ms > 0, time_ms - time_ms % unit, time_ms)


def _what(outcome: _Numbers, is_truncated: _Flags) -> _Numbers:
    return 2 * outcome + is_truncated


def _column(steps: pyarrow.Table, name: str) -> _Numbers:
    values: _Numbers = steps.column(name).to_numpy()
    return values


# Steps to lives


def _divided(steps: pyarrow.Table) -> tuple[_Numbers, pyarrow.Table]:
    """Divide messages into lives, and make the acts that begin further lives deaths of these.

    Such an act has the place, cause and consumer of the last death before it. Notes become part of
    deaths, proofs of sends. Acts of persons on messages that have not ended are left out.

    Returns:
        Of the steps that are left, the number of the life, and themselves with `_TOLD`.
    """
    columns = {name: _column(steps, name) for name in STEPS.names}
    nothing = np.zeros(len(steps), dtype=np.int64)
    columns |= dict.fromkeys(_TOLD, nothing)
    is_act = (columns["step"] & 1).astype(np.bool_)
    at_ms, act = np.divmod(columns["moment"], MOMENT_STEP)
    is_gone = is_act & (act >= RENEWED)
    if not is_gone.any():
        return nothing, pyarrow.table(columns)
    columns = {name: one.copy() for name, one in columns.items()}
    is_renewal, is_note = (is_act & (act == one) for one in (RENEWED, NOTED))
    is_send = is_act & (act < FIRST_END)
    died_ms = np.where(is_note, columns["step"] >> 1, at_ms)
    note, death = _about(columns, (died_ms,), is_note, ~is_act)
    columns["cause"][death] = columns["cause"][note]
    columns["consumer"][death] = columns["place"][note]
    # Why sends last: the act made a send in the same millisecond.
    turn = np.select([is_renewal, is_send], [1, 2], 0)
    rows = np.flatnonzero(np.isin(columns["id"], columns["id"][is_gone]))
    keys = (turn, at_ms, columns["check"], columns["id"])
    rows = rows[np.lexsort([key[rows] for key in keys])]
    begins = _changes(columns["id"][rows]) | _changes(columns["check"][rows])
    first = np.maximum.accumulate(np.where(begins, np.arange(len(rows)), 0))

    renews, ends = is_renewal[rows], (is_act & ~is_send & (act < RENEWED))[rows]
    before = _latest(renews | ends, first)
    renews &= (before >= 0) & ends[before]
    lives = np.cumsum(renews)
    division = nothing.copy()
    division[rows] = lives - (lives - renews)[first]
    for name, number in (("queued_ms", QUEUED), ("consumed", CONSUMED)):
        is_proof = is_act & (act == number)
        proof, send = _about(columns, (columns["step"], division), is_proof, is_send)
        columns[name][send] = at_ms[proof]

    death = _latest(~is_act[rows], first)[renews]
    begun = rows[renews]
    for name in ("place", "cause", "consumer"):
        had = columns[name][rows[death]]
        columns[name][begun] = np.where(death >= 0, had, columns[name][begun])
    columns["step"][begun] = 2
    columns["moment"][begun] -= RENEWED
    kept = ~is_gone
    kept[begun] = True
    return division[kept], pyarrow.table(columns).filter(kept)


def _about(
    columns: Mapping[str, _Numbers], keys: Sequence[_Numbers], says: _Flags, is_asked: _Flags
) -> tuple[_Numbers, _Numbers]:
    """Return rows that say something, by time, and of each the row that it is about.

    That is the first row of the same message and keys that is asked for; those without one are left
    out.
    """
    found = np.flatnonzero(says | (is_asked & np.isin(columns["id"], columns["id"][says])))
    keys = (*keys, columns["check"], columns["id"])
    order = found[np.lexsort([one[found] for one in (columns["moment"], says, *keys)])]
    begins = np.logical_or.reduce([_changes(one[order]) for one in keys])
    first = order[np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))]
    chosen = says[order] & is_asked[first]
    return order[chosen], first[chosen]


def _latest(marked: _Flags, first: _Numbers) -> _Numbers:
    """Return the place of the last marked row before each row, from `first` on; -1 = none."""
    places = np.where(marked, np.arange(len(marked)), -1)
    before = np.append(-1, np.maximum.accumulate(places)[:-1])
    return np.where(before >= first, before, -1)


# Steps to rounds


def _rounds(
    steps: pyarrow.Table, order: _Numbers, life: _Numbers, observed: ObservedStreams
) -> _Rounds:
    """Return one row per message and round; of equal steps the earliest counts."""
    step, moment = (_column(steps, name)[order] for name in ("step", "moment"))
    begins_life = _changes(life)
    begins_round = begins_life | _changes(step >> 1)
    earliest = np.flatnonzero(begins_round | _changes(step))
    number_of = np.cumsum(begins_round) - 1
    rounds = int(number_of[-1]) + 1
    is_act = (step & 1).astype(np.bool_)

    def of_each(rows: _Numbers, values: _Numbers) -> _Numbers:
        placed = np.zeros(rounds, dtype=np.int64)
        placed[number_of[rows]] = values[rows]
        return placed

    place = _column(steps, "place")[order]
    stream = np.searchsorted(observed.streams, _column(steps, "stream")[order])
    until_ms = observed.until_ms[stream]
    died, acted = earliest[~is_act[earliest]], earliest[is_act[earliest]]
    at_ms, act = moment // MOMENT_STEP, moment % MOMENT_STEP
    is_there = np.ones(len(step), dtype=np.int64)
    starts = np.flatnonzero(begins_round)
    is_first = begins_life[starts]
    died_place, acted_place = of_each(died, place), of_each(acted, place)
    acts = of_each(acted, act)
    has_moved = (acts == RESENT) & (died_place != NOTHING) & (acted_place != NOTHING)
    is_consumed = of_each(acted, _column(steps, "consumed")[order]) != NOTHING
    acts[has_moved & (acted_place != died_place) & ~is_consumed] = _REDIRECTED
    return _Rounds(
        life=life[starts],
        number=step[starts] >> 1,
        is_first=is_first,
        is_last=np.append(is_first[1:], True),
        has_died=of_each(died, is_there).astype(np.bool_),
        died_ms=of_each(died, at_ms),
        died_place=died_place,
        died_until_ms=of_each(died, until_ms),
        cause=of_each(died, _column(steps, "cause")[order]),
        has_acted=of_each(acted, is_there).astype(np.bool_),
        act=acts,
        acted_ms=of_each(acted, np.maximum(at_ms, _column(steps, "queued_ms")[order])),
        acted_place=acted_place,
        acted_until_ms=of_each(acted, until_ms),
        resends=np.bincount(number_of[is_act & (act == RESENT)], minlength=rounds),
        consumer=of_each(died, _column(steps, "consumer")[order]),
        is_consumed=is_consumed,
    )


def _in_order(steps: pyarrow.Table, division: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return the order of steps by message, life, step and moment.

    Why also by the rest: counts must not depend on the order in which steps come.

    Returns:
        The order; in it the number of each step's life; and the message of each life.
    """
    ident, check = _column(steps, "id"), _column(steps, "check")
    order = np.argsort(ident)
    if division.any() or np.any(~_changes(ident[order]) & _changes(check[order])):
        order = np.lexsort((division, check, ident))
    is_message = _changes(ident[order]) | _changes(check[order])
    begins = is_message | _changes(division[order])
    message_of = (np.cumsum(is_message) - 1)[begins]
    # Why one key: numpy sorts one whole number ten times as fast as several columns.
    key = (np.cumsum(begins) << _STEP_BITS) + _column(steps, "step")[order]
    by_key = np.argsort(key)
    order, key = order[by_key], key[by_key]
    is_same = ~_changes(key)
    tied = np.flatnonzero(is_same | np.append(is_same[1:], False))
    rest = [_column(steps, name)[order[tied]] for name in ("cause", "place", "stream", "moment")]
    order[tied] = order[tied][np.lexsort((*rest, key[tied]))]
    return order, (key >> _STEP_BITS) - 1, message_of


def _changes(values: _Numbers) -> _Flags:
    """Return where a value differs from the one before; the first does."""
    changed = np.ones(len(values), dtype=np.bool_)
    np.not_equal(values[1:], values[:-1], out=changed[1:])
    return changed


def _with_next(rounds: _Rounds) -> tuple[_Rounds, _Numbers, _Flags, _Flags]:
    """Add when the next round began, and leave out final dead letters that the broker knew already.

    A send that the broker knew already counts only if it went where the message was before.

    Returns:
        The rounds that are left; and of each when the next began, whether it did, and whether it
        began with the death that has the count of this round.
    """
    is_suppressed = rounds.has_acted & (rounds.act == SUPPRESSED)
    is_send = rounds.has_acted & (rounds.act < FIRST_END)
    last_place = np.where(rounds.has_acted, rounds.acted_place, rounds.died_place)
    begins_ms = np.where(rounds.has_died, rounds.died_ms, rounds.acted_ms)
    has_begun = rounds.has_died | is_send
    before_place = np.where(rounds.is_first, NOTHING, np.roll(last_place, 1))
    came_from = np.where(rounds.has_died, rounds.died_place, before_place)
    is_final = is_suppressed & (rounds.acted_place != came_from)

    is_suppressed_next = np.roll(is_suppressed & ~rounds.has_died, -1)
    has_next = (
        ~rounds.is_last
        & np.roll(has_begun, -1)
        & (~is_suppressed_next | (np.roll(rounds.acted_place, -1) == last_place))
    )
    is_next_death = (
        ~rounds.is_last
        & (np.roll(rounds.number, -1) == rounds.number + 1)
        & np.roll(rounds.has_died, -1)
    )
    next_ms = np.where(has_next, np.roll(begins_ms, -1), 0)
    kept = rounds.has_died | (rounds.has_acted & ~is_final)
    left = rounds._replace(has_acted=rounds.has_acted & ~is_final).where(kept)
    return left, next_ms[kept], has_next[kept], is_next_death[kept]


# Rounds to messages


def _messages(
    rounds: _Rounds, message: _Numbers, recovers: _Flags, is_send: _Flags, observed: ObservedStreams
) -> tuple[_Flags, dict[str, _Numbers]]:
    """Return whether each life's message counts, and the outcomes of these by their last lives.

    Outcomes are columns of `COUNTS`, a row per message. A life is judged until one horizon before
    the end of the observation.
    Why not until the end: of re-sends younger than the horizon only the returns are known, and
    the others are open. Counting only the known would count too few recoveries.
    """
    starts = np.flatnonzero(rounds.is_first)
    lasts = np.flatnonzero(rounds.is_last)
    horizon_ms = observed.horizon_ms
    # Why stages: they are the places of steps in a life. Re-send n is 2n - 1, the death after 2n.
    death_stage, send_stage = 2 * rounds.number - 2, 2 * rounds.number - 1
    died_until_ms = np.where(rounds.has_died, rounds.died_until_ms, _NEVER)
    acted_until_ms = np.where(rounds.has_acted, rounds.acted_until_ms, _NEVER)
    closed_ms = np.minimum.reduceat(np.minimum(died_until_ms, acted_until_ms), starts) - horizon_ms
    is_death_known = rounds.has_died & (rounds.died_ms <= rounds.died_until_ms - horizon_ms)
    is_send_known = is_send & (rounds.acted_ms <= rounds.acted_until_ms - horizon_ms)
    known_stage = np.maximum.reduceat(
        np.select([is_send_known, is_death_known], [send_stage, death_stage], NONE), starts
    )
    first_recovery = np.minimum.reduceat(
        np.where(recovers, np.arange(len(recovers)), len(recovers)), starts
    )
    is_recovered = first_recovery < len(recovers)
    recovery = np.where(is_recovered, first_recovery, starts)

    begun_ms = np.where(rounds.has_died, rounds.died_ms, rounds.acted_ms)[starts]
    begun_stage = np.select([rounds.has_died, is_send], [death_stage, send_stage], NONE)[starts]
    has_ended = (rounds.has_acted & (rounds.act >= FIRST_END))[lasts]
    ended_ms = rounds.acted_ms[lasts]
    is_too_young = begun_ms > closed_ms
    is_ended = has_ended & (ended_ms <= closed_ms) & ~is_recovered & ~is_too_young
    outcome = np.select(
        [is_too_young, is_recovered, is_ended],
        [_TOO_YOUNG, _RECOVERED, rounds.act[lasts] - FIRST_END],
        _WAITING,
    )
    is_placed = ~is_too_young & (begun_stage != NONE)
    is_whole = begun_stage == 0
    exit_stage = np.select(
        [outcome == _RECOVERED, outcome == _WAITING],
        [send_stage[recovery], known_stage],
        known_stage + known_stage % 2,
    )
    exit_ms = np.select(
        [outcome == _RECOVERED, outcome == _WAITING],
        [rounds.acted_ms[recovery], closed_ms],
        ended_ms,
    )
    has_time = is_placed & is_whole
    after_ms = np.where(has_time, exit_ms - begun_ms, 0)
    is_first_life = _changes(message)
    of_message = np.cumsum(is_first_life) - 1
    is_counted = np.ones(len(starts), dtype=np.bool_)
    if observed.since_ms != NONE:
        is_counted = is_whole & (begun_ms >= observed.since_ms)
        is_counted = is_counted[is_first_life][of_message]
    is_row = is_counted & np.append(is_first_life[1:], True)
    nothing = np.zeros(len(starts), dtype=np.int64)
    place = np.where(rounds.has_died, rounds.died_place, rounds.acted_place)
    columns = {
        "origin": place[starts],
        "cause_group": rounds.cause[starts],
        "target": np.where(
            outcome == MESSAGE_OUTCOMES.index("redirected"), rounds.acted_place[lasts], NOTHING
        ),
        "attempt": nothing + NONE,
        "entry_stage": np.where(is_placed, begun_stage, NONE),
        "exit_stage": np.where(is_placed, exit_stage, NONE),
        "after_ms": np.where(has_time, np.maximum(after_ms, 0), NONE),
        "hour": nothing + NONE,
        "what": _what(FIRST_MESSAGE + outcome, ~is_whole),
        "messages": nothing + 1,
        "negative_times": after_ms < 0,
        "implied_returns": nothing,
        "repeated_resends": nothing,
        "proved": (outcome == _RECOVERED) & rounds.is_consumed[recovery],
    }
    return is_counted, {name: one[is_row] for name, one in columns.items()}
