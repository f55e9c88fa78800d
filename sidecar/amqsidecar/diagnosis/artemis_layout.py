"""Judges the live address settings of an Artemis broker; unset keys have the broker's defaults.

Source: `spec-artemis.md` 1, 4, 6, 9, 14; AddressSettings of Artemis 2.44.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from amqsidecar.broker import IntakeQueue
from amqsidecar.diagnosis.finding import Check, Finding, Severity, new_finding
from amqsidecar.diagnosis.permissions import TOKEN_PREFIX, is_reply_queue, quoted
from amqsidecar.model.destination import queue
from amqsidecar.model.provenance import is_of_listener
from amqsidecar.model.send_terms import ResendEffect, SideEffect
from amqsidecar.model.sidecar_names import INTERCEPTED
from amqsidecar.policy.address_settings import compile_address_settings
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.live_settings import PolicyDifference, list_differences, live_entry

Settings = Mapping[str, Any]
_DEFAULT_ATTEMPTS = 10
_INTERNAL = ("activemq.", "$sys.", "$.artemis.", "notif.", "amqsidecar.")
_NAMED_MAX = 5
_DIFFERENCES_MAX = 10


def is_application(address: str) -> bool:
    """Return whether an address is neither the broker's own nor ours, nor a temporary one."""
    return not address.startswith(_INTERNAL) and not is_reply_queue(address)


def token_findings(token_queue: str, settings: Settings) -> Iterator[Finding]:
    """Yield settings that may take the token out of its queue."""
    match = TOKEN_PREFIX + "#"
    mends = dict(_harms(settings))
    # Why: nothing but an expiry can take the token, which is never left unread for long.
    for what, mend in mends.items():
        yield new_finding("token_harmed", token_queue, what=what, mend=address_setting(match, mend))
    if not mends:
        yield new_finding("token_safe", token_queue)


def dead_letter_findings(
    settings_of: Mapping[str, Settings], intake: Sequence[IntakeQueue], origins: Collection[str]
) -> Iterator[Finding]:
    """Yield findings about the addresses of dead letters.

    Args:
        settings_of: address to merged settings; `#` stands for all that no setting names.
        intake: the queues that are known to be bound to dead-letter addresses.
        origins: addresses of which dead letters are known.
    """
    addresses = {
        name: found for name, found in settings_of.items() if name == "#" or is_application(name)
    }
    targets = {str(found.get("deadLetterAddress") or "") for found in addresses.values()} - {""}
    expiries = {str(found.get("expiryAddress") or "") for found in addresses.values()} - {""}
    yield from _undelivered(addresses, targets | expiries, origins)
    bound = {queue.destination.address for queue in intake}
    for target in sorted(targets):
        yield from _target_findings(target, settings_of, bound, addresses)
    if not targets:
        yield new_finding(
            "no_dead_letter_address_at_all",
            "#",
            mend=address_setting("#", "<dead-letter-address>DLQ</dead-letter-address>"),
        )


def _undelivered(
    addresses: Mapping[str, Settings], targets: Collection[str], origins: Collection[str]
) -> Iterator[Finding]:
    lost = sorted(
        name
        for name, found in addresses.items()
        if not found.get("deadLetterAddress")
        and delivery_attempts(found) > 0
        and name not in targets
    )
    for severity, names in (
        (Severity.PROBLEM, [name for name in lost if name in origins]),
        (Severity.WARNING, [name for name in lost if name not in origins]),
    ):
        if not names:
            continue
        attempts = delivery_attempts(addresses[names[0]])
        yield new_finding(
            "no_dead_letter_address",
            listed(names),
            severity=severity,
            attempts=attempts,
            mend="".join(
                address_setting(name, "<dead-letter-address>DLQ</dead-letter-address>")
                for name in names[:_NAMED_MAX]
            ),
        )


def _target_findings(
    target: str,
    settings_of: Mapping[str, Settings],
    bound: Collection[str],
    addresses: Mapping[str, Settings],
) -> Iterator[Finding]:
    users = [name for name, found in addresses.items() if found.get("deadLetterAddress") == target]
    makes = any(addresses[name].get("autoCreateDeadLetterResources") for name in users)
    if target not in bound and not makes:
        yield new_finding(
            "no_dead_letter_queue", target, users=listed(users), target=quoted(target)
        )
    settings = settings_of.get(target)
    if settings is None:
        return
    is_right = True
    for what, mend in _harms(settings):
        is_right = False
        yield new_finding(
            "dead_letters_harmed", target, what=what, mend=address_setting(target, mend)
        )
    for what, mend in _doubts(settings):
        is_right = False
        yield Finding(
            Check.DEAD_LETTERS, Severity.WARNING, target, what, address_setting(target, mend)
        )
    if is_right and (target in bound or makes):
        yield new_finding("dead_letters_kept", target, users=listed(users))


def _doubts(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield settings that may harm dead letters that are returned often, with their fixes."""
    attempts = delivery_attempts(settings)
    if attempts > 0:
        yield (
            f"the dead-letter address itself has a limit of {attempts} deliveries: a dead letter "
            "returned that often (by crashes, for example) loses its origin for good",
            "<max-delivery-attempts>-1</max-delivery-attempts>",
        )
    delay_ms = int(settings.get("redeliveryDelay", 0))
    if delay_ms > 0:
        yield (
            f"each returned dead letter is delayed by {delay_ms} ms",
            "<redelivery-delay>0</redelivery-delay>",
        )


def difference_findings(
    rules: ArtemisRules, settings_of: Mapping[str, Settings], read: Collection[str]
) -> Iterator[Finding]:
    """Yield differences between given rules and the broker that change the fate of a message."""
    given = compile_address_settings(rules)
    is_xml = rules.source.path.endswith(".xml")
    found: dict[tuple[str, str | None, str | None], list[tuple[str, PolicyDifference]]] = {}
    for address, settings in settings_of.items():
        if address in read or not (address == "#" or is_application(address)):
            continue
        live = live_entry(address, settings)
        for one in list_differences(address, given, live, is_xml=is_xml):
            found.setdefault((one.setting, one.given, one.live), []).append((address, one))
    for places in list(found.values())[:_DIFFERENCES_MAX]:
        one = places[0][1]
        # Why a note: own attempts and delays are a policy's purpose.
        yield new_finding(
            "policy_differs",
            listed(address for address, _ in places),
            severity=Severity.NOTE if one.is_meant else Severity.WARNING,
            what=one.what,
            mend=one.mend,
        )
    if len(found) > _DIFFERENCES_MAX:
        yield new_finding(
            "policy_differs_more", "policy.source", count=len(found) - _DIFFERENCES_MAX
        )


def unasked_findings(rules: ArtemisRules, addresses: Iterable[str]) -> Iterator[Finding]:
    """Yield findings of the given rules about addresses that the broker does not report."""
    settings_of = compile_address_settings(rules).effective
    for address in dict.fromkeys(addresses):
        if not settings_of(address).dead_letter_address:
            yield new_finding(
                "self_dead_letter_address_missing",
                address,
                mend=address_setting(
                    address, f"<dead-letter-address>{escape(address)}</dead-letter-address>"
                ),
            )


def _harms(settings: Settings) -> Iterator[tuple[str, str]]:
    """Yield settings by which a queue of an address loses messages, with their fixes."""
    for key, element in (
        ("expiryDelay", "expiry-delay"),
        ("maxExpiryDelay", "max-expiry-delay"),
        ("minExpiryDelay", "min-expiry-delay"),
    ):
        delay_ms = int(settings.get(key, -1))
        if delay_ms >= 0:
            yield f"{element}={delay_ms} makes messages expire", f"<{element}>-1</{element}>"
    if int(settings.get("defaultRingSize", -1)) >= 0:
        yield (
            "default-ring-size drops the oldest messages",
            "<default-ring-size>-1</default-ring-size>",
        )
    if settings.get("defaultLastValueQueue") or settings.get("defaultLastValueKey"):
        yield (
            "default-last-value-queue replaces messages of the same key",
            "<default-last-value-queue>false</default-last-value-queue>",
        )
    if settings.get("defaultNonDestructive"):
        yield (
            "default-non-destructive keeps messages that were taken",
            "<default-non-destructive>false</default-non-destructive>",
        )
    if settings.get("defaultPurgeOnNoConsumers"):
        yield (
            "default-purge-on-no-consumers drops all when the last consumer leaves",
            "<default-purge-on-no-consumers>false</default-purge-on-no-consumers>",
        )
    yield from _limit_harms(settings)


def _limit_harms(settings: Settings) -> Iterator[tuple[str, str]]:
    if settings.get("addressFullMessagePolicy") == "DROP" and is_limited(settings):
        yield (
            "address-full-policy DROP silently drops messages once the address is full",
            "<address-full-policy>PAGE</address-full-policy>",
        )
    if (
        settings.get("slowConsumerPolicy") == "KILL"
        and int(settings.get("slowConsumerThreshold", -1)) > 0
    ):
        yield (
            "slow-consumer-policy KILL closes the sidecar's connection when few messages arrive",
            "<slow-consumer-threshold>-1</slow-consumer-threshold>",
        )


def address_setting(match: str, inside: str) -> str:
    """Return the setting to write; where there is one of the match, the inside goes into it."""
    return f"<address-setting match={quoted(match)}>{inside}</address-setting>"


def effect_findings(
    effects: Mapping[str, Sequence[SideEffect]], allowed: Collection[ResendEffect]
) -> Iterator[Finding]:
    """Yield effects of the broker on redeliveries, each once for all its addresses."""
    found: dict[tuple[ResendEffect, str], list[tuple[str, str]]] = {}
    for address, of_address in effects.items():
        for effect in of_address:
            what = f"{effect.what} if it matches {effect.filter}" if effect.filter else effect.what
            found.setdefault((effect.kind, what), []).append((address, effect.mend))
    for (kind, what), places in found.items():
        is_allowed = kind in allowed
        then = (
            "redelivery.allow permits it" if is_allowed else "a run parks messages that died there"
        )
        yield new_finding(
            "resend_effect",
            listed(address for address, _ in places),
            severity=Severity.NOTE if is_allowed else Severity.WARNING,
            what=what,
            then=then,
            mend="" if is_allowed else places[0][1],
        )


def nack_finding(acceptors: Sequence[str]) -> Iterator[Finding]:
    """Yield the broker's treatment of a message that a STOMP client refuses.

    Args:
        acceptors: acceptors for STOMP clients; if empty, no finding.
    """
    if acceptors:
        yield new_finding("stomp_nack_destroys", listed(acceptors))


def copies_finding(
    intake: Sequence[IntakeQueue], roles: Sequence[Mapping[str, Any]], *, has_keys: bool
) -> Iterator[Finding]:
    """Yield the roles with rights on the queue of the listener's copies, if a run reads it.

    Args:
        roles: of that queue, with their rights; () = not known.
        has_keys: whether the run can prove that the listener wrote a copy.
    """
    if not any(is_of_listener(item.destination) for item in intake):
        return
    may = {
        right: listed([str(one["name"]) for one in roles if one.get(right)]) or "nobody"
        for right in ("send", "consume", "browse")
    }
    who = ", ".join(f"{right}: {names}" for right, names in may.items())
    known = f"the roles with rights on it are {who}" if roles else "whose roles are not known"
    yield Finding(
        Check.PERMISSIONS,
        Severity.NOTE if has_keys else Severity.WARNING,
        str(queue(INTERCEPTED)),
        f"the queue of the listener's copies; {known}. "
        + (
            "Of what they send a run redelivers only copies with a seal of the listener, and parks "
            "the others; give nobody but the sidecar consume or browse"
            if has_keys
            else "A run without keys can't know which copies are the listener's, and parks each"
        ),
        "" if has_keys else "listener: {copy_key_file: copy.keys}",
    )


def reject_finding(
    acceptors: Sequence[str], settings_of: Mapping[str, Settings]
) -> Iterator[Finding]:
    """Yield the broker's treatment of a message that an AMQP client rejects."""
    if not acceptors:
        return
    destroying = [
        name
        for name, found in settings_of.items()
        if (name == "#" or is_application(name)) and not found.get("deadLetterAddress")
    ]
    then = (
        f", and destroys the message on {listed(destroying)}, without a dead-letter-address"
        if destroying
        else ""
    )
    yield new_finding("amqp_rejected_forgotten", listed(acceptors), then=then)


def is_limited(settings: Settings) -> bool:
    """Return whether an address can be full."""
    return any(int(settings.get(key, -1)) > 0 for key in ("maxSizeBytes", "maxSizeMessages"))


def delivery_attempts(settings: Settings) -> int:
    """Return `max-delivery-attempts`; -1 = no limit."""
    return int(settings.get("maxDeliveryAttempts", _DEFAULT_ATTEMPTS))


def listed(names: Iterable[str]) -> str:
    """Return the first names, and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - _NAMED_MAX
    return ", ".join(ordered[:_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
