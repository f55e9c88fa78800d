"""A digest by which the same rules are recognised, wherever they were read."""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec

from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.yaml_writer import to_mapping

_DIGITS = 16


def rules_digest(rules: Rules | None, gates: Sequence[Mapping[str, object]] = ()) -> str:
    """Return the digest of rules; files, lines and comments do not change it.

    Args:
        rules: None = the broker's rules, which all its sidecars have in common.
        gates: with their options, in their order: they decide when messages are sent.
    """
    content = None if rules is None else to_mapping(rules)
    encoded = msgspec.json.encode(content, enc_hook=str)
    if gates:
        encoded += msgspec.json.encode(gates, enc_hook=_plain, order="deterministic")
    return sha256(encoded).hexdigest()[:_DIGITS]


def _plain(value: object) -> object:
    """Return the JSON form of a value of a YAML file."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return list(value)
    return str(value)
