"""Warnings of rules: sentences with an id, from `warnings.toml`."""

from functools import cache
from importlib.resources import files
from typing import NamedTuple

import msgspec

from amqsidecar.policy.rule_source import RuleSource


class PolicyWarning(NamedTuple):
    """One sentence about rules, behind its place, and its id in `warnings.toml`."""

    id: str
    text: str


@cache
def sentences() -> dict[str, str]:
    """Return the sentences by their ids."""
    table = files("amqsidecar.policy_source").joinpath("warnings.toml").read_bytes()
    return msgspec.toml.decode(table, type=dict[str, str])


def policy_warning(id_: str, source: RuleSource | str, /, **values: object) -> PolicyWarning:
    """Return the warning of a place, with the values that its sentence names."""
    return PolicyWarning(id_, f"{source}: {sentences()[id_].format(**values)}")
