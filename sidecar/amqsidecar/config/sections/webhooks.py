"""Options `webhooks.*`: messages to people and their programs."""

from collections.abc import Mapping
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import BeforeValidator, PlainValidator, ValidationError

from amqsidecar.config.option import (
    DestinationPatterns,
    OptionalPath,
    Section,
    StrictInt,
    Texts,
    as_texts,
    option,
)
from amqsidecar.config.sections.http import Networks
from amqsidecar.webhooks.outbox import Kind

SUBSCRIPTIONS_MAX: Final = 10
FORMATS: Final = ("cloudevents", "slack", "teams", "pagerduty")
KINDS: Final = tuple(kind for kind in Kind if kind is not Kind.TEST)
PAGERDUTY_URL: Final = "https://events.pagerduty.com/v2/enqueue"


def checked_url(value: object) -> str:
    """Return a URL of https, or "".

    Raises:
        ValueError: it is another one.
    """
    if value in (None, ""):
        return ""
    parts = urlsplit(value) if isinstance(value, str) else None
    if parts is None or parts.scheme != "https" or not parts.hostname or parts.username:
        raise ValueError("expected a URL such as https://hooks.example.com/orders")
    return str(value)


class SubscriptionOptions(Section):
    """One receiver."""

    url: Annotated[str, BeforeValidator(checked_url)] = option(
        "", "Where to POST; `https` only. Empty with `pagerduty` = its own."
    )
    url_file: OptionalPath = option(
        None, "File that holds the URL, where it is a secret, as those of chats are."
    )
    format: str = option(
        FORMATS[0], f"One of {', '.join(FORMATS)} (CloudEvents 1.0, structured mode, in JSON)."
    )
    template_file: OptionalPath = option(
        None,
        "Template (Jinja) of JSON in place of `format`, with the names in `data` of a CloudEvent; "
        "`{{ title|tojson }}` quotes a text.",
    )
    secret_file: OptionalPath = option(
        None,
        "File of secrets, one a line, each of which signs by HMAC-SHA256 as Standard Webhooks say "
        "(`webhook-id`, `webhook-timestamp`, `webhook-signature`); base64 behind `whsec_`, else as "
        "they are. With `pagerduty` the first is the integration key. Read at each notice.",
    )
    ca_file: OptionalPath = option(
        None, "PEM file of the authorities trusted to sign the receiver's certificate."
    )
    events: Annotated[
        tuple[Kind, ...], BeforeValidator(as_texts, json_schema_input_type=str | list[Kind])
    ] = option(
        KINDS,
        "What is reported: `new_cause`, `exhausted` (also when none is left), `operation` (stopped "
        "by itself, or waiting for a second person), `not_recovering` (re-sent messages of a "
        "destination come back), `oldest` (see `oldest_minutes`), `stranded` (no sidecar works on "
        "a schedule).",
    )
    destinations: DestinationPatterns = option(
        (),
        "Patterns of destinations, such as `orders.>`; empty = all, and what has no destination.",
    )
    owners: Texts = option(
        (), "Owners, by the note of a group or `http.metrics_owners`; empty = any."
    )
    oldest_minutes: StrictInt = option(
        1440,
        "Age of the oldest message of a destination from which on `oldest` is reported.",
        unit="minutes",
        ge=1,
        le=525_600,
    )
    allowed_networks: Networks = option(
        (),
        "Networks, such as `10.0.0.0/8`, that may be connected to although they are private, "
        "loopback or link-local.",
    )

    @property
    def about(self) -> str:
        """Its format, receiver and conditions, in a line without secrets."""
        host = f" to {urlsplit(self.url).hostname}" if self.url else ""
        parts = (", ".join(self.events), ", ".join(self.destinations), ", ".join(self.owners))
        return f"{self.format}{host}: {'; '.join(part for part in parts if part)}"

    def problem(self) -> str:
        """Return why it can't work; "" = it can."""
        if self.format not in FORMATS:
            return f"format: expected {', '.join(FORMATS)}, found {self.format!r}"
        if Kind.TEST in self.events:
            return f"events: expected {', '.join(KINDS)}"
        is_named = self.format == "pagerduty" and not self.url_file
        if bool(self.url) + bool(self.url_file) != 1 and not is_named:
            return "give url, or url_file where the URL is a secret"
        if self.format == "pagerduty" and self.secret_file is None:
            return "secret_file: is not set: it holds the integration key of PagerDuty"
        return ""


def _as_subscriptions(value: object) -> Mapping[str, SubscriptionOptions]:
    if not isinstance(value, Mapping):
        raise ValueError("expected a mapping from name to options")  # noqa: TRY004 - pydantic wants it
    if len(value) > SUBSCRIPTIONS_MAX:
        raise ValueError(f"at most {SUBSCRIPTIONS_MAX} subscriptions")
    found = {}
    for name, options in value.items():
        text = str(name)
        if not text.replace("-", "").replace("_", "").isalnum() or len(text) > 40:
            raise ValueError(f"{text!r}: a name has letters, digits, `-` and `_`, 40 at most")
        try:
            found[text] = SubscriptionOptions.model_validate(options)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            key = ".".join([text, *map(str, first["loc"])])
            raise ValueError(f"{key}: {first['msg'].removeprefix('Value error, ')}") from None
        if problem := found[text].problem():
            raise ValueError(f"{text}: {problem}")
    return found


class WebhookOptions(Section):
    """Messages to people and their programs."""

    subscriptions: Annotated[
        Mapping[str, SubscriptionOptions],
        PlainValidator(_as_subscriptions, json_schema_input_type=dict[str, SubscriptionOptions]),
    ] = option(
        {},
        "Receivers by name (`webhooks.md`), such as `orders: {url: "
        "'https://hooks.example.com/orders', secret_file: /run/secrets/hook}`.",
    )
    gather_s: StrictInt = option(
        10,
        "Time from the first sign of a matter to its first notice.",
        why="thousands of deaths of one cause in some seconds are one notice with their number",
        unit="seconds",
        ge=0,
        le=3_600,
    )
    update_s: StrictInt = option(
        900,
        "Least time between notices about the same matter, of which there is more.",
        unit="seconds",
        ge=1,
        le=604_800,
    )
