"""Properties of a kept message that may not be changed, and why."""

from typing import Final

from amqsidecar.model.sidecar_names import (
    PROPERTY_CAUSE,
    PROPERTY_ORIGINAL_DESTINATION,
    PROPERTY_ORIGINAL_DUPLICATE_ID,
    PROPERTY_ORIGINAL_MESSAGE_ID,
    PROPERTY_REDELIVERY_CHECK,
    PROPERTY_REDELIVERY_COUNT,
    PROPERTY_REDELIVERY_DELAY,
    PROPERTY_REDELIVERY_ID,
    PROPERTY_RULES_DIGEST,
)

HEADER: Final = "headers stay as they were sent"
UNREADABLE: Final = "its name can't be decoded"

_COUNTS: Final = "the sidecar recognises and counts the message by it"
_DEATH: Final = "it records where and why the message died"
_SCHEDULE: Final = "the broker would take it as a request for delayed delivery"

_BY_NAME: Final = {
    PROPERTY_REDELIVERY_ID: _COUNTS,
    PROPERTY_REDELIVERY_CHECK: _COUNTS,
    PROPERTY_REDELIVERY_COUNT: _COUNTS,
    PROPERTY_REDELIVERY_DELAY: _COUNTS,
    PROPERTY_ORIGINAL_MESSAGE_ID: _COUNTS,
    PROPERTY_ORIGINAL_DUPLICATE_ID: _COUNTS,
    "amqsidecarCycle": _COUNTS,
    PROPERTY_RULES_DIGEST: _COUNTS,
    PROPERTY_ORIGINAL_DESTINATION: _DEATH,
    PROPERTY_CAUSE: _DEATH,
    "dlqDeliveryFailureCause": _DEATH,
    "originalExpiration": _DEATH,
    "originalDeliveryMode": _DEATH,
    "original-destination": _DEATH,
    "scheduledJobId": _SCHEDULE,
    "NATIVE_MESSAGE_ID": "it is the message's id",
}
_BY_PREFIX: Final = {
    "AMQ_SCHEDULED_": _SCHEDULE,
    "_AMQ_": "it belongs to the broker",
    "_HQ_": "it belongs to the broker",
    "__AMQ_": "it belongs to the broker",
    "__HDR_": "it belongs to the broker",
    "JMS": "names that begin with JMS belong to JMS",
}


def lock_of(name: str) -> str | None:
    """Return why a property of this name stays as it is; None = it may be set or removed."""
    found = _BY_NAME.get(name)
    if found is not None:
        return found
    return next((why for prefix, why in _BY_PREFIX.items() if name.startswith(prefix)), None)
