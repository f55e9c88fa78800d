"""Wires `intake.group_by`: the groups of failures by what messages hold."""

from typing import Final

from amqsidecar.broker import Delivery
from amqsidecar.config.schema import Config
from amqsidecar.engine.judging.death_groups import FieldsOf, no_fields
from amqsidecar.messages.fields import Field, FieldKind, OpenMessage, parse_field
from amqsidecar.model.destination import Destination
from amqsidecar.policy.gate_entries import EntryFinder, read_entries
from amqsidecar.policy.option_reader import OptionReader
from amqsidecar.policy.rule_source import parse_source

GROUP_BY_KEY: Final = "intake.group_by"

FIELDS_MAX: Final = 8
"""Fields of one entry."""


def load_grouping(config: Config) -> FieldsOf:
    """Return the finder of the fields that divide groups.

    Raises:
        ConfigError: with every problem found.
    """
    if not config.intake.group_by:
        return no_fields
    source = parse_source(config.origin(GROUP_BY_KEY))
    entries = EntryFinder(read_entries(config.intake.group_by, source, _read_fields))

    def find_fields(delivery: Delivery, place: Destination) -> list[tuple[str, str]]:
        fields = entries.find(place)
        if fields is None:
            return []
        message = OpenMessage(delivery.encoding, delivery.message)
        count = str(delivery.provenance.redelivery_count)
        values = [
            (field.label, count if field.kind is FieldKind.REDELIVERIES else message.value(field))
            for field in fields
        ]
        return [(label, value) for label, value in values if value]

    return find_fields


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
