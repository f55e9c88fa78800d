"""Sends one notice: its format, its signature, and the addresses that it may go to."""

import asyncio
import base64
import binascii
import hmac
import ssl
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from importlib import resources
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import msgspec
from jinja2 import Environment, StrictUndefined

from amqsidecar.errors import SidecarError
from amqsidecar.model.shown import shown_line
from amqsidecar.operations.words import many
from amqsidecar.web_client import Client, Unreachable
from amqsidecar.webhooks.outbox import Kind, Matter, Notice, Phase

TIMEOUT_S: Final = 10.0
ANSWER_BYTES: Final = 65_536
CLOUDEVENTS: Final = "cloudevents"
DATA_VERSION: Final = 1
"""Of `data` in a CloudEvent; new fields don't change it."""

_HEADS: Final = {
    Kind.NEW_CAUSE: "New cause at {0.destination}: {0.cause_group}",
    Kind.EXHAUSTED: "Exhausted at {0.destination}: {0.cause_group}",
}
_COUNTED: Final = {
    Kind.NEW_CAUSE: ("death", "deaths"),
    Kind.EXHAUSTED: ("message waits for a person", "messages wait for a person"),
}


class NotDelivered(SidecarError):
    """A notice was not accepted; the text says why.

    Attributes:
        pause_ms: how long the receiver wants to be left alone; None = it does not say.
    """

    def __init__(self, problem: str, pause_ms: int | None = None) -> None:
        super().__init__(problem)
        self.pause_ms = pause_ms


def sign(secrets: Sequence[str], number: str, at_s: int, body: bytes) -> str:
    """Return the header `webhook-signature`: HMAC-SHA256 with each secret."""
    signed = f"{number}.{at_s}.".encode() + body
    made = (hmac.new(_key(one), signed, sha256).digest() for one in secrets)
    return " ".join(f"v1,{base64.b64encode(one).decode()}" for one in made)


def _key(secret: str) -> bytes:
    encoded = secret.removeprefix("whsec_")
    if encoded == secret:
        return secret.encode()
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise NotDelivered("the secret behind whsec_ is not base64") from None


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a subscription's notices go.

    Attributes:
        url: returns the URL.
        secrets: returns the lines of the secret's file; empty = not signed.
        tls: returns the trust in certificates.
        permits: see there.
        template: a file, or the name of one of ours; `CLOUDEVENTS` = none.
        source: of CloudEvents: the console's address, else a name.
        console: the console's address; "" = unknown.
        mask: hides what `http.masked` hides.
    """

    url: Callable[[], str]
    secrets: Callable[[], Sequence[str]]
    tls: Callable[[], ssl.SSLContext]
    permits: Callable[[IPv4Address | IPv6Address], bool]
    template: str | Path = CLOUDEVENTS
    source: str = "/amqsidecar"
    console: str = ""
    mask: Callable[[str], str] = str


def send(address: Address, notice: Notice, at_ms: int) -> None:
    """Send a notice, and wait for the answer.

    Raises:
        NotDelivered: it was not accepted; it may have come all the same.
        ConfigError: a file can't be used.
    """
    secrets = address.secrets()
    body = encode(address, notice, secrets)
    headers = {"webhook-id": notice.id, "webhook-timestamp": str(at_ms // 1000)}
    if address.template == CLOUDEVENTS:
        headers["Content-Type"] = "application/cloudevents+json"
    if secrets:
        headers["webhook-signature"] = sign(secrets, notice.id, at_ms // 1000, body)
    client = Client(address.tls(), TIMEOUT_S, ANSWER_BYTES, permits=address.permits)
    try:
        answer = asyncio.run(client.ask(address.url(), headers, body))
    except Unreachable as error:
        # Why without the URL: it may be a secret.
        raise NotDelivered(str(error)) from error
    if not 200 <= answer.status < 300:
        pause = answer.retry_after
        pause_ms = int(pause) * 1000 if pause.isascii() and pause.isdigit() else None
        raise NotDelivered(f"the receiver answers {answer.status}", pause_ms)


def encode(address: Address, notice: Notice, secrets: Sequence[str] = ()) -> bytes:
    """Return the body of a notice in the format of an address.

    Raises:
        NotDelivered: the template has a fault.
    """
    data = _data(address, notice)
    if address.template == CLOUDEVENTS:
        event = {
            "specversion": "1.0",
            "id": notice.id,
            "source": address.source,
            "type": f"amqsidecar.{notice.matter.kind}.{notice.phase}",
            "time": data["at"],
            "datacontenttype": "application/json",
            **({"subject": notice.matter.destination} if notice.matter.destination else {}),
            "data": {"version": DATA_VERSION, **data},
        }
        return msgspec.json.encode(event)
    secret = secrets[0] if secrets else ""
    try:
        text = _environment().from_string(_template(address.template)).render(data, secret=secret)
        return msgspec.json.encode(msgspec.json.decode(text))
    except Exception as error:
        # Why any: a template may be an operator's, and calls what it likes.
        raise NotDelivered(f"the template has a fault: {type(error).__name__}") from error


def _environment() -> Environment:
    # Why without escaping: it makes JSON, by `tojson`, and `encode` reads it again.
    made = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701
    made.filters["slack"] = _slack
    return made


def _slack(text: str) -> str:
    """Return a text in which Slack sees no mention and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _template(template: str | Path) -> str:
    if isinstance(template, Path):
        return template.read_text(encoding="utf-8")
    return (resources.files(__package__) / "formats" / f"{template}.json").read_text("utf-8")


def title_of(notice: Notice) -> str:
    """Return what a notice is about, with strangers' text as it came."""
    matter = notice.matter
    head = _HEADS[matter.kind].format(matter) if matter.kind in _HEADS else matter.text
    return f"Ended: {head}" if notice.phase is Phase.ENDED else head


def _data(address: Address, notice: Notice) -> Mapping[str, Any]:
    """Return what formats are made of; strangers' text is masked, and visible."""
    matter = notice.matter

    def safe(text: str) -> str:
        return shown_line(address.mask(text))

    counted = matter.kind in _COUNTED and notice.phase is not Phase.ENDED
    text = f"{many(matter.count, *_COUNTED[matter.kind])}" if counted else ""
    if counted and notice.phase is Phase.UPDATED:
        text += f", {notice.more:,} more since the last notice"
    return {
        "id": notice.id,
        "kind": matter.kind.value,
        "phase": notice.phase.value,
        "title": safe(title_of(notice)),
        "text": text,
        "destination": safe(matter.destination),
        "cause_group": safe(matter.cause_group),
        "reference": safe(matter.reference),
        "count": matter.count,
        "more": notice.more,
        "owner": safe(matter.owner),
        "since": _time(matter.since_ms),
        "last": _time(matter.last_ms),
        "at": _time(notice.at_ms),
        "link": link_of(address.console, matter, address.mask),
        "key": sha256(matter.key.encode()).hexdigest()[:32],
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")


def link_of(console: str, matter: Matter, mask: Callable[[str], str] = str) -> str:
    """Return the address of a matter's page in the console; "" = the console's is unknown."""
    if not console:
        return ""
    match matter.kind:
        case Kind.NEW_CAUSE | Kind.EXHAUSTED if mask(matter.cause_group) == matter.cause_group:
            pairs = {"destination": matter.destination, "group": matter.cause_group}
            path = f"/groups/one?{urlencode(pairs, errors='replace')}"
        case Kind.OPERATION:
            path = f"/operations/{matter.reference.partition(' ')[0]}"
        case Kind.NEW_CAUSE | Kind.EXHAUSTED | Kind.NOT_RECOVERING | Kind.OLDEST:
            path = f"/groups?{urlencode({'destination': matter.destination}, errors='replace')}"
        case _:
            path = "/"
    return console.rstrip("/") + path
