"""Reads a redelivery policy out of a YAML policy."""

from amqsidecar.policy.classic_rules import RedeliveryPolicy
from amqsidecar.policy.option_reader import OptionReader

_INT_MAX, _SHORT_MIN, _SHORT_MAX = 2**31 - 1, -(2**15), 2**15 - 1


def read_redelivery_policy(reader: OptionReader) -> RedeliveryPolicy:
    """Return the policy that a mapping writes; problems go to the reader."""
    default = RedeliveryPolicy()
    return RedeliveryPolicy(
        maximum_redeliveries=reader.limit(
            "maximum_redeliveries", default.maximum_redeliveries, most=_INT_MAX
        ),
        initial_redelivery_delay_ms=reader.integer(
            "initial_redelivery_delay_ms", default.initial_redelivery_delay_ms
        ),
        redelivery_delay_ms=reader.integer("redelivery_delay_ms", default.redelivery_delay_ms),
        maximum_redelivery_delay_ms=reader.limit(
            "maximum_redelivery_delay_ms", default.maximum_redelivery_delay_ms
        ),
        use_exponential_back_off=reader.boolean(
            "use_exponential_back_off", default=default.use_exponential_back_off
        ),
        back_off_multiplier=reader.number("back_off_multiplier", default.back_off_multiplier),
        use_collision_avoidance=reader.boolean(
            "use_collision_avoidance", default=default.use_collision_avoidance
        ),
        collision_avoidance_percent=reader.integer(
            "collision_avoidance_percent",
            default.collision_avoidance_percent,
            least=_SHORT_MIN,
            most=_SHORT_MAX,
        ),
        source=reader.source,
    )
