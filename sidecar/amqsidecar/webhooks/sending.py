"""Sends one notice: its format, its signature, and the addresses that it may go to."""

import asyncio
import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec
from jinja2 import Environment, StrictUndefined

from amqsidecar.errors import ConfigError, SidecarError
from amqsidecar.model.shown import shown_line
from amqsidecar.operations.words import many
from amqsidecar.web_client import Client, Unreachable
from amqsidecar.webhooks.outbox import Kind, Notice, Phase

CLOUDEVENTS: Final = "cloudevents"

# Why without escaping: it makes JSON, by `tojson`, and `encode` reads it again.
_JINJA: Final = Environment(undefined=StrictUndefined, autoescape=False)  # noqa: S701
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
    if not secret.startswith("whsec_"):
        return secret.encode()
    try:
        return base64.b64decode(secret.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        raise NotDelivered("the secret behind whsec_ is not base64") from None


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a subscription's notices.

    Attributes:
        secrets: each adds a signature; empty = not signed.
        template: a file, or the name of a built-in template; `CLOUDEVENTS` = none.
        console: its address; "" = unknown.
        mask: applies `http.masked`.
    """

    url: Callable[[], str]
    secrets: Callable[[], Sequence[str]]
    client: Client
    template: str | Path = CLOUDEVENTS
    console: str = ""
    mask: Callable[[str], str] = str


def send(address: Address, notice: Notice, at_ms: int) -> None:
    """Send a notice, and wait for the answer.

    Raises:
        NotDelivered: it was not accepted; it may have arrived anyway.
    """
    headers = {"webhook-id": notice.id, "webhook-timestamp": str(at_ms // 1000)}
    if address.template == CLOUDEVENTS:
        headers["Content-Type"] = "application/cloudevents+json"
    try:
        secrets, url = address.secrets(), address.url()
        body = encode(address, notice, secrets)
        if secrets:
            headers["webhook-signature"] = sign(secrets, notice.id, at_ms // 1000, body)
        answer = asyncio.run(address.client.ask(url, headers, body))
    except (ConfigError, Unreachable) as error:
        # Why without the URL: it may be a secret.
        raise NotDelivered(str(error)) from error
    if not 200 <= answer.status < 300:
        pause = answer.retry_after
        # Why nine digits: `int` raises for thousands of digits.
        pause_ms = int(pause[:9]) * 1000 if pause.isascii() and pause.isdigit() else None
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
            "source": address.console or "/amqsidecar",
            "type": f"amqsidecar.{notice.matter.kind}.{notice.phase}",
            "time": data["at"],
            "datacontenttype": "application/json",
            **({"subject": notice.matter.destination} if notice.matter.destination else {}),
            "data": {"version": 1, **data},
        }
        return msgspec.json.encode(event)
    secret, path = secrets[0] if secrets else "", address.template
    if not isinstance(path, Path):
        path = Path(__file__).parent / "formats" / f"{path}.json"
    try:
        template = _JINJA.from_string(path.read_text(encoding="utf-8"))
        return msgspec.json.encode(msgspec.json.decode(template.render(data, secret=secret)))
    except Exception as error:
        # Why any: a template may be an operator's, and may call anything.
        raise NotDelivered(f"the template has a fault: {type(error).__name__}") from error


def title_of(notice: Notice) -> str:
    """Return the subject of a notice, with strangers' text as it came."""
    return f"Ended: {notice.matter.text}" if notice.phase is Phase.ENDED else notice.matter.text


def _data(address: Address, notice: Notice) -> Mapping[str, Any]:
    """Return the values for templates; strangers' text is masked and made visible."""
    matter = notice.matter

    def safe(text: str) -> str:
        return shown_line(address.mask(text))

    counted = matter.kind in _COUNTED and notice.phase is not Phase.ENDED
    text = many(matter.count, *_COUNTED[matter.kind]) if counted else ""
    if counted and notice.phase is Phase.UPDATED:
        text += f", {notice.more:,} more since the last notice"
    if counted and matter.marker:
        text += f", {safe(matter.marker)}"
    return {
        "id": notice.id,
        "kind": matter.kind.value,
        "phase": notice.phase.value,
        "title": safe(title_of(notice)),
        "text": text,
        "destination": safe(matter.destination),
        "cause_group": safe(matter.cause_group),
        "reference": safe(matter.reference),
        "marker": safe(matter.marker),
        "count": matter.count,
        "more": notice.more,
        "owner": safe(matter.owner),
        "since": _time(matter.since_ms),
        "at": _time(notice.at_ms),
        "link": address.console and address.console.rstrip("/") + matter.path,
        "key": sha256(matter.key.encode()).hexdigest()[:32],
    }


def _time(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
