"""Markers: what happened at a time, such as a deployment, for charts, groups and reports."""

import msgspec

from amqsidecar.model.destination_pattern import covers


class Marker(msgspec.Struct, frozen=True, kw_only=True):
    """A remark of people or a deployment pipeline about a time; stores keep each pattern's latest.

    Attributes:
        text: in a few words.
        destination: the pattern of what it concerns, canonical text; "" = all destinations.
        author: its writer, as events name people; "" = not known.
    """

    at_ms: int
    text: str
    destination: str = ""
    author: str = ""

    def concerns(self, destination: str) -> bool:
        """Whether a destination, canonical text, is among those that it concerns."""
        return covers(self.destination, destination)
