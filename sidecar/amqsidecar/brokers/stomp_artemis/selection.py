"""Selects the dead letters that STOMP reads on Artemis, messages of STOMP clients; sans-IO.

They have only text in their properties, and a body that is text or bytes: they come whole. Frames
of other messages show neither body type nor property types (a Map arrives as garbage, an Object
empty, and a Stream is never sent but fills our window, or even removes our consumer). Selectors
can't tell these types either, so such messages stay in their queue.
"""

from typing import Final

from amqsidecar.brokers.artemis.left_behind import MADE_BY_AMQP
from amqsidecar.brokers.artemis.left_behind import MADE_BY_OTHERS as NOT_MADE_BY_AMQP
from amqsidecar.formats.stomp_frame import MESSAGE_BYTES_MAX, OTHER_BYTES_MAX

# Why two thirds: Core counts a text as UTF-16, and two bytes of it may be three of a frame.
_LARGE_BYTES_MAX: Final = (MESSAGE_BYTES_MAX - OTHER_BYTES_MAX) * 2 // 3
_LARGE_SIZE: Final = "_AMQ_LARGE_SIZE"
_IS_TOO_LARGE: Final = f"{_LARGE_SIZE} > {_LARGE_BYTES_MAX}"
_BY_STOMP: Final = (
    "destination IS NOT NULL AND __AMQ_CID IS NULL AND NATIVE_MESSAGE_ID IS NULL AND "
    f"{NOT_MADE_BY_AMQP}"
)
TOO_LARGE_BY_STOMP: Final = f"{_BY_STOMP} AND {_IS_TOO_LARGE}"
# Why no "<=": a text of that name, which a sender may give, is neither more nor less.
MADE_BY_STOMP: Final = f"{_BY_STOMP} AND ({_LARGE_SIZE} IS NULL OR NOT ({_IS_TOO_LARGE}))"
"""Every SEND leaves its destination behind as a property; JMS clients of Artemis their id.

Messages that may exceed a frame are left out: their frame would end each connection.
"""

MADE_BY_OTHERS: Final = (
    "(destination IS NULL OR __AMQ_CID IS NOT NULL OR NATIVE_MESSAGE_ID IS NOT NULL OR "
    f"{MADE_BY_AMQP})"
)

NOT_STOMP_MADE: Final = "not_stomp_made"
TOO_LARGE: Final = "too_large"
WITHHELD: Final = "withheld"

NOT_TAKEN: Final = (
    "made by other clients than STOMP (JMS, AMQP, MQTT), with types that STOMP does not carry: use "
    "artemis:// in broker.url, which takes them whole"
)
MEANINGS: Final = {
    NOT_STOMP_MADE: NOT_TAKEN,
    WITHHELD: (
        "the broker does not deliver them although they are selected: a message group belongs to "
        "one consumer, and the messages behind it wait, too; find another consumer of this "
        "dead-letter queue and end it"
    ),
    TOO_LARGE: (
        f"larger than {_LARGE_BYTES_MAX} bytes as Artemis counts them (two for each character of a "
        "text), so that a frame of STOMP may not hold them: use artemis://"
    ),
}
