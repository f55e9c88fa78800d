"""Artemis's own address settings, asked of the live broker per address."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import structlog

from amqsidecar.broker import TellsSettings
from amqsidecar.clock import Clock
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.decision import Decision
from amqsidecar.plugin import Chance, Decider
from amqsidecar.policy.address_settings import CompiledAddressSettings
from amqsidecar.policy.artemis_decider import ArtemisDecider
from amqsidecar.policy.artemis_rules import AddressSettingEntry
from amqsidecar.policy.live_settings import PolicyDifference, list_differences, live_entry
from amqsidecar.policy.rule_source import RuleSource

# Bound: an address costs some kilobytes, and dead letters may name any number of them.
_ADDRESSES_MAX = 2_000
# Bound: a warning for each difference, however many addresses have one.
_DIFFERENCES_MAX = 20

log = structlog.get_logger("amqsidecar.runtime.live_policy")


class SeenSettings:
    """The broker's last answers about addresses, for threads that may not ask it.

    Each thread with a link notes, any thread reads: `entries` is replaced as a whole, in one step.

    Attributes:
        entries: by address; the source says when the settings were read.
        changed_at_ms: when an address had other settings than before; None = never.
    """

    def __init__(self) -> None:
        self.entries: Mapping[str, AddressSettingEntry] = {}
        self.changed_at_ms: int | None = None

    def note(self, found: Mapping[str, AddressSettingEntry], at_ms: int) -> None:
        """Store settings that were read just now."""
        at = datetime.fromtimestamp(at_ms / 1000, UTC)
        noted = {
            address: replace(entry, source=RuleSource(f"{entry.source.path} at {at:%F %T}Z"))
            for address, entry in found.items()
        }
        if any(
            address in self.entries and self.entries[address].settings != entry.settings
            for address, entry in found.items()
        ):
            self.changed_at_ms = at_ms
        is_full = len(self.entries) + len(noted) > _ADDRESSES_MAX
        self.entries = noted if is_full else {**self.entries, **noted}


class LivePolicy:
    """Decides by the broker's settings of an address; asks again when an answer is too old.

    A configured policy is asked first; the broker's settings fill its gaps.

    Args:
        link: to the broker; only the thread that decides uses it.
        clock: decides when to ask again.
        keep_s: how long an answer is valid.
        seen: called with each answer; None = not called.
        given: the given policy; None = the broker's settings alone decide.
    """

    def __init__(
        self,
        link: TellsSettings,
        clock: Clock,
        keep_s: float,
        seen: SeenSettings | None = None,
        given: CompiledAddressSettings | None = None,
    ) -> None:
        self._link = link
        self._clock = clock
        self._keep_s = keep_s
        self._seen = SeenSettings() if seen is None else seen
        self._given = given
        self._logged: set[PolicyDifference] = set()
        self._look_at_s = 0.0
        self._deciders: dict[str, Decider] = {}
        self._needed: set[str] = set()

    def decide(self, dead_letter: DeadLetter, chance: Chance | None) -> Decision | None:
        """Return the decision of the broker's settings; see `plugin.Decider`.

        Raises:
            LinkLost: the broker could not be asked.
        """
        now_s = self._clock.monotonic_s()
        if now_s >= self._look_at_s:
            self._look_again()
            self._look_at_s = now_s + self._keep_s
        address = dead_letter.destination.address
        decider = self._deciders.get(address)
        if decider is None:
            if len(self._deciders) >= _ADDRESSES_MAX:
                self._deciders.clear()
                self._needed.clear()
            self._deciders |= self._ask([address])
            decider = self._deciders[address]
        self._needed.add(address)
        return decider.decide(dead_letter, chance)

    def _look_again(self) -> None:
        """Ask for all that was needed since the last time at once; forget the others."""
        self._deciders = self._ask(sorted(self._needed)) if self._needed else {}
        self._needed.clear()

    def _ask(self, addresses: Sequence[str]) -> dict[str, Decider]:
        answers = self._link.address_settings(addresses)
        found = {
            address: live_entry(address, answer)
            for address, answer in zip(addresses, answers, strict=True)
        }
        self._seen.note(found, self._clock.now_ms())
        given = self._given or CompiledAddressSettings.of_broker({})
        for address, entry in found.items():
            self._log_differences(address, entry)
        return {
            address: ArtemisDecider(given.over({address: entry}))
            for address, entry in found.items()
        }

    def _log_differences(self, address: str, live: AddressSettingEntry) -> None:
        if self._given is None:
            return
        for one in list_differences(address, self._given, live):
            if one not in self._logged and len(self._logged) < _DIFFERENCES_MAX:
                self._logged.add(one)
                report = log.info if one.is_meant else log.warning
                report(
                    "policy_differs",
                    address=address,
                    setting=one.setting,
                    given=one.given,
                    live=one.live,
                    meaning=f"policy.source {one.what}",
                    mend=one.mend,
                )
