"""The present content of dead-letter queues as a source of Spark; runs in its Python processes.

It takes and makes nothing, and locks no message.
Spark gets no bodies. An incomplete browse is an error, not a shorter table.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from pyspark.sql.datasource import DataSourceReader, InputPartition

from amqsidecar.broker import BrokerKind, Delivery, IntakeQueue, LookSession
from amqsidecar.clock import SystemClock
from amqsidecar.config.load import load_config
from amqsidecar.config.schema import Config
from amqsidecar.engine.intake import named_queues
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames, TrueOrigin
from amqsidecar.errors import BrokerRefused, ConfigError, Problem
from amqsidecar.model.cause import cause_group
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.classic_rules import ClassicRules
from amqsidecar.policy_source.load import load_policy
from amqsidecar.runtime.in_place import CLASSIC_LOOK_MAX
from amqsidecar.wiring.links import LinkMaker, look_at_any

MAX_MESSAGES = 10_000
"""Of each queue, unless the user says more."""

_INSTANCE = "spark"
"""In the place of an instance's name; a broker sees it as part of the client id."""

_COUNT_MAX = 1_000_000_000

SparkRow = tuple[Any, ...]


class DeadLetterOptions(NamedTuple):
    """The options of the source.

    Attributes:
        queues: dead-letter queues; on Classic with wildcards.
        sets: options of the sidecar as `dotted.key=value`.
        config_file: a sidecar's configuration, for options that are not in `sets`; None = none.
        max_messages: maximum per queue, from its head; None = all, up to `MAX_MESSAGES`.
    """

    queues: tuple[str, ...]
    sets: tuple[str, ...]
    config_file: str | None
    max_messages: int | None


class DeadLetterReader(DataSourceReader):
    """Browses each queue once, in a task of its own."""

    def __init__(self, options: DeadLetterOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the queues; checks the options, without a connection to the broker."""
        _config(self._options)
        return [InputPartition(name) for name in self._options.queues]

    def read(self, partition: InputPartition) -> Iterator[SparkRow]:
        """Yield the messages of a queue in order, as `DEAD_LETTERS`.

        Raises:
            LinkLost: the broker can't be reached.
            BrokerRefused: no permission, or the browse is incomplete.
        """
        config = _config(self._options)
        source = config.policy.source
        rules = None if source is None else load_policy(source, load_plugins())
        classic = rules if isinstance(rules, ClassicRules) else None
        link = look_at_any(LinkMaker(config, SystemClock(), rules=classic), _INSTANCE)
        (queue,) = named_queues([partition.value])
        try:
            found = _look(link, queue, self._options.max_messages)
        finally:
            link.close()
        return _rows(found, DeadLetterNames(classic).true_origin)


def _config(options: DeadLetterOptions) -> Config:
    """Return the configuration of the link; says options of the source where they are wrong."""
    file = None if options.config_file is None else Path(options.config_file)
    try:
        config = load_config(file, options.sets, {})
    except ConfigError as error:
        raise ConfigError(
            [
                Problem(problem.where.replace("--set broker.", "option "), problem.what)
                for problem in error.problems
            ]
        ) from None
    if not config.broker.url:
        what = "is not set: give the broker's address, such as artemis://user@host:61616"
        raise ConfigError([Problem("option url", what)])
    return config


def _look(
    link: LookSession, queue: IntakeQueue, max_messages: int | None
) -> list[tuple[Delivery, int]]:
    """Return a queue's messages without bodies, each with its size: all, or the requested number.

    Raises:
        BrokerRefused: the queue has more; the sentence states how much, and the remedy.
    """
    at_most = max_messages or MAX_MESSAGES
    is_classic = link.description.kind is BrokerKind.CLASSIC
    before = 0 if is_classic else link.count(queue, _COUNT_MAX)
    found = [
        (msgspec.structs.replace(one, message=b""), len(one.message))
        for one in link.browse(queue, at_most)
    ]
    hidden = [item for item in link.left_behind() if item.queue == queue.destination]
    if hidden:
        raise BrokerRefused(f"{queue.destination}: {'; '.join(item.meaning for item in hidden)}")
    for source, number in Counter(delivery.source for delivery, _ in found).items():
        if number >= at_most and max_messages is not None:
            continue
        if number >= at_most or (is_classic and number == CLASSIC_LOOK_MAX):
            raise BrokerRefused(
                f"{source}: a look shows the first {number}, and there may be more: ask for more, "
                f"or for these, by the option max_messages; Classic ends a look at "
                f"maxBrowsePageSize of the policyEntry, {CLASSIC_LOOK_MAX} unless configured"
            )
    # Why twice: other clients may take or add messages meanwhile.
    if len(found) < min(before, at_most) and len(found) < min(
        link.count(queue, _COUNT_MAX), at_most
    ):
        raise BrokerRefused(
            f"{queue.destination}: a look shows {len(found)} of {before}: other readers have "
            f"the others in hand; ask for these by the option max_messages = {len(found)}"
        )
    return found


def _rows(found: Sequence[tuple[Delivery, int]], true_origin: TrueOrigin) -> Iterator[SparkRow]:
    positions: Counter[object] = Counter()
    for delivery, size_bytes in found:
        provenance = delivery.provenance
        origin = provenance.origin
        if origin is not None:
            origin = true_origin(origin, delivery.source)
        cause = provenance.cause
        yield (
            str(delivery.source),
            positions[delivery.source],
            None if origin is None else str(origin),
            cause,
            None if cause is None else cause_group(cause),
            provenance.redelivery_id,
            provenance.redelivery_count,
            provenance.message_id,
            size_bytes or None,
            provenance.persistent,
            provenance.expired,
        )
        positions[delivery.source] += 1
