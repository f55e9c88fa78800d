"""The properties of messages that the journal keeps."""

from amqsidecar.config.schema import Config
from amqsidecar.engine.judging.judge import PropertiesOf, no_properties
from amqsidecar.messages.kept_message import chosen_properties


def journaled_properties(config: Config) -> PropertiesOf:
    """Return the reader of the properties that `journal.properties` names."""
    names = config.journal.properties
    return chosen_properties(names) if names else no_properties
