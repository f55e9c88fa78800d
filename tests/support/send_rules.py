"""Where a sidecar with some options never sends, as the program finds it."""

from functools import partial

from amqsidecar.config.load import load_config
from amqsidecar.operations.active_rules import SendRulesOf
from amqsidecar.wiring.rules import send_rules


def send_rules_of(*sets: str) -> SendRulesOf:
    """Return the maker for options such as `redelivery.final_suffix=.x`."""
    return partial(send_rules, load_config(None, sets, {}))
