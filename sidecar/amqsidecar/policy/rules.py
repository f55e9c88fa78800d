"""The rules of either broker product."""

from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules

Rules = ClassicRules | ArtemisRules
