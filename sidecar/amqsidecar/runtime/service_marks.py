"""Stores service marks, and compares rules with other sidecars on the same schedule."""

import structlog

from amqsidecar.engine.rules_at_work import different_rules, rules_at_work
from amqsidecar.errors import StoreUnavailable
from amqsidecar.model.service_mark import ServiceMark
from amqsidecar.schedule import Schedule

log = structlog.get_logger("amqsidecar.service")


def keep_start(schedule: Schedule, mark: ServiceMark) -> None:
    """Keep the start of a service, and log which sidecars on its schedule have other rules.

    A full store does not prevent a start, because due messages can be sent. If the process dies
    inside, the start is kept or not.
    """
    try:
        schedule.add_service_mark(mark)
        meaning = different_rules(rules_at_work(schedule), mark.rules_digest)
    except StoreUnavailable as failed:
        log.warning("start_not_kept", reason=str(failed))
        return
    if meaning:
        log.warning("different_rules", meaning=meaning)
