"""Wires `intake.group_by`: the groups of failures by what messages hold."""

from typing import Final

from amqsidecar.broker import Delivery
from amqsidecar.config.schema import Config
from amqsidecar.engine.judging.judge import DeathGroupOf
from amqsidecar.messages.fields import Field, FieldKind, OpenMessage, parse_field
from amqsidecar.model.destination import Destination
from amqsidecar.model.failure import failure_cause, group_with
from amqsidecar.policy.gate_entries import EntryFinder, read_entries
from amqsidecar.policy.option_reader import OptionReader
from amqsidecar.policy.rule_source import parse_source

GROUP_BY_KEY: Final = "intake.group_by"

FIELDS_MAX: Final = 8
"""Fields of one entry."""


def load_grouping(config: Config) -> DeathGroupOf | None:
    """Return the finder of groups that the configuration names; None = it names none.

    Raises:
        ConfigError: with every problem found.
    """
    if not config.intake.group_by:
        return None
    source = parse_source(config.origin(GROUP_BY_KEY))
    entries = EntryFinder(read_entries(config.intake.group_by, source, _read_fields))

    def death_group(delivery: Delivery, origin: Destination | None, cause: str | None) -> str:
        fields = entries.find(origin or delivery.source)
        if fields is None:
            return ""
        message = OpenMessage(delivery.encoding, delivery.message)
        count = str(delivery.provenance.redelivery_count)
        values = [
            (field.label, count if field.kind is FieldKind.REDELIVERIES else message.value(field))
            for field in fields
        ]
        found = [(label, value) for label, value in values if value]
        if not found:
            return ""
        return group_with(failure_cause(cause, expired=delivery.provenance.expired), found)

    return death_group


def _read_fields(entry: OptionReader) -> tuple[Field, ...]:
    fields = []
    for text in entry.texts("fields"):
        try:
            fields.append(parse_field(text))
        except ValueError as error:
            entry.fail("fields", str(error))
    if not 0 < len(fields) <= FIELDS_MAX:
        entry.fail("fields", f"expected 1 to {FIELDS_MAX} fields, found {len(fields)}")
    return tuple(fields)
