"""Roles with rights by destination, out of `http.roles_file`, and who has them."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final

import msgspec

from amqsidecar.errors import ConfigError
from amqsidecar.http.access import ROLES, Role
from amqsidecar.http.authentication.files import NAME
from amqsidecar.http.rights import Right, Rights, joined, rights_of
from amqsidecar.model.destination import parse_pattern
from amqsidecar.policy_source.policy_yaml import read_yaml

_KEPT_BYTES: Final = 2_000
"""Of groups in a cookie, of which browsers take 4,096 bytes."""


class RoleEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A role in the file.

    Attributes:
        rights: by pattern of destinations.
        groups: of a proxy or an OpenID provider, whose members have it.
    """

    rights: dict[str, list[Right]]
    groups: list[str] = []


def parse_roles(text: str) -> Mapping[str, RoleEntry]:
    """Return the roles of a file by name.

    Raises:
        ValueError: says which role is wrong.
    """
    try:
        content = read_yaml("roles", text.encode())
    except ConfigError as error:
        raise ValueError("; ".join(str(problem) for problem in error.problems)) from error
    found = {}
    for name, entry in content.items():
        if not NAME.fullmatch(str(name)) or name in ROLES:
            raise ValueError(f"role {name}: expected a name other than {', '.join(ROLES)}")
        try:
            found[str(name)] = msgspec.convert(msgspec.to_builtins(entry), RoleEntry)
            for pattern in found[str(name)].rights:
                parse_pattern(pattern)
        except (msgspec.ValidationError, ValueError) as error:
            raise ValueError(f"role {name}: {error}") from error
    return found


class Roles:
    """The roles that there are now; `*` is the group of every authenticated user."""

    def __init__(
        self,
        operator_groups: Sequence[str],
        viewer_groups: Sequence[str],
        named: Callable[[], Mapping[str, RoleEntry]] = dict,
    ) -> None:
        self._operators = frozenset(operator_groups)
        self._viewers = frozenset(viewer_groups)
        self._named = named

    def of_groups(self, groups: Sequence[str]) -> str | None:
        """Return the role of the members of some groups; None = no access."""
        having = {*groups, "*"}
        if having & self._operators:
            return Role.OPERATOR.value
        found = [Role.VIEWER.value] if having & self._viewers else []
        found += [name for name, entry in self._named().items() if having & {*entry.groups}]
        return "+".join(found) or None

    def kept(self, groups: Sequence[str]) -> tuple[str, ...]:
        """Return the groups that a session keeps, as many as a cookie holds: with a role first.

        Why also groups without roles: behind a fleet, each sidecar has roles of its own.
        """
        having = {*self._operators, *self._viewers}
        having |= {group for entry in self._named().values() for group in entry.groups}
        ordered = sorted(dict.fromkeys(groups), key=lambda group: group not in having)
        sizes = accumulate(len(json.dumps(group)) + 1 for group in ordered)
        return tuple(one for one, size in zip(ordered, sizes, strict=True) if size <= _KEPT_BYTES)

    def rights_of(self, role: str) -> Rights | None:
        """Return the rights of a role, or of several with `+` between them; None = one is none."""
        if role in ROLES:
            return ROLES[role]
        named, parts = self._named(), []
        for name in role.split("+"):
            if name in ROLES:
                # Why: of a limited role only its own file says where content is shown.
                parts.append(msgspec.structs.replace(ROLES[name], bodies=()))
            elif name in named:
                parts.append(rights_of(named[name].rights))
            else:
                return None
        return joined(parts)
