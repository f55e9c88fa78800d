"""Reads the redelivery policy of an OpenWire client's connection URI."""

import re
from difflib import get_close_matches
from urllib.parse import parse_qsl

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.policy.classic_rules import RedeliveryPolicy
from amqsidecar.policy.rule_source import RuleSource

PREFIX = "jms.redeliveryPolicy."
"""The prefix of the options of a redelivery policy."""

_INTEGERS = {
    "maximumRedeliveries": ("maximum_redeliveries", 32),
    "initialRedeliveryDelay": ("initial_redelivery_delay_ms", 64),
    "redeliveryDelay": ("redelivery_delay_ms", 64),
    "maximumRedeliveryDelay": ("maximum_redelivery_delay_ms", 64),
    "collisionAvoidancePercent": ("collision_avoidance_percent", 16),
}
_BOOLEANS = {
    "useExponentialBackOff": "use_exponential_back_off",
    "useCollisionAvoidance": "use_collision_avoidance",
    "preDispatchCheck": None,
}
_KNOWN = (*_INTEGERS, *_BOOLEANS, "backOffMultiplier")
_NO_LIMIT = ("maximum_redeliveries", "maximum_redelivery_delay_ms")


def read_jms_uri(uri: str) -> RedeliveryPolicy:
    """Return the policy that `jms.redeliveryPolicy.*` options of a URI make, over the defaults.

    Args:
        uri: such as `tcp://host:61616?jms.redeliveryPolicy.maximumRedeliveries=3`; of a composite
            (`failover:(…)?…`) the outer options count.

    Raises:
        ConfigError: with every option that is unknown or has a bad value.

    Source: org.apache.activemq.ActiveMQConnectionFactory, buildFromMap.
    """
    place = re.sub(r"(?<=/)[^/@?()]*@", "", uri.split("?", 1)[0])
    problems: list[Problem] = []
    values: dict[str, object] = {}
    for key, text in parse_qsl(_query(uri), keep_blank_values=True):
        if not key.startswith(PREFIX):
            continue
        name = key.removeprefix(PREFIX)
        try:
            _read_option(name, text.strip(), values)
        except ValueError as error:
            problems.append(Problem(place, f"{key}={text}: {error}"))
    if problems:
        raise ConfigError(problems)
    return RedeliveryPolicy(source=RuleSource(place), **values)  # type: ignore[arg-type]


def _query(uri: str) -> str:
    outer = uri.rsplit(")", 1)[-1] if "(" in uri else uri
    return outer.split("?", 1)[1] if "?" in outer else ""


def _read_option(name: str, text: str, values: dict[str, object]) -> None:
    if name in _INTEGERS:
        field, bits = _INTEGERS[name]
        if not re.fullmatch(r"[+-]?[0-9]+", text):
            raise ValueError("expected a whole number without a unit")
        number = int(text)
        if not -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            raise ValueError(f"does not fit into {bits} bits")
        values[field] = None if number == -1 and field in _NO_LIMIT else number
    elif name in _BOOLEANS:
        if text.lower() not in ("true", "false"):
            raise ValueError("expected true or false")
        target = _BOOLEANS[name]
        if target is not None:
            values[target] = text.lower() == "true"
    elif name == "backOffMultiplier":
        if not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?", text):
            raise ValueError("expected a number such as 2 or 1.5")
        values["back_off_multiplier"] = float(text)
    else:
        close = get_close_matches(name, _KNOWN, 1)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"there is no such option{hint}")
