"""Values that the tests install the chart with."""

import json
from collections.abc import Mapping
from typing import Any

from kubernetes.broker_pods import ARTEMIS, LOGIN, Kind
from support.deployment.cluster import Manifest

RULES = "rules.yaml"
"""The file with rules, where they are in one."""
DELAY_MS = 300
REDELIVERIES = 3
SLOW = "invoices"
"""A queue whose messages wait for longer than an upgrade takes, by `with_a_slow_queue`."""
SLOW_DELAY_MS = 40_000
DELAY = "redeliveryDelay"
"""The property in which a message that came back says how long it waited."""


def values(kind: Kind, *, rules: Manifest | None = None, **sections: Any) -> Manifest:
    """Return values for a sidecar of shape `beside`.

    Args:
        rules: None: three redeliveries, each after a short delay.
        sections: more sections of the sidecar's options.
    """
    config: Manifest = {
        "broker": {"url": kind.url, "allow_plain_password": True, "idle_timeout_s": 5},
        "policy": {"rules": rules or kind.rules(DELAY_MS, REDELIVERIES)},
        # Why: small cycles, so that each test has many.
        "cycle": {"max_messages": 20, "max_wait_ms": 100},
        "intake": {"backlog": "process"},
        "discovery": {"interval_s": 1},
        **sections,
    }
    return {
        "broker": {"passwordSecret": LOGIN},
        "config": config,
        # Why: Debian's containerd gives pods no users of their own.
        "userNamespaces": "never",
    }


def shared(kind: Kind, store_url: str, secret: str, replicas: int) -> Manifest:
    """Return values for several that share a schedule in PostgreSQL."""
    return {
        **values(kind, store={"url": store_url, "lease_s": 5}),
        "shape": "shared",
        "replicas": replicas,
        "store": {"passwordSecret": secret},
    }


def with_a_slow_queue() -> Manifest:
    """Return values for Artemis, with a long delay for the messages of `SLOW` alone."""
    rules = ARTEMIS.rules(DELAY_MS, REDELIVERIES)
    rules["address_settings"].append({"match": SLOW, "redelivery_delay_ms": SLOW_DELAY_MS})
    return values(ARTEMIS, rules=rules)


def with_rules(before: Mapping[str, Any], rules: Manifest) -> Manifest:
    """Return the same values with other rules."""
    return {**before, "config": {**before["config"], "policy": {"rules": rules}}}


def with_rules_as_a_file(before: Mapping[str, Any], rules: Manifest) -> Manifest:
    """Return the same values with rules in a file that the release has."""
    return _without_rules(before) | {"policy": {"key": RULES, "content": json.dumps(rules)}}


def with_rules_of(before: Mapping[str, Any], config_map: str) -> Manifest:
    """Return the same values with the rules of a ConfigMap that is none of the release's."""
    return _without_rules(before) | {"policy": {"key": RULES, "existingConfigMap": config_map}}


def _without_rules(before: Mapping[str, Any]) -> Manifest:
    options = {name: value for name, value in before["config"].items() if name != "policy"}
    return {**before, "config": options}
