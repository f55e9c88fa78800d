"""Warnings of rules: sentences with an id, from `warnings.toml`."""

from functools import cache
from importlib.resources import files
from typing import Self

import msgspec

from amqsidecar.policy.rule_source import RuleSource


class PolicyWarning(str):
    """One sentence about rules, behind its place."""

    __slots__ = ("id",)
    id: str

    def __new__(cls, text: str, id_: str = "") -> Self:
        """Return the sentence with its id."""
        self = super().__new__(cls, text)
        self.id = id_
        return self


@cache
def sentences() -> dict[str, str]:
    """Return the sentences by their ids."""
    table = files("amqsidecar.policy_source").joinpath("warnings.toml").read_bytes()
    return msgspec.toml.decode(table, type=dict[str, str])


def policy_warning(id_: str, source: RuleSource | str, /, **values: object) -> PolicyWarning:
    """Return the warning of a place, with the values that its sentence names."""
    return PolicyWarning(f"{source}: {sentences()[id_].format(**values)}", id_)
