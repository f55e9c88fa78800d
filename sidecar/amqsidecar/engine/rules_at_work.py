"""By which rules the sidecars decide that share a schedule."""

from collections.abc import Mapping

from amqsidecar.schedule import Schedule


def rules_at_work(schedule: Schedule) -> dict[str, str]:
    """Return the digest of the rules by instance, of those that a process is now.

    None of them where the store is not shared, or for those that older programs started.
    """
    at_work = {one.instance for one in schedule.instances() if one.is_held}
    starts = schedule.latest_starts()
    return {one.instance: one.rules_digest for one in starts if one.instance in at_work}


def different_rules(at_work: Mapping[str, str], rules_digest: str) -> str:
    """Return which sidecars on the schedule have other rules, as a sentence; "" = none.

    Args:
        at_work: from `rules_at_work`.
        rules_digest: of our rules.
    """
    others = sorted(one for one in at_work.items() if one[1] != rules_digest)
    if not others:
        return ""
    named = ", ".join(f"{instance} ({digest})" for instance, digest in others)
    return (
        f"sidecars that share this schedule use other rules than this one ({rules_digest}): "
        f"{named}; give all the same policy (expected during a rolling update)"
    )
