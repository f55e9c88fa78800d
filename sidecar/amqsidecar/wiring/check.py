"""`run --check`: reads all files and options of a start, without a start."""

from collections.abc import Callable, Collection, Iterator
from typing import Final

from amqsidecar.clock import SystemClock
from amqsidecar.config.copy_keys import copy_keys
from amqsidecar.config.schema import Config
from amqsidecar.config.secrets import secret_in
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.config.tls_context import tls_context
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy.classic_rules import BROKER_DEFAULTS
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import compile_policy, with_plugins
from amqsidecar.wiring.parts import access_settings, require_url
from amqsidecar.wiring.rules import (
    load_gates,
    load_grouping,
    load_links,
    load_retention,
    load_rules,
)
from amqsidecar.wiring.schedules import check_store


def check_configuration(config: Config, awaited: Collection[str] = ()) -> tuple[str, ...]:
    """Read all that a start reads before it asks a broker or a store; return warnings about rules.

    Args:
        config: all options.
        awaited: options whose files do not exist yet; their parts are not read.

    Raises:
        ConfigError: with every problem that would end that start.
    """
    problems: list[Problem] = []
    warnings: tuple[str, ...] = ()
    for read, files in _READERS:
        if any(one.startswith(files) for one in awaited):
            continue
        try:
            if isinstance(found := read(config), Rules):
                warnings = found.warnings
        except ConfigError as error:
            problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return warnings


def _rules(config: Config) -> Rules:
    plugins = load_plugins()
    rules = load_rules(config, plugins)
    rules = rules or with_plugins(BROKER_DEFAULTS, load_links(config, plugins))
    compile_policy(rules, plugins)
    return rules


def _login(config: Config) -> None:
    for url in config.broker.url:
        config.broker.password(url)
    for key, path in config.broker.token_files():
        secret_in(path, key)


def _certificates(config: Config) -> None:
    if any(url.uses_tls for url in config.broker.url):
        tls_context(config.broker.tls)


def _store(config: Config) -> None:
    if config.store.url != BROKER_HELD:
        config.store.password()
        check_store(config, SystemClock())


def _access(config: Config) -> None:
    if config.http.listen:
        from amqsidecar.http.authentication.setup import set_up  # noqa: PLC0415 - see `ProcessParts.serving`

        set_up(access_settings(config), SystemClock())


def _journal(config: Config) -> None:
    if config.journal.path:
        from amqsidecar.journals.folder import open_folder  # noqa: PLC0415 - only where it is wanted

        open_folder(config.journal.path, "check", lambda: None)


def _webhooks(config: Config) -> None:
    if config.webhooks.subscriptions:
        from amqsidecar.wiring.webhooks import addresses  # noqa: PLC0415 - only where it is wanted

        addresses(config)


_READERS: Final[tuple[tuple[Callable[[Config], object], tuple[str, ...]], ...]] = (
    (require_url, ()),
    (_rules, ("policy.source",)),
    (load_gates, ()),
    (load_grouping, ()),
    (load_retention, ()),
    (
        _login,
        (
            *("broker.password_file", "broker.token_file"),
            *("broker.oidc.client_secret_file", "broker.oidc.client_key_file"),
        ),
    ),
    (_certificates, ("broker.tls.ca_file", "broker.tls.cert_file", "broker.tls.key_file")),
    (copy_keys, ("listener.copy_key_file",)),
    (_store, ("store.password_file",)),
    (
        _access,
        (
            *("http.tokens_file", "http.users_file", "http.roles_file"),
            *("http.session_key_file", "http.oidc.client_secret_file"),
        ),
    ),
    (_journal, ()),
    (_webhooks, ("webhooks.",)),
)
"""Parts of the configuration, and the options that name their files, or how these begin."""

FILES: Final = frozenset(file for _, files in _READERS for file in files if file[-1] != ".")
"""Every option that names a file of a start, but those of webhooks."""


def files_of_start(config: Config) -> Iterator[str]:
    """Yield every option that names a file of a start."""
    yield from FILES
    for name in config.webhooks.subscriptions:
        for file in ("url_file", "secret_file", "ca_file"):
            yield f"webhooks.subscriptions.{name}.{file}"
