"""Every option: the sections of `sections/`, and conflicts between them.

Nothing else in the project has a default of its own. `reference.py` prints this tree; `load.py`
fills it.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args

from pydantic import PrivateAttr

from amqsidecar.config.option import KeyedProblem, Section, section
from amqsidecar.config.sections.broker import BrokerOptions
from amqsidecar.config.sections.fleet import FleetOptions
from amqsidecar.config.sections.http import HttpOptions
from amqsidecar.config.sections.intake import Backlog, CycleOptions, DiscoveryOptions, IntakeOptions
from amqsidecar.config.sections.journal import HistoryOptions, JournalOptions
from amqsidecar.config.sections.listener import ListenerOptions
from amqsidecar.config.sections.log import LogOptions
from amqsidecar.config.sections.mcp import McpOptions
from amqsidecar.config.sections.observe import ObserveOptions
from amqsidecar.config.sections.otel import OtelOptions
from amqsidecar.config.sections.policy import PolicyOptions, VerdictPolicy
from amqsidecar.config.sections.redelivery import (
    ExhaustedChoice,
    OutcomesOptions,
    RedeliveryMode,
    RedeliveryOptions,
)
from amqsidecar.config.sections.store import StoreOptions
from amqsidecar.config.sections.webhooks import WebhookOptions
from amqsidecar.config.store_url import BROKER_HELD
from amqsidecar.model.sidecar_names import EVENTS


class Config(Section):
    """All options, as returned by `load_config`."""

    broker: BrokerOptions = section(BrokerOptions, "The broker's address and log-in.")
    intake: IntakeOptions = section(IntakeOptions, "Reading dead letters.")
    policy: PolicyOptions = section(PolicyOptions, "The rules.")
    redelivery: RedeliveryOptions = section(RedeliveryOptions, "Redelivery and its destinations.")
    cycle: CycleOptions = section(CycleOptions, "The exactly-once unit of work.")
    store: StoreOptions = section(StoreOptions, "The persistent schedule.")
    journal: JournalOptions = section(JournalOptions, "The history as files for analysis.")
    history: HistoryOptions = section(
        HistoryOptions, "How long `show` has the history of a message."
    )
    http: HttpOptions = section(HttpOptions, "Metrics, health, console and API.")
    log: LogOptions = section(LogOptions, "The log on standard error.")
    otel: OtelOptions = section(OtelOptions, "Traces, metrics and logs by OTLP.")
    discovery: DiscoveryOptions = section(DiscoveryOptions, "Finding dead-letter queues.")
    observe: ObserveOptions = section(ObserveOptions, "Looking at what lies in dead-letter queues.")
    outcomes: OutcomesOptions = section(OutcomesOptions, "Outcomes of re-sends.")
    listener: ListenerOptions = section(
        ListenerOptions, "`listen`, the proxy that saves messages that consumers give up."
    )
    webhooks: WebhookOptions = section(WebhookOptions, "Messages to people and their programs.")
    fleet: FleetOptions = section(FleetOptions, "`fleet`, one console over many sidecars.")
    mcp: McpOptions = section(McpOptions, "`mcp`, tools for assistants.")

    _origins: Mapping[str, str] = PrivateAttr(default_factory=dict)

    def problems(self) -> Iterator[KeyedProblem]:
        """Yield options that a schedule in the broker does not support."""
        if self.store.url == BROKER_HELD and self.journal.path:
            yield (
                "journal.path",
                "needs a store that keeps events until they are written; store.url broker: has "
                "none: leave this empty, or use another store",
            )
        if self.store.url == BROKER_HELD and self.webhooks.subscriptions:
            yield (
                "webhooks.subscriptions",
                "need a store; with store.url broker: leave this empty, or use another store",
            )
        if self.store.url == BROKER_HELD and self.policy.gates:
            yield (
                "policy.gates",
                "need a store; with store.url broker: only the broker knows the due messages: "
                "leave this empty, or use another store",
            )
        if self.store.url == BROKER_HELD and self.intake.cause_notes:
            yield (
                "intake.cause_notes",
                "needs a store, because with store.url broker: there is no history to write a "
                "cause into: leave this empty, or use another store",
            )
        events = self.intake.events.removeprefix("queue://")
        is_one = events.startswith(EVENTS) and not {*"*>#,"} & {*events}
        if events and (self.store.url == BROKER_HELD or not is_one):
            yield (
                "intake.events",
                f"is the name of one queue, which begins with {EVENTS}, and needs a store "
                f"other than broker:, found {self.intake.events!r}",
            )
        if self.policy.verdicts is VerdictPolicy.OBEY and not self.intake.cause_notes:
            yield (
                "policy.verdicts",
                "is `obey`, but no notes are read: name their queue in intake.cause_notes, such as "
                "amqsidecar.causes",
            )
        if self.store.url == BROKER_HELD and self.intake.backlog is Backlog.HOLD:
            yield (
                "intake.backlog",
                "is `hold`, but with store.url broker: the backlog can't be held: set `process`, "
                "or use another store",
            )

        if self.store.url == BROKER_HELD and self.redelivery.exhausted is ExhaustedChoice.KEEP:
            yield (
                "redelivery.exhausted",
                "is `keep`, but where store.url is broker: there is no schedule to keep a message "
                "in: set `queue`, or use another store",
            )

        if self.redelivery.mode is not RedeliveryMode.AUTOMATIC or self.redelivery.manual:
            yield from self._problems_of_manual()

    def _problems_of_manual(self) -> Iterator[KeyedProblem]:
        """Yield options that need dead letters to be taken, or looks at their queues."""
        is_in_place = self.redelivery.mode is RedeliveryMode.IN_PLACE
        for key, is_wrong, why in (
            (
                "intake.backlog",
                is_in_place and self.intake.backlog is Backlog.HOLD,
                "is `hold`, but nothing tells a backlog from what waits in place: set `process`",
            ),
            (
                "redelivery.manual",
                is_in_place and bool(self.redelivery.manual),
                "is set, but `in_place` leaves nothing to a person that the rules redeliver",
            ),
            (
                "redelivery.in_place_keep",
                is_in_place and bool(self.redelivery.in_place_keep),
                "is set, but would also end what the rules redeliver later",
            ),
            (
                "store.url",
                self.store.url == BROKER_HELD,
                "is broker:, where nothing is known of a message that was not taken: use another "
                "store",
            ),
            (
                "redelivery.exhausted",
                self.redelivery.exhausted is ExhaustedChoice.KEEP,
                "is `keep`, which takes exhausted messages out of their queues: set `queue`",
            ),
            (
                "outcomes.watch",
                not self.outcomes.watch,
                "is off, but only a watcher sees dead letters that are not taken: switch it on",
            ),
        ):
            if is_wrong:
                yield key, f"{why}; redelivery.mode is not `automatic`, or redelivery.manual is set"

    def origin(self, key: str) -> str:
        """Return where an option was set, such as `sidecar.yaml:12`; the key itself if nowhere."""
        return self._origins.get(key, key)

    def section_in_file(self, name: str) -> str | None:
        """Return where the file sets the first option of a section; None = it sets none."""
        places = (at for key, at in self._origins.items() if key.startswith(f"{name}."))
        return next((at for at in places if at.rpartition(":")[2].isdecimal()), None)

    def with_origins(self, origins: Mapping[str, str]) -> "Config":
        """Return the same options, with the places where they were set."""
        copy = self.model_copy()
        copy._origins = dict(origins)  # noqa: SLF001 - a copy of ourselves
        return copy


@lru_cache(maxsize=1)
def known_options() -> Mapping[str, Any]:
    """Return each option's dotted key with its pydantic field, in the order of the schema."""

    def walk(kind: type[Section], prefix: str) -> Iterator[tuple[str, Any]]:
        for name, field in kind.model_fields.items():
            nested = field.annotation
            if isinstance(nested, type) and issubclass(nested, Section):
                yield from walk(nested, f"{prefix}{name}.")
            else:
                yield f"{prefix}{name}", field

    return dict(walk(Config, ""))


def options_of_entries(field: Any) -> Mapping[str, Any]:
    """Return the options of each entry of a mapping; none = it has no such entries."""
    kinds = [get_args(getattr(one, "json_schema_input_type", None)) for one in field.metadata]
    sections = (
        one for kind in kinds for one in kind if isinstance(one, type) and issubclass(one, Section)
    )
    return next((one.model_fields for one in sections), {})
