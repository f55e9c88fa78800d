"""The rules that act: configured, the broker's defaults, or its live settings."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import msgspec

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.engine.gates import GatesAt, no_gates
from amqsidecar.engine.intake import IntakeNames, dead_letter_queues_of, named_queues
from amqsidecar.engine.judging.send_rules import SendRules
from amqsidecar.model.dead_letter import DeadLetter
from amqsidecar.model.destination import Destination, queue
from amqsidecar.operations.explain import Explainer, Forecast
from amqsidecar.plugin import Chance, Plugin
from amqsidecar.policy.artemis_rules import AddressSettingEntry, ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules, PluginRules
from amqsidecar.policy.rules import Rules
from amqsidecar.policy_source.load import compile_policy

LiveSettings = Mapping[str, AddressSettingEntry]
"""The last settings that an Artemis broker returned, by address; immutable."""

FindRules = Callable[[], Rules | LiveSettings | None]
"""Returns the rules that act now; None = none are given, and no broker said yet which act."""

SendRulesOf = Callable[[Rules, IntakeNames], SendRules]
"""Rules, and the queues that the intake reads, to where a sidecar with them never sends."""

ASKS_FACTS = (
    "rules beyond the broker's depend on the message: this forecast assumes a message without "
    "cause, properties and headers; open a message to see its own forecast"
)
ASKS_DEATHS = (
    "rules beyond the broker's depend on the message: waiting messages are asked as they are kept, "
    "where their content may be seen; what died in the last 24 hours without cause, properties and "
    "headers"
)
NO_BROKER = "no rules are configured (policy.source), and no broker has answered yet"
LIVE = "the broker's own address settings, read live"
NOT_READ = f"{LIVE}; not yet read for this address: the sidecar reads them at its first death"


class ActiveRules:
    """The rules that act at one moment, and their source.

    Args:
        rules: that act; None = no broker said yet which.
        explainer_of: compiles the first rules; the second decide which queues are read.
        live_plugins: rules that act beside the broker's live settings.
    """

    def __init__(
        self,
        rules: Rules | LiveSettings | None,
        explainer_of: Callable[[Rules, Rules], Explainer],
        live_plugins: tuple[PluginRules, ...] = (),
    ) -> None:
        self._explainer_of = explainer_of
        self._live_plugins = live_plugins
        self._live = rules if isinstance(rules, Mapping) else None
        self.rules = None if isinstance(rules, Mapping) else rules
        self._all = self.rules
        self.source = NO_BROKER if rules is None else LIVE
        if self.rules is not None:
            self.source = str(self.rules.source)
        if self._live is not None:
            self._all = ArtemisRules(entries=tuple(self._live.values()), plugins=live_plugins)
        self._whole = None if self._all is None else explainer_of(self._all, self._all)

    @property
    def warnings(self) -> Sequence[str]:
        """Warnings about answers for destinations, one sentence each."""
        return [ASKS_FACTS] if self._whole is not None and self._whole.asks_facts else []

    def explainer_at(self, destination: Destination) -> Explainer | None:
        """Return the explainer for a destination; None = the rules there are unknown."""
        if self._live is None or self._all is None:
            return self._whole
        entry = self._live.get(destination.address)
        if entry is None:
            return None
        asked = ArtemisRules(entries=(entry,), plugins=self._live_plugins)
        return self._explainer_of(asked, self._all)

    def forecast(self, dead_letter: DeadLetter) -> Forecast | None:
        """Return the decision on a dead letter; None = the rules there are unknown."""
        explainer = self.explainer_at(dead_letter.destination)
        return None if explainer is None else explainer.forecast(dead_letter)

    def source_at(self, destination: Destination) -> str:
        """Return the source of the rules at a destination, or why they are not known."""
        if self._live is None:
            return self.source
        entry = self._live.get(destination.address)
        return NOT_READ if entry is None else entry.source.path

    def is_origin(self, destination: Destination) -> bool:
        """Return whether messages can have died there, as far as the rules are known."""
        return self._whole is None or self._whole.is_origin(destination)


class Policies(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a sidecar, and the means to ask other rules.

    Attributes:
        acting: returns the rules that act now; any thread may call it.
        plugins: name to plugin.
        explainer_of: compiles other rules for this sidecar; the live settings of an Artemis broker
            fill their gaps, as in a run.
    """

    acting: Callable[[], ActiveRules]
    plugins: Mapping[str, Plugin]
    explainer_of: Callable[[Rules], Explainer]


def policies_of(
    find_rules: FindRules,
    plugins: Mapping[str, Plugin],
    *,
    send_rules_of: SendRulesOf,
    intake_queues: Sequence[str] = (),
    chance: Chance | None = None,
    gates_at: GatesAt = no_gates,
    live_plugins: tuple[PluginRules, ...] = (),
) -> Policies:
    """Return the policies of a sidecar.

    Args:
        find_rules: returns the rules that act; any thread calls it.
        plugins: name to plugin.
        send_rules_of: returns where the sidecar never sends.
        intake_queues: named by the operator; if empty, they follow from the rules.
        chance: varies delays; None = no collision avoidance.
        gates_at: returns the active gates.
        live_plugins: see `ActiveRules`.
    """

    def explainer_of(asked: Rules, read_by: Rules) -> Explainer:
        return Explainer(
            compile_policy(asked, plugins),
            send_rules_of(asked, _intake_names(read_by, intake_queues)),
            chance=chance,
            gates_at=gates_at,
        )

    last: tuple[Rules | LiveSettings | None, ActiveRules] | None = None

    def acting() -> ActiveRules:
        nonlocal last
        found, known = find_rules(), last
        if known is None or known[0] is not found:
            last = known = found, ActiveRules(found, explainer_of, live_plugins)
        return known[1]

    def explainer_here(asked: Rules) -> Explainer:
        if isinstance(asked, ArtemisRules):
            found = find_rules()
            live = found.live if isinstance(found, ArtemisRules) else found
            if isinstance(live, Mapping):
                asked = replace(asked, live=live)
        return explainer_of(asked, asked)

    return Policies(acting=acting, plugins=plugins, explainer_of=explainer_here)


def _intake_names(rules: Rules, intake_queues: Sequence[str]) -> IntakeNames:
    kind = BrokerKind.ARTEMIS if isinstance(rules, ArtemisRules) else BrokerKind.CLASSIC
    names = IntakeNames(kind)
    if intake_queues:
        names.replace(named_queues(intake_queues))
    elif isinstance(rules, ClassicRules):
        names.replace(dead_letter_queues_of(rules)[0])
    else:
        addresses = {
            address
            for entry in (*rules.entries, *rules.live.values())
            for address in (entry.settings.dead_letter_address, entry.settings.expiry_address)
            if address
        }
        names.replace([IntakeQueue(queue(address)) for address in sorted(addresses)])
    return names
