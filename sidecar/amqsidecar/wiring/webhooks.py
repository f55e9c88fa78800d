"""Assembles the threads that report to the subscriptions of `webhooks`."""

import os
import secrets
from typing import Final

from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import secret_in
from amqsidecar.config.sections.webhooks import (
    PAGERDUTY_URL,
    SubscriptionOptions,
    WebhookOptions,
    checked_url,
)
from amqsidecar.config.tls_context import trusted_by
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.masking import Masking
from amqsidecar.runtime.worker import KeptSchedule, Worker
from amqsidecar.web_client import Client, permits
from amqsidecar.webhooks.matters import Matters
from amqsidecar.webhooks.outbox import WantedMatters
from amqsidecar.webhooks.reporting import Reporting
from amqsidecar.webhooks.sending import Address
from amqsidecar.wiring.parts import ProcessParts, owner_of

TIMEOUT_S: Final = 10.0
ANSWER_BYTES: Final = 65_536


def reporting(parts: ProcessParts) -> list[Worker]:
    """Return what reports to the subscriptions.

    Raises:
        ConfigError: a file of a subscription can't be used.
    """
    config, options = parts.config, parts.config.webhooks
    wanted = {name: _wanted(one, options) for name, one in options.subscriptions.items()}
    matters = Matters(
        min(one.oldest_ms for one in wanted.values()),
        parts.clock,
        owner_of(config.http.metrics_owners),
        lambda: parts.health.state().readiness,
    )
    runner = f"{os.getpid()}:{secrets.token_hex(8)}" if config.store.is_shared else ""
    reporters = [
        Reporting(
            name,
            wanted[name],
            address,
            matters,
            schedule=KeptSchedule(parts.open_schedule),
            clock=parts.clock,
            runner=runner,
            metrics=parts.metrics,
            crash_point=parts.crash_point,
        )
        # Why at once: a file that is missing shows at the start, and not at the first notice.
        for name, address in addresses(config).items()
    ]
    return [one.worker for one in reporters]


def addresses(config: Config) -> dict[str, Address]:
    """Return the addresses of subscriptions by name, whose files were read once.

    Raises:
        ConfigError: as `reporting`.
    """
    found = {}
    for name, options in config.webhooks.subscriptions.items():
        address = found[name] = _address(name, options, config)
        address.url()
        address.secrets()
    return found


def _wanted(options: SubscriptionOptions, all_options: WebhookOptions) -> WantedMatters:
    place_of = owner_of(dict.fromkeys(options.destinations, "meant"))
    return WantedMatters(
        kinds=frozenset(options.events),
        is_about=(lambda destination: bool(place_of(destination)))
        if options.destinations
        else None,
        owners=frozenset(options.owners),
        oldest_ms=options.oldest_minutes * 60_000,
        gather_ms=all_options.gather_s * 1000,
        update_ms=all_options.update_s * 1000,
    )


def _address(name: str, options: SubscriptionOptions, config: Config) -> Address:
    key = f"webhooks.subscriptions.{name}"

    def url() -> str:
        if options.url_file is None:
            return options.url or PAGERDUTY_URL
        try:
            return checked_url(secret_in(options.url_file, f"{key}.url_file").reveal().strip())
        except ValueError as error:
            raise ConfigError([Problem(f"{key}.url_file", str(error))]) from error

    def read_secrets() -> list[str]:
        if options.secret_file is None:
            return []
        return secret_in(options.secret_file, f"{key}.secret_file").reveal().split()

    return Address(
        url=url,
        secrets=read_secrets,
        client=Client(
            trusted_by(options.ca_file, f"{key}.ca_file"),
            TIMEOUT_S,
            ANSWER_BYTES,
            permits=permits(options.allowed_networks),
            needs_body=False,
        ),
        template=options.template_file or options.format,
        console=config.http.public_url,
        mask=Masking(patterns=config.http.masked).text,
    )
