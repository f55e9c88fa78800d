"""Options `policy.*`: the rules."""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from pydantic import PlainValidator

from amqsidecar.config.option import KeyedProblem, OptionalPath, Section, option


class TopicPolicy(StrEnum):
    """Treatment of a dead letter of a plain topic on Classic."""

    PARK = "park"
    REPUBLISH = "republish"


class VerdictPolicy(StrEnum):
    """Effect of the verdict in a consumer's note."""

    IGNORE = "ignore"
    OBEY = "obey"


class WaitEnd(StrEnum):
    """The way of a message whose longest wait for an event has passed."""

    RELEASE = "release"
    EXHAUST = "exhaust"


def _as_rules(value: object) -> object:
    if value is None or isinstance(value, Mapping):
        return value
    raise ValueError("expected a mapping in the policy format")


def _as_named(value: object, what: str) -> object:
    """Return a list of mappings with one key each; none where there is no value."""
    if (
        isinstance(value, Sequence)
        and not isinstance(value, str)
        and all(isinstance(one, Mapping) and len(one) == 1 for one in value)
    ):
        return value
    if value is None:
        return ()
    raise ValueError(f"expected a list of {what}")


# Why: the YAML reader's mappings know their lines; a validated copy wouldn't.
RulesText = Annotated[
    Mapping[str, object] | None, PlainValidator(_as_rules, json_schema_input_type=dict[str, Any])
]
# Why no type of its content: each gate reads its own options.
GateTexts = Annotated[
    Sequence[Mapping[str, object]],
    PlainValidator(
        partial(_as_named, what="gates, each with its options, such as `- pace: {...}`"),
        json_schema_input_type=list[dict[str, Any]],
    ),
]
# Why no type: as above.
PluginTexts = Annotated[
    Sequence[Mapping[str, object]],
    PlainValidator(
        partial(_as_named, what="plugins, each with its options, such as `- rules: {...}`"),
        json_schema_input_type=list[dict[str, Any]],
    ),
]


class PolicyOptions(Section):
    """The rules."""

    source: OptionalPath = option(
        None,
        "File with the rules: the broker's own `activemq.xml`, `broker.xml` or "
        "`broker.properties`, an `ActiveMQArtemis` resource, or a `.yaml` in our policy format. "
        "A relative path in a configuration file starts at that file's folder.",
    )
    rules: RulesText = option(
        None,
        "Rules written here, in the policy format of `.yaml` sources; instead of `source`.",
    )
    topics: TopicPolicy = option(
        TopicPolicy.PARK,
        "Classic: treatment of a dead letter of a plain topic: `park` = kept for a person; "
        "`republish` = sent to the topic again, so that all its subscribers get it again.",
        why="one subscriber's failure must not repeat the message for the others",
    )

    plugins: PluginTexts = option(
        (),
        "Rules beyond the broker's, such as `rules` (`rules.md`). They decide before the "
        "broker's rules; the last one decides first, as in the broker.",
    )
    verdicts: VerdictPolicy = option(
        VerdictPolicy.IGNORE,
        "A verdict in a consumer's note (`cause-notes.md`): `ignore` = it is only recorded; "
        "`obey` = it replaces a redelivery that the rules decide: later, elsewhere, or none.",
        why="anyone with the right to write notes would decide about messages",
    )
    wait_ends: WaitEnd = option(
        WaitEnd.RELEASE,
        "What becomes of a message whose longest wait for an event outside has passed: `release` "
        "= it is redelivered; `exhaust` = it goes to its final dead-letter queue.",
    )
    gates: GateTexts = option(
        (),
        "Gates that due redeliveries pass, in this order: `pace`, `breaker`, `windows`, `order`, "
        "or those of other packages (`gates.md`). None = the broker's rules alone decide the time.",
    )

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield two sets of rules."""
        if self.source is not None and self.rules is not None:
            yield "rules", "`source` is set too; remove one of them"
