"""What is tried on which stock broker."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """One run.

    Attributes:
        broker: a name of `stock_brokers`.
        url: with the port of the stock configuration.
        meaning: the mistake in it; "" = none.
        is_short: whether `make test` does it, too.
    """

    broker: str
    url: str
    meaning: str = ""
    is_short: bool = False


_CLASSIC_5, _CLASSIC_6 = "Classic 5.18.3", "Classic 6.3.1"
_ARTEMIS, _OPEN = "Artemis 2.44.0", "Artemis 2.44.0, `--allow-anonymous`"

_NOBODY = "127.0.0.1:1"
CASES = (
    *(
        Case(_CLASSIC_5, url, is_short=True)
        for url in (
            "openwire://localhost:61616",
            "amqp://localhost:5672",
            "stomp://localhost:61613",
        )
    ),
    Case(_CLASSIC_6, "openwire://localhost:61616"),
    Case(_CLASSIC_6, "amqp://localhost:5672", "off in its file"),
    Case(_CLASSIC_6, "stomp://localhost:61613", "off in its file"),
    *(
        Case(_ARTEMIS, url, is_short=True)
        for url in (
            "artemis://admin:admin@localhost:61616",
            "amqp://admin:admin@localhost:5672",
            "stomp://admin:admin@localhost:61613",
        )
    ),
    Case(_ARTEMIS, "amqp://admin:admin@localhost:61616"),
    Case(_OPEN, "artemis://localhost:61616"),
    Case(_OPEN, "amqp://localhost:5672"),
    Case(_OPEN, "stomp://localhost:61613"),
    *(Case(_CLASSIC_5, f"{wire}://{_NOBODY}", "wrong port") for wire in ("openwire", "amqp")),
    Case(_CLASSIC_5, f"stomp://{_NOBODY}", "wrong port"),
    *(
        # Why not short: in which words depends on the machine's resolver.
        Case(_CLASSIC_5, f"{wire}://no-such-host.invalid", "no such host")
        for wire in ("openwire", "amqp", "stomp")
    ),
    Case(_CLASSIC_5, "openwire://localhost:5672", "the port of AMQP", is_short=True),
    Case(_CLASSIC_5, "openwire://localhost:61613", "the port of STOMP"),
    Case(_CLASSIC_5, "amqp://localhost:61616", "the port of OpenWire"),
    Case(_CLASSIC_5, "amqp://localhost:61613", "the port of STOMP"),
    Case(_CLASSIC_5, "stomp://localhost:61616", "the port of OpenWire"),
    Case(_CLASSIC_5, "stomp://localhost:5672", "the port of AMQP"),
    *(
        Case(_CLASSIC_5, f"{wire}://localhost:8161", "the port of the web console", is_short=True)
        for wire in ("openwire", "amqp", "stomp")
    ),
    Case(_ARTEMIS, "openwire://admin:admin@localhost:61616", "not for Artemis", is_short=True),
    *(
        Case(_ARTEMIS, f"{wire}://admin:wrong@localhost:{port}", "wrong password", is_short=True)
        for wire, port in (("artemis", 61616), ("amqp", 5672), ("stomp", 61613))
    ),
    Case(_ARTEMIS, "artemis://localhost:61616", "no user"),
    Case(_ARTEMIS, "amqp://localhost:5672", "no user"),
    Case(_ARTEMIS, "stomp://localhost:61613", "no user"),
    Case(_ARTEMIS, "artemis://admin:admin@localhost:5672", "the port of AMQP"),
    Case(_ARTEMIS, "stomp://admin:admin@localhost:5672", "the port of AMQP"),
    Case(_ARTEMIS, "amqp://admin:admin@localhost:61613", "the port of STOMP"),
    Case(_ARTEMIS, "amqp://admin:admin@localhost:8161", "the port of the web console"),
)
