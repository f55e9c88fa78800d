"""Options `intake.*`, `discovery.*` and `cycle.*`: which queues are read, and how fast."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, PlainValidator

from amqsidecar.config.option import Entries, Section, StrictInt, Texts, as_texts, option
from amqsidecar.model.destination import Destination, parse_destination
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.sidecar_names import PROPERTY_CAUSE


class DiscoveryOptions(Section):
    """Finding dead-letter queues."""

    interval_s: StrictInt = option(
        60,
        "How often the broker is asked for new dead-letter queues and changed settings.",
        unit="seconds",
        ge=1,
        le=86_400,
    )


class CycleOptions(Section):
    """How much is done in one exactly-once unit of work."""

    max_messages: StrictInt = option(
        0,
        "Maximum messages that one cycle takes and sends; 0 = the broker's best value.",
        why="the measured optimum differs between brokers",
        unit="messages",
        ge=0,
        le=100_000,
    )
    max_wait_ms: StrictInt = option(
        500,
        "Maximum sleep of the service while nothing arrives and nothing is due; commands such "
        "as `retry` take effect within this time.",
        why="hardly noticeable, and two wake-ups a second are cheap",
        unit="milliseconds",
        ge=1,
        le=60_000,
    )


class Backlog(StrEnum):
    """Treatment of dead letters that were there before the sidecar."""

    HOLD = "hold"
    PROCESS = "process"


class Producers(StrEnum):
    """Which applications' messages die in the dead-letter queues that are read."""

    ANY = "any"
    AMQP = "amqp"


def _as_origins(value: object) -> Mapping[str, Destination]:
    what = "expected a mapping from dead-letter queue to origin, such as DLQ.orders: orders"
    if not isinstance(value, Mapping):
        raise ValueError(what)  # noqa: TRY004 - pydantic wants it
    origins = {}
    for name, origin in value.items():
        if isinstance(origin, Destination):
            origins[str(name)] = origin
        elif isinstance(name, str) and name and isinstance(origin, str) and origin:
            origins[name] = parse_destination(origin)
        else:
            raise ValueError(what)
    return origins


DeclaredOrigins = Annotated[
    Mapping[str, Destination],
    PlainValidator(_as_origins, json_schema_input_type=dict[str, str]),
    PlainSerializer(
        lambda origins: {name: str(origin) for name, origin in origins.items()},
        return_type=dict[str, str],
    ),
]


AllowedLosses = Annotated[
    tuple[Loss, ...], BeforeValidator(as_texts, json_schema_input_type=list[Loss])
]


class IntakeOptions(Section):
    """Reading dead letters."""

    queues: Texts = option(
        (),
        "Dead-letter queues to read from; on Classic with the broker's wildcards, such as "
        "`DLQ.>`. Empty = find them from the live broker.",
    )
    backlog: Backlog = option(
        Backlog.HOLD,
        "Dead letters that are in a queue when the sidecar first reads it: `hold` = kept until "
        "a person releases them, if there are more than `backlog_threshold`; `process` = "
        "decided like any other.",
        why="a year of old failures must not be re-sent by starting a tool",
    )
    backlog_threshold: StrictInt = option(
        100,
        "Up to this number of old dead letters of a queue is processed even with `backlog: hold`.",
        unit="messages",
        ge=0,
    )
    origin: DeclaredOrigins = option(
        {},
        "Classic over AMQP, where messages do not show their origin: for each shared "
        "dead-letter queue, the queue that its messages died in.",
    )
    producers: Producers = option(
        Producers.ANY,
        "Classic over AMQP on a connector without `transport.transformer=jms`: `amqp` = read only "
        "the dead letters that AMQP applications have made, which that connector carries whole.",
    )
    allow_lossy: AllowedLosses = option(
        (),
        "Permitted losses over STOMP: `body_type` = Map, Object and Stream bodies, and whether "
        "it was Text or Bytes; `property_types` = numbers and booleans among the properties "
        "become strings; `group` = `JMSXGroupID` and `JMSXGroupSeq`. A message that would lose "
        "anything else is not taken. Classic over AMQP: `body_type` = the losses in "
        "deploy/reference/wires.md.",
    )
    cause_properties: Texts = option(
        (PROPERTY_CAUSE,),
        "Application properties in which consumers state why they gave up a message; the first "
        "one present replaces the broker's cause (`causes.md`).",
    )
    cause_notes: str = option(
        "",
        "Queue in which consumers write why they failed, `amqsidecar.causes` by convention "
        "(`cause-notes.md`); it is read beside the dead-letter queues. Empty = none is read.",
    )
    events: str = option(
        "",
        "Queue of reports of events outside, `amqsidecar.events` by convention; the body of each "
        "message is the name of an event (`operations.md`). Empty = none is read.",
        why="anyone with the right to write there would release messages",
    )
    group_by: Entries = option(
        {},
        "Additional fields that divide groups of failures, by destination: `entries`, each "
        "with a pattern and `fields`, and `default_entry` (`causes.md`). Every viewer sees "
        "their values. Empty = groups by cause only, and no body is opened.",
    )
    prefetch: StrictInt = option(
        0,
        "Maximum dead letters that the broker delivers ahead of their cycle, over all queues; 0 = "
        "the broker's best value.",
        why="when the link breaks, Artemis counts a failed delivery for each; Classic does not",
        unit="messages",
        ge=0,
        le=100_000,
    )
