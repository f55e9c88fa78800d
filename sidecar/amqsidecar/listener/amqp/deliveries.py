"""The unsettled messages of one AMQP client, and their links; no IO."""

from dataclasses import dataclass
from typing import Final

from amqsidecar.formats import amqp_sections as amqp
from amqsidecar.formats.amqp_frames import SOURCE, Performative, read_described
from amqsidecar.listener.bodies import BodyBudget, KeptBody

_CLASSIC_SIGNS = frozenset("*>,")
_HANDLE, _DELIVERY_ID, _SETTLED, _MORE, _ABORTED = 0, 1, 4, 5, 9


LINK_BYTES: Final = 1024
"""Memory of a link or a session without its names."""


class ConsumerLink:
    """A link on which the broker sends.

    Attributes:
        address: address of its source, as the client named it.
        is_topic: the source has the capability `topic`.
        is_shared, is_global: the source has the capability `shared`, `global`.
        is_durable: its subscription outlives the link.
    """

    __slots__ = ("address", "is_durable", "is_global", "is_shared", "is_topic", "name")

    def __init__(self, name: str, source: bytes) -> None:
        code, fields = read_described(source)
        fields = [*(fields if code == SOURCE else []), *[amqp.NULL] * 11][:11]
        address = amqp.scalar(fields[0])
        self.name = name
        self.address = address if isinstance(address, str) else ""
        self.is_durable = amqp.scalar(fields[1]) not in (None, 0)
        # Why a search: capabilities are one symbol or an array of them.
        self.is_topic = b"topic" in fields[10]
        self.is_shared = b"shared" in fields[10]
        self.is_global = b"global" in fields[10]

    @property
    def queue_on_classic(self) -> str:
        """The one queue that it reads on Classic; "" = a topic, or it names several."""
        name = self.address.partition("?")[0]
        return "" if self.is_topic or not _CLASSIC_SIGNS.isdisjoint(name) else name


@dataclass(slots=True, eq=False)
class UnsettledMessage:
    """A message that is not settled."""

    link: ConsumerLink
    body: KeptBody
    is_here: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether it can be saved: it has arrived, and all of it was kept."""
        return self.is_here and self.body.is_kept


class ClientChannel:
    """One session of the client.

    Attributes:
        number: of the client's frames.
        broker_number: of the broker's frames; -1 = the broker has not answered yet.
        named_bytes: memory of the names of links.
    """

    def __init__(self, number: int, budget: BodyBudget) -> None:
        self.number = number
        self.broker_number = -1
        self._budget = budget
        self.named_bytes = 0
        self._asked: dict[str, bytes] = {}
        self._client_names: dict[int, str] = {}
        self._links: dict[int, ConsumerLink] = {}
        self._arriving: dict[int, UnsettledMessage] = {}
        self._messages: dict[int, UnsettledMessage] = {}

    def ask_for(self, attach: Performative) -> None:
        """Note a client's attach that asks for messages."""
        name = attach.text(0)
        handle, source = attach.number(1), attach.field(5)
        self._forget(name)
        self._forget_handle(handle)
        self._asked[name] = source
        self._client_names[handle] = name
        self.named_bytes += 3 * len(name) + len(source) + 2 * LINK_BYTES

    def attach(self, attach: Performative) -> None:
        """Note a broker's attach that sends messages."""
        name = attach.text(0)
        asked = self._asked.get(name, amqp.NULL)
        source = asked if asked != amqp.NULL else attach.field(5)
        self._links[attach.number(1)] = ConsumerLink(name, source)

    def give_back(self, handle: int) -> None:
        """Note that the client ends a link: its unsettled messages return to the broker."""
        name = self._forget_handle(handle)
        self._forget(name)
        for number, link in list(self._links.items()):
            if link.name == name:
                self.detach(number)

    def _forget(self, name: str) -> None:
        """Forget the name of a link."""
        source = self._asked.pop(name, None)
        if source is not None:
            self.named_bytes -= len(name) + len(source) + LINK_BYTES

    def _forget_handle(self, handle: int) -> str:
        """Forget the name that a link has by its handle, and return it; "" = there is none."""
        name = self._client_names.pop(handle, None)
        if name is not None:
            self.named_bytes -= 2 * len(name) + LINK_BYTES
        return name or ""

    def detach(self, handle: int) -> None:
        """Note that the broker ends a link."""
        link = self._links.pop(handle, None)
        self._arriving.pop(handle, None)
        if link is not None:
            gone = [number for number, one in self._messages.items() if one.link is link]
            self.drop(self.take(gone))

    def begin(self, transfer: Performative) -> UnsettledMessage | None:
        """Note a transfer; return the message it is a part of; None = it needs no settlement."""
        handle = transfer.number(_HANDLE)
        message = self._arriving.get(handle)
        if message is None:
            link = self._links.get(handle)
            if link is None or transfer.flag(_SETTLED):
                return None
            message = UnsettledMessage(link, self._budget.new_body(0))
            number = transfer.number(_DELIVERY_ID)
            self.drop(self.take([number]))
            self._messages[number] = message
        if transfer.flag(_ABORTED):
            self._arriving.pop(handle, None)
            message.body.discard()
            return None
        if transfer.flag(_MORE):
            self._arriving[handle] = message
        else:
            self._arriving.pop(handle, None)
        return message

    def covered(self, first: int, last: int) -> list[int]:
        """Return the numbers of the messages that a disposition is about."""
        span = (last - first) & 0xFFFFFFFF
        if span < len(self._messages):
            numbers = ((first + n) & 0xFFFFFFFF for n in range(span + 1))
            return [number for number in numbers if number in self._messages]
        return [n for n in self._messages if (n - first) & 0xFFFFFFFF <= span]

    def are_whole(self, numbers: list[int]) -> bool:
        """Return whether all these messages can be saved."""
        return all(self._messages[number].is_whole for number in numbers)

    def take(self, numbers: list[int]) -> list[UnsettledMessage]:
        """Forget messages, but keep their content; return them."""
        taken = (self._messages.pop(number, None) for number in numbers)
        return [one for one in taken if one is not None]

    @staticmethod
    def drop(messages: list[UnsettledMessage]) -> None:
        """Release the kept bodies of messages."""
        for one in messages:
            one.body.discard()

    def clear(self) -> None:
        """Forget everything."""
        self.drop(self.take(list(self._messages)))
