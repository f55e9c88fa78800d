"""Finds messages that end a STOMP connection to Classic before anything of them is seen.

What the broker can't convert for STOMP, such as a body that is marked as compressed and is not,
ends the connection, and the error names no message. But selectors are evaluated before: a
connection ends if the selector matches, and so the id is found character by character.
"""

import secrets
import string
from collections.abc import Iterable

from amqsidecar.brokers.classic.link_settings import ClassicLinkSettings
from amqsidecar.brokers.stomp.connection import FrameRefused, StompConnection, error_text
from amqsidecar.brokers.stomp_classic import selectors
from amqsidecar.brokers.stomp_classic.consumers import StompSubscriptions
from amqsidecar.brokers.stomp_classic.intake import IntakeLimits
from amqsidecar.errors import BrokerError, BrokerRefused, LinkLost
from amqsidecar.formats.stomp_classic_message import shown
from amqsidecar.model.destination import Destination

# Bound: time of one search while the link is down; the next lost link continues it.
_AT_MOST_S = 30.0
_ID_CHARACTERS_MAX = 200
# Precedent: a consumer with a selector sees no more messages of a queue (maxPageSize).
_PAGE = 200
# Why not of all at once: a selector is a header, of which Classic takes 10 KiB.
_GROUP = 13
_CHARACTERS = string.digits + ":-." + string.ascii_letters + " !\"#$%&'()*+,/;<=>?@[\\]^_`{|}~"


def note_breakers(
    settings: ClassicLinkSettings, destinations: Iterable[Destination], rules: IntakeLimits
) -> None:
    """Add the ids of messages that end connections, with their queues; takes nothing, never raises.

    Only what is proven is added; a broker that can't be asked, or ends any connection, proves
    nothing.
    """
    clock, unreadable = settings.clock, settings.unreadable
    deadline_s = clock.monotonic_s() + _AT_MOST_S
    hint = ""
    try:
        for destination in destinations:
            while clock.monotonic_s() < deadline_s:
                known = IntakeLimits(rules.allowed_losses, unreadable, rules.utf8_is_modified)
                found = _find(settings, destination, known, hint)
                if found is None:
                    break
                unreadable[found] = destination.name
                hint = found
    except (BrokerError, FrameRefused):
        return


def _find(
    settings: ClassicLinkSettings, destination: Destination, rules: IntakeLimits, hint: str
) -> str | None:
    ids = rules.unreadable_in(destination)
    # Why both: others, which we only count, may be too large to reach it.
    for among in (selectors.takes(rules.allowed_losses, ids), selectors.readable(ids)):
        search = _Search(settings, destination, among)
        found = search.find(hint)
        if found is not None:
            return found
    return None


class _Search:
    """Looks for one of them among the messages that a selector matches; "" = all."""

    def __init__(self, settings: ClassicLinkSettings, destination: Destination, among: str) -> None:
        self._settings = settings
        self._destination = destination
        self._among = among
        self._neighbour = ""

    def find(self, hint: str) -> str | None:
        """Return the id of one; None = none, or an id that no client makes.

        Args:
            hint: an id that may be similar.

        Raises:
            BrokerError: the broker can't be asked.
        """
        if not self._breaks("1 = 1") or self._breaks("1 = 0"):
            return None
        name = self._common(self._neighbour or hint)
        while len(name) < _ID_CHARACTERS_MAX:
            following = self._following(name)
            if following is None:
                return name if self._breaks(selectors.only(name)) else None
            name += following
        return None

    def _common(self, hint: str) -> str:
        """Return as much as one of them has in common with another id."""
        shortest, longest = 0, len(hint)
        while shortest < longest:
            middle = (shortest + longest + 1) // 2
            if self._breaks(selectors.begins(hint[:middle], [""])):
                shortest = middle
            else:
                longest = middle - 1
        return hint[:shortest]

    def _following(self, name: str) -> str | None:
        """Return a character that follows in an id that begins like this; None = none does."""
        for start in range(0, len(_CHARACTERS), _GROUP):
            group = _CHARACTERS[start : start + _GROUP]
            if not self._breaks(selectors.begins(name, group)):
                continue
            while len(group) > 1:
                half = group[: len(group) // 2]
                is_in_half = self._breaks(selectors.begins(name, half))
                group = half if is_in_half else group[len(half) :]
            return group
        return None

    def _breaks(self, selector: str) -> bool:
        """Receive a selector's messages on a separate connection; return whether they end it.

        Raises:
            BrokerError: the broker can't be asked.
        """
        both = f"({selector}) AND {self._among}" if self._among else selector
        client_id = f"amqsidecar-breakers-{secrets.token_hex(6)}"
        endpoint, clock = self._settings.endpoint, self._settings.clock
        connection = StompConnection(endpoint, clock, client_id=client_id)
        try:
            StompSubscriptions(connection, clock).browse(self._destination, _PAGE, both)
        except LinkLost:
            if not connection.was_ended or connection.errors:
                raise
            latest = connection.latest
            if latest.command == "MESSAGE":
                self._neighbour = shown(latest).message_id.decode(errors="replace")
            return True
        except FrameRefused as cause:
            raise BrokerRefused(error_text(cause.frame)) from cause
        finally:
            connection.close()
        return False
