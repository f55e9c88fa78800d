"""The description of Core has a row for each packet, as the code has it."""

from pathlib import Path

import pytest

from amqsidecar.formats.core.packets import FORMATS, PacketFormat

PAGE = Path(__file__).parents[2] / "sidecar" / "internals" / "core-protocol.md"


def row(name: str, packet: PacketFormat) -> str:
    """Return the line of a packet; fields that an older broker may leave out are in brackets."""
    needed = [
        f"{field.name}: {field.kind.name}" for field in packet.fields if not field.is_optional
    ]
    more = [f"{field.name}: {field.kind.name}" for field in packet.fields if field.is_optional]
    fields = "; ".join([*needed, *([f"[{'; '.join(more)}]"] if more else [])]) or "-"
    return f"| {packet.code} | `{name}` | `{packet.source}` | {fields} |"


@pytest.mark.parametrize("packet", FORMATS, ids=lambda packet: packet.__name__)
def test_a_packet_is_described_as_it_is(packet: type) -> None:
    assert row(packet.__name__, FORMATS[packet]) in PAGE.read_text(encoding="utf-8").splitlines()


def test_no_other_packet_is_described() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if "` | `" in line]
    assert len(rows) == len(FORMATS)
