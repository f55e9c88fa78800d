"""Makes the tokens that a configuration logs in with."""

from collections.abc import Callable, Sequence
from pathlib import Path

from amqsidecar.brokers.connection.bearer_tokens import BearerTokens, token_in_file
from amqsidecar.clock import Clock
from amqsidecar.config.secrets import secret_in
from amqsidecar.config.sections.broker import BrokerOptions


def broker_tokens(options: BrokerOptions, clock: Clock) -> Sequence[BearerTokens]:
    """Return the tokens of these options, none or one; nothing is read yet.

    Args:
        options: of the broker.
        clock: the machine's own.
    """
    if options.token_file is not None:
        return [token_in_file(_reader(options.token_file, "broker.token_file"), clock)]
    oidc = options.oidc
    is_key = oidc.client_key_file is not None
    proof_file = oidc.client_key_file if is_key else oidc.client_secret_file
    if not oidc.issuer or proof_file is None:
        return []
    # Why here: only this needs the libraries of OpenID Connect.
    from amqsidecar.brokers.connection.client_credentials import (  # noqa: PLC0415
        OidcClient,
        tokens_of_provider,
    )

    name = "client_key_file" if is_key else "client_secret_file"
    client = OidcClient(
        issuer=oidc.issuer,
        client_id=oidc.client_id,
        proof=_reader(proof_file, f"broker.oidc.{name}"),
        is_key=is_key,
        scopes=oidc.scopes,
        audience=oidc.audience,
    )
    return [tokens_of_provider(client, clock)]


def _reader(path: Path, key: str) -> Callable[[], str]:
    return lambda: secret_in(path, key).reveal()
