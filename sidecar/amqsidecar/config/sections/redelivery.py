"""Options `redelivery.*`: what redeliveries look like."""

from amqsidecar.broker import FINAL_SUFFIX
from amqsidecar.config.option import Section, option


class RedeliveryOptions(Section):
    """What redeliveries look like."""

    final_suffix: str = option(
        FINAL_SUFFIX,
        "Where the rules' dead-letter queue is one that the sidecar reads, messages that are "
        "given up go to the queue of that name plus this suffix, so that none circles.",
        why="sorts beside its queue",
        min_length=1,
        max_length=64,
        pattern=r"^[A-Za-z0-9._-]+$",
    )
