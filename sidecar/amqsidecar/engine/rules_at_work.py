"""The rules of the sidecars that share a schedule, and the dead letters left to a person."""

from collections.abc import Mapping
from typing import Final

from amqsidecar.engine.manual import Manual
from amqsidecar.schedule import Schedule

ABSENT_S: Final = 900.0
"""How long after a sidecar's last sign of life its dead letters stay left to a person."""


def rules_at_work(schedule: Schedule) -> dict[str, str]:
    """Return the digest of the rules by instance, for instances that a process is now.

    Empty if the store is not shared; without instances that older programs started.
    """
    at_work = {one.instance for one in schedule.instances() if one.is_held}
    starts = schedule.latest_starts()
    return {one.instance: one.rules_digest for one in starts if one.instance in at_work}


def different_rules(at_work: Mapping[str, str], rules_digest: str) -> str:
    """Return which sidecars on the schedule have other rules, as a sentence; "" = none."""
    others = sorted(one for one in at_work.items() if one[1] != rules_digest)
    if not others:
        return ""
    named = ", ".join(f"{instance} ({digest})" for instance, digest in others)
    return (
        f"sidecars that share this schedule use other rules than this one ({rules_digest}): "
        f"{named}; give all the same policy (expected during a rolling update)"
    )


def left_by_all(schedule: Schedule, instance: str, own: Manual) -> Manual:
    """Return what a sidecar leaves to a person: all that any sidecar of the schedule leaves.

    Promise: the others know `own` when this returns. If the process dies inside, they do or not.
    """
    schedule.set_manual(instance, own.patterns)
    others = [
        one
        for one in schedule.instances()
        if one.instance != instance and (one.is_held or one.seen_seconds_ago < ABSENT_S)
    ]
    return own.joined(pattern for one in others for pattern in one.manual)
