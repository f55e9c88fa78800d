"""Reads `policy.gates` of the configuration and makes the gates."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.plugin import Gate, GatePlugin
from amqsidecar.policy.rule_source import RuleSource, parse_source

GATES_KEY = "policy.gates"


def read_gates(
    content: Sequence[Mapping[str, object]], origin: str, plugins: Mapping[str, GatePlugin]
) -> Mapping[str, Gate]:
    """Return the gates that a configuration names, by name, in its order.

    Raises:
        ConfigError: with every problem found.
    """
    whole = parse_source(origin)
    gates: dict[str, Gate] = {}
    problems: list[Problem] = []
    for item in content:
        ((name, options),) = item.items()
        source = _place(item, whole)
        plugin = plugins.get(name)
        if plugin is None:
            close = get_close_matches(str(name), plugins, 1)
            hint = f"; did you mean {close[0]}?" if close else ""
            what = f"{GATES_KEY}: there is no gate named {name!r}{hint}"
            problems.append(
                Problem(str(source), f"{what}; installed: {', '.join(sorted(plugins))}")
            )
        elif name in gates:
            what = f"{GATES_KEY}: {name} is there twice; merge the entries"
            problems.append(Problem(str(source), what))
        elif not isinstance(options, Mapping):
            what = f"{GATES_KEY}: {name}: expected a mapping of options"
            problems.append(Problem(str(source), what))
        else:
            try:
                gates[name] = plugin.compile(plugin.parse_options(options, source))
            except ConfigError as error:
                problems.extend(error.problems)
    if problems:
        raise ConfigError(problems)
    return gates


def _place(item: object, whole: RuleSource) -> RuleSource:
    """Return where one gate stands; only the YAML reader's mappings know it."""
    line = getattr(getattr(item, "lc", None), "line", None)
    return RuleSource(whole.path, line + 1) if isinstance(line, int) else whole
