"""Finds the plugins that are installed: entry points, by name."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from typing import Any

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import GatePlugin, Plugin

GROUP = "amqsidecar.plugins"
"""The entry-point group, for ours and strangers' plugins alike."""

GATE_GROUP = "amqsidecar.gates"
"""That of gates."""

BUILT_IN = ("redelivery", "discarding", "deadletter")
"""Plugins without which the rules of a broker have no decider."""

BUILT_IN_GATES = ("pace", "breaker", "windows", "order")
"""Gates that every installation has."""


def load_plugins(found: Iterable[EntryPoint] | None = None) -> Mapping[str, Plugin]:
    """Return every installed plugin by its name.

    Args:
        found: entry points to load; None = those of this Python environment.

    Raises:
        ConfigError: a plugin can't be loaded, is not a plugin, has a name that is taken, or a
            built-in plugin is missing; with every problem found.
    """
    return _load(_installed(GROUP) if found is None else found, BUILT_IN, "plugin")


def load_gate_plugins(found: Iterable[EntryPoint] | None = None) -> Mapping[str, GatePlugin]:
    """Return every installed kind of gate by its name; see `load_plugins`."""
    return _load(_installed(GATE_GROUP) if found is None else found, BUILT_IN_GATES, "gate")


@cache
def _installed(group: str) -> EntryPoints:
    """Return the entry points of this Python environment, as they were at the first call."""
    # Why cached: it reads the metadata of every package, and a service asks several times.
    return entry_points(group=group)


def _load(found: Iterable[EntryPoint], built_in: Sequence[str], kind: str) -> dict[str, Any]:
    """Return all that were found, by name."""
    plugins: dict[str, Any] = {}
    problems: list[Problem] = []
    for entry_point in found:
        where = f"{kind} {entry_point.name} ({entry_point.value})"
        try:
            plugin = entry_point.load()
        except Exception as error:  # noqa: BLE001 - a stranger's module may raise anything
            problems.append(Problem(where, f"can't be loaded: {type(error).__name__}: {error}"))
            continue
        missing = [
            name
            for name in ("parse_options", "compile")
            if not callable(getattr(plugin, name, None))
        ]
        if missing:
            problems.append(Problem(where, f"is not a {kind}: it lacks {' and '.join(missing)}"))
        elif getattr(plugin, "name", None) != entry_point.name:
            problems.append(
                Problem(where, f"calls itself {getattr(plugin, 'name', None)!r}; both must agree")
            )
        elif entry_point.name in plugins:
            problems.append(Problem(where, f"another installed {kind} has this name"))
        else:
            plugins[entry_point.name] = plugin
    reported = {problem.where.split()[1] for problem in problems}
    problems.extend(
        Problem(f"{kind} {name}", "is missing; install amqsidecar again, it belongs to it")
        for name in built_in
        if name not in plugins and name not in reported
    )
    if problems:
        raise ConfigError(problems)
    return plugins
