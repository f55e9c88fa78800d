"""Every packet of Core beside the broker's own classes, which read it and write it again."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amqsidecar.formats.core import message_packets, packets
from amqsidecar.formats.core.framing import CoreFrameSplitter, frame
from amqsidecar.formats.core.message import CoreMessage, read_core_properties
from amqsidecar.formats.core.packet_format import CorePacket
from amqsidecar.formats.core.primitives import Connector
from support import maven, versions
from support.machine.processes import run_program
from support.tier import at_length
from support.wires.core_strategies import packets_of

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parent
EXAMPLES = at_length(1000, otherwise=40)
# What a broker sends is read by the client's decoder.
FROM_BROKER = (message_packets.ReceiveMessage, message_packets.ReceiveLarge)

CLASSES_OF_THE_CLIENT = {"SessionReceiveLargeMessage": "SessionReceiveClientLargeMessage"}
# Artemis 2.57 gave these packets another name, not other codes or fields.
RENAMED = {
    "ConnectMessage": "CheckFailoverMessage",
    "ConnectResponseMessage": "CheckFailoverReplyMessage",
}


def test_the_broker_reads_each_packet_as_we_wrote_it_and_we_as_it_writes_it() -> None:
    sent: list[CorePacket] = []

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.tuples(*(packets_of(kind) for kind in packets.FORMATS)))
    def collect(found: tuple[CorePacket, ...]) -> None:
        sent.extend(found)

    collect()
    lines = []
    for packet in sent:
        decoder = "c" if isinstance(packet, FROM_BROKER) else "s"
        whole = frame(packets.code_of(packet), 10, packets.encode(packet))
        lines.append(f"{decoder} {packets.VERSION_MAX} {whole.hex()}")
    answers = asked(lines)
    assert len(answers) == len(sent)
    for packet, answer in zip(sent, answers, strict=True):
        name, _, rest = answer.partition(" ")
        assert name != "refused", (packet, rest)
        source = packets.FORMATS[type(packet)].source.partition("(")[0]
        known = RENAMED.get(name, name)
        assert known == CLASSES_OF_THE_CLIENT.get(source, source), packet
        again = bytes.fromhex(rest)
        [(code, channel, fields)] = CoreFrameSplitter(2**20).feed(again)
        assert (code, channel) == (packets.code_of(packet), 10)
        assert comparable(packets.decode(code, fields)) == comparable(packet)


def comparable(value: Any) -> Any:
    """Return a value without orders that the broker does not keep: of properties, parameters."""
    match value:
        case CoreMessage():
            return value._replace(properties=b""), read_core_properties(value.properties)
        case Connector():
            return value._replace(parameters=()), dict(value.parameters)
        case tuple():
            return [comparable(one) for one in value]
    return value


def asked(lines: list[str]) -> list[str]:
    jars = maven.broker_jars(versions.TESTED["artemis"])
    classes = maven.compiled(str(HERE / "CoreOracle.java"), jars)
    command = [maven.tool("java"), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
    done = run_program(
        [*command, "-cp", f"{classes}:{jars}/*", "CoreOracle"],
        input="\n".join(lines),
        timeout=240,
        code=0,
    )
    return done.stdout.splitlines()
