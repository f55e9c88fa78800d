"""Moves the schedule of the options to another store.

The source's fence decides who owns the schedule. Without it, the source does, and the target has at
most a copy that no program uses. The fence is written in the transaction that has read the source,
after the copy is durable: from then on the target has everything, and the source does nothing.
"""

from collections.abc import Iterator
from contextlib import closing, suppress
from enum import Enum, StrEnum, auto
from typing import Any, Final, NamedTuple

from amqsidecar.broker import TakeSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.engine.crash_points import CrashPoint
from amqsidecar.engine.recovery import TOKEN_QUEUE_PREFIX, Recovery
from amqsidecar.errors import ConfigError, Problem, StoreMoved, StoreUnavailable
from amqsidecar.operations.follow import follow
from amqsidecar.stores.moving import Contents, MovedStore
from amqsidecar.wiring.links import LinkMaker
from amqsidecar.wiring.parts import require_url
from amqsidecar.wiring.schedules import open_for_move, open_instance, open_schedule


class SourceStanding(Enum):
    """Whether the source still owns the schedule."""

    OWNER = auto()
    GIVEN_UP = auto()
    """It is fenced for good."""


class TargetStanding(Enum):
    """The content of the target, and whether it may be used."""

    UNUSED = auto()
    COPY = auto()
    """It has a durable copy of the source's schedule, and is fenced."""
    OWNER = auto()
    """It has the source's schedule, and no fence."""
    FOREIGN = auto()
    """It has another schedule, or a copy of another one."""


class MoveStep(StrEnum):
    """The next step of a move."""

    COPY = "copy"
    """Copy all, then fence the source."""
    OPEN = "open"
    """Remove the target's fence."""
    NONE = "none"
    """The move has ended."""
    REFUSE_FOREIGN = "the target is in use; name a new file or an empty database"
    REFUSE_GIVEN_UP = "the source has moved to another store"


def next_step(source: SourceStanding, target: TargetStanding) -> MoveStep:
    """Return the next step of a move, wherever an earlier run was interrupted."""
    if source is SourceStanding.OWNER:
        if target in (TargetStanding.UNUSED, TargetStanding.COPY):
            return MoveStep.COPY
        return MoveStep.REFUSE_FOREIGN
    if target is TargetStanding.COPY:
        return MoveStep.OPEN
    return MoveStep.NONE if target is TargetStanding.OWNER else MoveStep.REFUSE_GIVEN_UP


TOKEN_WAIT_S: Final = 15.0
"""How long the token is waited for: a broker holds it for a dead process for a while."""


class Move(NamedTuple):
    """A finished move.

    Attributes:
        other_tokens: queues of tokens of instances that the target doesn't have.
    """

    source: str
    target: str
    other_tokens: list[str]


def move_schedule(source: Config, target: Config, crash_point: CrashPoint) -> Move:
    """Move the schedule of a configuration to the store of another one; calling again goes on.

    Promise: at each moment at most one of the stores can be used, and it has everything. If the
    process dies inside, the source is as before, or has given all up to the target.

    Args:
        source: its sidecars have ended.
        target: differs in the store only.
        crash_point: called with each of `MOVE_NAMES`.

    Raises:
        ConfigError: a URL names no store, or both name one.
        StoreUnavailable: a store can't be used, or a sidecar works with it.
        BrokerError: the token can't be taken, which proves how the last cycle ended.
    """
    for config in (source, target):
        if config.store.url == BROKER_HELD:
            what = "the broker keeps waiting messages and sends them; there is nothing to move"
            raise ConfigError([Problem("store.url", what)])
    if source.store.url == target.store.url:
        raise ConfigError([Problem("--to", "is the store of store.url already; name another one")])
    # Why passed over: a move that goes on needs no proof, the fence is it.
    with suppress(StoreMoved):
        _settle(source)
    with closing(open_for_move(source)) as giving, closing(open_for_move(target)) as taking:
        return move_stores(giving, taking, crash_point)


def move_stores(source: MovedStore, target: MovedStore, crash_point: CrashPoint) -> Move:
    """Do the steps of a move that are left; see `move_schedule`.

    Raises:
        StoreUnavailable: as `move_schedule`.
    """
    step = next_step(_source_standing(source), _target_standing(source, target))
    if step is MoveStep.COPY:
        with source.giving_up(target.place) as contents:
            target.receive(_Watched(contents, crash_point), source.place)
            crash_point("copied")
        crash_point("given_up")
        step = MoveStep.OPEN
    if step is MoveStep.OPEN:
        target.open_up()
        crash_point("opened")
    elif step is not MoveStep.NONE:
        raise StoreUnavailable(f"{source.place} can't move to {target.place}: {step.value}")
    others = sorted(source.tokens() - target.tokens())
    return Move(source.place, target.place, [TOKEN_QUEUE_PREFIX + name for name in others])


class _Watched:
    """Contents that have a crash point after each table."""

    def __init__(self, contents: Contents, crash_point: CrashPoint) -> None:
        self.head = contents.head
        self._contents = contents
        self._crash_point = crash_point

    def rows(self, table: str) -> Iterator[tuple[Any, ...]]:
        """See `Contents`."""
        yield from self._contents.rows(table)
        self._crash_point("copying")


def _source_standing(source: MovedStore) -> SourceStanding:
    fence = source.fence()
    if fence is None:
        return SourceStanding.OWNER
    if fence.is_source:
        return SourceStanding.GIVEN_UP
    raise fence.refusal(source.place)


def _target_standing(source: MovedStore, target: MovedStore) -> TargetStanding:
    fence, is_same = target.fence(), target.group_key() == source.group_key()
    if fence is None and target.is_unused():
        return TargetStanding.UNUSED
    if not is_same or (fence is not None and fence.is_source):
        return TargetStanding.FOREIGN
    return TargetStanding.OWNER if fence is None else TargetStanding.COPY


def _take(links: LinkMaker, instance: str) -> TakeSession:
    return links.make(instance).take(TOKEN_QUEUE_PREFIX + instance)


def _settle(config: Config) -> None:
    """Be each instance for a moment, and end its last cycle as its token proves."""
    require_url(config)
    clock = SystemClock()
    with closing(open_schedule(config, clock, read_only=True)) as schedule:
        names = [one.instance for one in schedule.instances()] or [schedule.state().instance]
    links = LinkMaker(config, clock)
    for name in names:
        with closing(open_instance(config, clock, name)) as schedule:
            state = schedule.state()
            if state.token_created or state.unfinished is not None:
                links.find_answering(name)
                with closing(_take(links, name)) as session:
                    recovery = Recovery(session, schedule, clock, lambda _events, _stats: None)
                    if recovery.own(state, TOKEN_WAIT_S) is None:
                        raise StoreUnavailable(
                            f"the token of the instance {name} is held by another process: stop "
                            "all sidecars of this schedule, and run the command again"
                        )
            while not follow(schedule):
                pass
