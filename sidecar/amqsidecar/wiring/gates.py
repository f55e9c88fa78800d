"""Wires the gates that a configuration names."""

from collections.abc import Collection, Mapping

import structlog

from amqsidecar.config.schema import Config
from amqsidecar.engine.gates import GatesAt, described
from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Gate, GroupGate
from amqsidecar.plugin_loader import load_gate_plugins
from amqsidecar.policy_source.gates import GATES_KEY, read_gates

log = structlog.get_logger()


def log_gate_fault(name: str, error: Exception) -> None:
    """Log that a gate raised when it was notified of an event."""
    log.warning("gate_failed", gate=name, error=f"{type(error).__name__}: {error}")


def load_gates(config: Config) -> Mapping[str, Gate]:
    """Return the gates that the configuration names, by name; each has seen nothing yet.

    Raises:
        ConfigError: with every problem found.
    """
    if not config.policy.gates:
        return {}
    origin = config.origin(GATES_KEY)
    gates = read_gates(config.policy.gates, origin, load_gate_plugins())
    if config.store.is_shared and (names := ", ".join(need_groups(gates))):
        what = (
            f"{GATES_KEY}: {names} needs a schedule with a single sidecar: leave it out, or use a "
            "store.url of sqlite:"
        )
        raise ConfigError([Problem(origin, what)])
    return gates


def need_groups(gates: Mapping[str, Gate]) -> Collection[str]:
    """Return the names of those that look at message groups."""
    return [name for name, gate in gates.items() if isinstance(gate, GroupGate)]


def gates_at(config: Config) -> GatesAt:
    """Return descriptions of gates, from instances other than those of the engine's thread."""
    return described(load_gates(config))
