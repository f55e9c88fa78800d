"""The delay before a redelivery, in the broker's own arithmetic.

Java longs and doubles: a product is computed as double, cut off toward zero and saturates at the
ends of a 64-bit integer.

Source: org.apache.activemq.RedeliveryPolicy.getNextRedeliveryDelay;
org.apache.activemq.broker.util.RedeliveryPlugin.sendToDeadLetterQueue.
"""

from collections.abc import Callable

from amqsidecar.policy.classic_rules import RedeliveryPolicy

Chance = Callable[[], float]
"""A source of chance: each call returns a number that is uniform in [0, 1)."""

LONG_MAX = 2**63 - 1
LONG_MIN = -(2**63)

MAX_STEPS = 100_000
"""Back-off steps that are computed; a message redelivered more often keeps the delay of this step.

With any multiplier that an operator would write the delay has long reached its cap or the end of
64 bits by then. The bound keeps a hostile count from stopping the sidecar.
"""

MAX_DRAWN_STEPS = 2_000
"""The last back-off steps, which are varied by chance. Earlier steps count with their mean."""


def trunc64(value: float) -> int:
    """Return a double as a Java long: toward zero, saturating, 0 for not-a-number.

    Source: Java Language Specification, 5.1.3.

    Example:
        >>> trunc64(1.9), trunc64(-1.9), trunc64(1e300) == LONG_MAX, trunc64(float("nan"))
        (1, -1, True, 0)
    """
    if value != value:  # noqa: PLR0124 - the test for not-a-number without an import
        return 0
    if value >= LONG_MAX:
        return LONG_MAX
    if value <= LONG_MIN:
        return LONG_MIN
    return int(value)


def next_redelivery_delay_ms(
    policy: RedeliveryPolicy, previous_ms: int, chance: Chance | None
) -> int:
    """Return the delay that follows one redelivery.

    Args:
        policy: the policy of the destination.
        previous_ms: the delay before the last redelivery.
        chance: where collision avoidance draws from, two numbers per call: direction, then
            distance; None switches it off.

    Source: RedeliveryPolicy.getNextRedeliveryDelay.

    Example:
        >>> policy = RedeliveryPolicy(use_exponential_back_off=True, back_off_multiplier=1.1)
        >>> next_redelivery_delay_ms(policy, 1211, None)
        1332
    """
    delay_ms = policy.redelivery_delay_ms
    if previous_ms > 0 and policy.use_exponential_back_off and policy.back_off_multiplier > 1:
        delay_ms = trunc64(previous_ms * policy.back_off_multiplier)
        maximum_ms = policy.maximum_redelivery_delay_ms
        if maximum_ms is not None and delay_ms > maximum_ms:
            # Quirk (Classic 5.x): when the maximum is below the base delay, the base delay wins.
            delay_ms = max(maximum_ms, policy.redelivery_delay_ms)
    if policy.use_collision_avoidance and chance is not None:
        # Quirk (Classic 5.x): the cap is applied before chance, so a delay may exceed the cap.
        factor = policy.collision_avoidance_percent * 0.01
        variance = (factor if chance() < 0.5 else -factor) * chance()
        delay_ms = trunc64(delay_ms + delay_ms * variance)
    return delay_ms


class DelayTable:
    """The delays of one policy, by redelivery count; computed once where chance has no part."""

    def __init__(self, policy: RedeliveryPolicy) -> None:
        self._policy = policy
        # Quirk (Classic 5.x): the first delay is used verbatim, neither capped nor varied.
        self._delays_ms = [policy.initial_redelivery_delay_ms]
        self._has_back_off = policy.use_exponential_back_off and policy.back_off_multiplier > 1

    def delay_ms(self, redelivery_count: int, chance: Chance | None) -> int:
        """Return the delay before the next redelivery of a message.

        Args:
            redelivery_count: redeliveries so far, 0-based; below 0 counts as 0.
            chance: where collision avoidance draws from; None switches it off.
        """
        steps = min(redelivery_count, MAX_STEPS)
        if steps <= 0 or chance is None or not self._policy.use_collision_avoidance:
            return self._fixed_delay_ms(steps)
        # Quirk (Classic 5.x): with back-off every earlier step is drawn again at each dead letter
        # and feeds the next one. Without back-off only the last draw counts.
        drawn = min(steps, MAX_DRAWN_STEPS if self._has_back_off else 1)
        delay_ms = self._fixed_delay_ms(steps - drawn)
        for _ in range(drawn):
            delay_ms = next_redelivery_delay_ms(self._policy, delay_ms, chance)
        return delay_ms

    def _fixed_delay_ms(self, steps: int) -> int:
        delays_ms = self._delays_ms
        # Delays grow until two in a row are equal.
        if len(delays_ms) <= steps and delays_ms[-2:-1] != delays_ms[-1:]:
            # Why another list: several threads ask.
            delays_ms = [*delays_ms]
            while len(delays_ms) <= steps and delays_ms[-2:-1] != delays_ms[-1:]:
                delays_ms.append(next_redelivery_delay_ms(self._policy, delays_ms[-1], None))
            self._delays_ms = delays_ms
        return delays_ms[max(0, min(steps, len(delays_ms) - 1))]
