"""Assembles the threads that report to the subscriptions of `webhooks`."""

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import secret_in
from amqsidecar.config.sections.webhooks import PAGERDUTY_URL, SubscriptionOptions, checked_url
from amqsidecar.config.tls_context import trusted_by
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.http.masking import Masking
from amqsidecar.web_client import permits
from amqsidecar.webhooks.matters import WantedMatters
from amqsidecar.webhooks.outbox import NoticePace
from amqsidecar.webhooks.reporting import Reporting, WebhookSubscription
from amqsidecar.webhooks.sending import Address
from amqsidecar.wiring.parts import ProcessParts, owner_of


@contextmanager
def reporting(parts: ProcessParts) -> Iterator[None]:
    """Report to the subscriptions while the block runs.

    Raises:
        ConfigError: a file of a subscription can't be used.
    """
    config, options = parts.config, parts.config.webhooks
    pace = NoticePace(gather_ms=options.gather_s * 1000, update_ms=options.update_s * 1000)
    runner = f"{os.getpid()}:{secrets.token_hex(8)}"
    reporters = []
    for name, subscription in options.subscriptions.items():
        address = _address(name, subscription, config)
        # Why at once: a file that is missing shows at the start, and not at the first notice.
        address.url()
        address.secrets()
        address.tls()
        wanted = _wanted(subscription)
        reporters.append(
            Reporting(
                WebhookSubscription(name=name, wanted=wanted, address=address, pace=pace),
                open_schedule=parts.open_schedule,
                clock=parts.clock,
                runner=runner,
                is_shared=config.store.is_shared,
                owner_of=owner_of(config.http.metrics_owners),
                readiness=lambda: parts.health.state().readiness,
                metrics=parts.metrics,
                crash_point=parts.crash_point,
            )
        )
    with ExitStack() as stack:
        for reporter in reporters:
            stack.enter_context(reporter.worker)
        yield


def _wanted(options: SubscriptionOptions) -> WantedMatters:
    place_of = owner_of(dict.fromkeys(options.destinations, "meant"))
    return WantedMatters(
        kinds=frozenset(options.events),
        is_about=(lambda destination: bool(place_of(destination)))
        if options.destinations
        else None,
        owners=frozenset(options.owners),
        oldest_ms=options.oldest_minutes * 60_000,
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
        tls=partial(trusted_by, options.ca_file, f"{key}.ca_file"),
        permits=permits(options.allowed_networks),
        template=options.template_file or options.format,
        source=config.http.public_url or "/amqsidecar",
        console=config.http.public_url,
        mask=Masking(patterns=config.http.masked).text,
    )
