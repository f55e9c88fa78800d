"""`run --check`: reads what a start reads, without a start."""

from amqsidecar.app import load_rules, require_url
from amqsidecar.app_gates import load_gates
from amqsidecar.app_http import access_settings
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.config.tls_context import tls_context
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy
from amqsidecar.stores.open import open_store


def check_configuration(config: Config) -> None:
    """Read all that a start reads before it asks a broker or a store.

    Raises:
        ConfigError: with every problem that would end that start.
    """
    problems: list[Problem] = []
    for read in (require_url, _rules, load_gates, _to_the_broker, _store, _access, _journal):
        try:
            read(config)
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)


def _rules(config: Config) -> None:
    plugins = load_plugins()
    rules = load_rules(config, plugins)
    if rules is not None:
        compile_policy(rules, plugins)


def _to_the_broker(config: Config) -> None:
    options = config.broker
    for url in options.url:
        options.password(url)
    if any(url.uses_tls for url in options.url):
        tls_context(options.tls)


def _store(config: Config) -> None:
    if config.store.url != BROKER_HELD:
        config.store.password()
        open_store(config, SystemClock())


def _access(config: Config) -> None:
    if config.http.listen:
        from amqsidecar.http.access_setup import set_up  # noqa: PLC0415 - as in app_http

        set_up(access_settings(config), SystemClock())


def _journal(config: Config) -> None:
    if config.journal.path:
        from amqsidecar.journals.folder import open_folder  # noqa: PLC0415 - only where it is wanted

        open_folder(config.journal.path, "check", lambda: None)
