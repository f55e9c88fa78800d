"""The part of the configuration that an examination uses."""

import msgspec

from amqsidecar.broker import BrokerKind, IntakeQueue
from amqsidecar.diagnosis.cause_notes import CauseNoteSettings
from amqsidecar.diagnosis.schedule import ScheduleFacts
from amqsidecar.engine.judging.dead_letter_names import DeadLetterNames
from amqsidecar.engine.manual import Manual
from amqsidecar.model.left_behind import Loss
from amqsidecar.model.send_terms import ResendEffect
from amqsidecar.plugin import Decider
from amqsidecar.policy.artemis_rules import ArtemisRules
from amqsidecar.policy.classic_rules import ClassicRules


class DoctorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of an examination.

    Attributes:
        user: of the log-in; "" = none.
        expected_kind: None = any.
        intake_queues: named by the operator; () = discover.
        notes: how notes and reports of outside events are read; () = neither is.
        rules: the configured rules; None = none.
        decider: the configured rules, compiled; None = none.
        needs_names: whether the wire shows no origins, so that a queue's name must give them
            (Classic over AMQP).
        manual: which dead letters are left to a person.
        allowed_losses: permitted by the operator.
        allowed_effects: permitted by the operator.
        allowed_origins: patterns of where redeliveries may go; () = anywhere.
        holds_backlog: whether dead letters that were there before are held.
        backlog_threshold: queues with at most this many are not held.
        watches_outcomes: whether `run` tracks re-sends.
        accepts_orphans: whether a new store begins although tokens of others are left.
        rules_digest: of the rules that would decide; "" = tokens of other rules are not noticed.
    """

    scheme: str
    place: str
    user: str = ""
    expected_kind: BrokerKind | None = None
    has_amqp: bool = True
    intake_queues: tuple[IntakeQueue, ...] = ()
    notes: tuple[CauseNoteSettings, ...] = ()
    has_copy_keys: bool = False
    rules: ClassicRules | ArtemisRules | None = None
    decider: Decider | None = None
    needs_names: bool = False
    manual: Manual = Manual()
    names: DeadLetterNames = msgspec.field(default_factory=lambda: DeadLetterNames(None))
    allowed_losses: tuple[Loss, ...] = ()
    allowed_effects: tuple[ResendEffect, ...] = ()
    allowed_origins: tuple[str, ...] = ()
    holds_backlog: bool = True
    backlog_threshold: int = 100
    final_suffix: str
    store_url: str
    is_broker_held: bool = False
    schedule: ScheduleFacts = ScheduleFacts()
    watches_outcomes: bool = False
    accepts_orphans: bool = False
    rules_digest: str = ""
