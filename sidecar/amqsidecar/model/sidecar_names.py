"""Names of queues and message properties that the sidecar itself gives in the broker."""

FINAL_SUFFIX = ".exhausted"
"""The default suffix of final dead-letter queues; they are never read."""

OWN_PREFIX = "amqsidecar."
"""How the names of all queues begin that the sidecar makes or reads for itself."""

INTERCEPTED = "amqsidecar.intercepted"
"""The queue of messages that the listener saved when their consumers gave them up."""

CAUSES = "amqsidecar.causes"
"""By convention the queue of consumers' notes; its name, or how the names of several begin."""

EVENTS = "amqsidecar.events"
"""The queue of reports of events outside, or how the names of several begin."""

PROPERTY_REDELIVERY_ID = "amqsidecarRedeliveryId"
PROPERTY_REDELIVERY_COUNT = "amqsidecarRedeliveryCount"
PROPERTY_REDELIVERY_DELAY = "redeliveryDelay"
PROPERTY_REDELIVERY_CHECK = "amqsidecarRedeliveryCheck"
"""Fits only the message that the sidecar sent, not a copy; see `formats/redelivery_mark.py`."""

PROPERTY_ORIGINAL_MESSAGE_ID = "amqsidecarOriginalMessageId"
PROPERTY_ORIGINAL_DESTINATION = "amqsidecarOriginalDestination"
"""Where a final dead letter died; over STOMP only the broker can write its own field."""

PROPERTY_ORIGINAL_DUPLICATE_ID = "amqsidecarOriginalDuplicateId"
"""The producer's `_AMQ_DUPL_ID`: under its own name it would make the broker drop the re-send."""

PROPERTY_CAUSE = "amqsidecarCause"
"""In which a consumer may say why it gave a message up; a redelivery is without it."""

PROPERTY_SEAL = "amqsidecarSeal"
"""On copies in `INTERCEPTED`: proves that the listener wrote them; see `interception_seal.py`."""

PROPERTY_RULES_DIGEST = "amqsidecarRules"
"""On tokens: `rules_digest` of the sidecar that sent it; older programs sent none."""
