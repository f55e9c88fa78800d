"""Every metric: the table that is served, documented, and held against alerts and dashboard.

`python -m amqsidecar.telemetry.metrics_table` prints it as Markdown.
"""

import sys
from enum import StrEnum
from typing import Final

import msgspec

DESTINATION_LIMIT: Final = 200
"""Maximum destinations with their own label at a time; the others share one."""

OTHER: Final = "other"

IDLE_S: Final = 3600.0
"""Time without events and waiting messages after which a destination loses its label."""


class MetricKind(StrEnum):
    """The kinds of metrics that we have."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class MetricSpec(msgspec.Struct, frozen=True):
    """One row of the table.

    Attributes:
        name: as Prometheus shows it.
        source: the event or the part of the service that it comes from.
        bounds: histograms only: upper bounds of the buckets, without infinity.
        is_always_there: False = it has no value until one is set.
    """

    name: str
    kind: MetricKind
    labels: tuple[str, ...]
    help: str
    source: str
    bounds: tuple[float, ...] = ()
    is_always_there: bool = True


_LATENESS_BOUNDS: Final = (
    *(0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0),
)
_DURATION_BOUNDS: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)
_SIZE_BOUNDS: Final = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0)

METRICS: Final = (
    MetricSpec(
        "amqsidecar_dead_letters_received_total",
        MetricKind.COUNTER,
        ("destination",),
        "Dead letters taken from the broker, by original destination; by dead-letter queue where "
        "the message does not show its origin.",
        "received, returned",
    ),
    MetricSpec(
        "amqsidecar_decisions_total",
        MetricKind.COUNTER,
        ("action", "rule_kind"),
        "Decisions on dead letters. Action: redeliver, dead_letter, discard, park or hold. Rule "
        "kind: redelivery, dead_letter, discarding, address_settings, rules, sidecar (no rule of "
        "the broker's) or other.",
        "scheduled, exhausted, discarded, parked, held",
    ),
    MetricSpec(
        "amqsidecar_observed_total",
        MetricKind.COUNTER,
        ("action", "rule_kind"),
        "`run --observe` only: dead letters seen, by the action that would follow; labels as for "
        "amqsidecar_decisions_total.",
        "the observer",
    ),
    MetricSpec(
        "amqsidecar_observed_by_destination_total",
        MetricKind.COUNTER,
        ("destination", "action"),
        "`run --observe` only: the same by destination.",
        "the observer",
    ),
    MetricSpec(
        "amqsidecar_scheduled_total",
        MetricKind.COUNTER,
        (),
        "Messages that the rules redeliver, counted at each death.",
        "scheduled",
    ),
    MetricSpec(
        "amqsidecar_resent_total",
        MetricKind.COUNTER,
        ("destination",),
        "Messages sent to their original destination again.",
        "resent",
    ),
    MetricSpec(
        "amqsidecar_outcomes_total",
        MetricKind.COUNTER,
        ("destination", "outcome"),
        "Outcomes of re-sends, counted when known or after twice `outcomes.window_s`: consumed, "
        "came back, unknown (`operations.md`). With a shared schedule each sidecar counts all.",
        "the watcher",
    ),
    MetricSpec(
        "amqsidecar_exhausted_total",
        MetricKind.COUNTER,
        ("destination",),
        "Messages that have used all their redeliveries, by the destination where they died.",
        "exhausted",
    ),
    MetricSpec(
        "amqsidecar_discarded_total",
        MetricKind.COUNTER,
        ("destination",),
        "Messages that the rules discard, by the destination where they died.",
        "discarded",
    ),
    MetricSpec(
        "amqsidecar_destinations_blocked_total",
        MetricKind.COUNTER,
        (),
        "Times that a destination could not accept re-sends; messages due there wait.",
        "destination_blocked",
    ),
    MetricSpec(
        "amqsidecar_gate_waits_total",
        MetricKind.COUNTER,
        ("gate",),
        "Times that a gate delayed a due message (`gates.md`).",
        "the gates",
    ),
    MetricSpec(
        "amqsidecar_gate_waiting",
        MetricKind.GAUGE,
        ("destination", "gate"),
        "Due messages that a gate delays (`gates.md`). They are part of amqsidecar_waiting, and "
        "not overdue.",
        "the store's rows",
    ),
    MetricSpec(
        "amqsidecar_waiting",
        MetricKind.GAUGE,
        ("destination", "state"),
        "Messages in the schedule, by destination and state: waiting, held, parked or exhausted "
        "(no more redeliveries; a person has to act on them).",
        "the store's tallies",
    ),
    MetricSpec(
        "amqsidecar_new_causes",
        MetricKind.GAUGE,
        ("destination",),
        "Groups of failures, by cause and destination, whose first message died within the last "
        "hour, by the history that is kept.",
        "the store's groups",
    ),
    MetricSpec(
        "amqsidecar_left_behind",
        MetricKind.GAUGE,
        ("destination", "reason"),
        "Dead letters that stay in their queue (the label's destination). Reason, by what the "
        "wire can't carry: body_type, property_types, group, not_carried, not_convertible; can't "
        "accept: not_acknowledgeable; does not show: no_origin, no_name, not_amqp_made; or "
        "not_listed (`run --observe` can't look at them), stuck_in_broker (Artemis counts messages "
        "of any queue as handed out, and no consumer has them), refused (the queue can't be read; "
        "0 where it can't be counted). A lower bound.",
        "the link",
    ),
    MetricSpec(
        "amqsidecar_oldest_overdue_seconds",
        MetricKind.GAUGE,
        (),
        "How long the most overdue waiting message has been due; 0 = none is.",
        "the store's next due time",
    ),
    MetricSpec(
        "amqsidecar_lateness_seconds",
        MetricKind.HISTOGRAM,
        (),
        "How long after its due time a message was re-sent.",
        "resent",
        _LATENESS_BOUNDS,
    ),
    MetricSpec(
        "amqsidecar_cycle_duration_seconds",
        MetricKind.HISTOGRAM,
        (),
        "How long a cycle took, from gathering to the broker's commit.",
        "the engine",
        _DURATION_BOUNDS,
    ),
    MetricSpec(
        "amqsidecar_cycle_messages",
        MetricKind.HISTOGRAM,
        (),
        "How many messages a cycle took and sent.",
        "the engine",
        _SIZE_BOUNDS,
    ),
    MetricSpec(
        "amqsidecar_cycles_in_doubt_total",
        MetricKind.COUNTER,
        (),
        "Cycles whose commit could not be confirmed; copies are possible.",
        "cycle_in_doubt",
    ),
    MetricSpec(
        "amqsidecar_link_up",
        MetricKind.GAUGE,
        (),
        "1 = connected to the broker, the token is ours, dead letters are read; 0 = not.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_token_awaited",
        MetricKind.GAUGE,
        (),
        "1 = the broker is reached, but another process, or the broker for a dead one, still holds "
        "the token of this instance; nothing is taken or sent until it is free.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_outcomes_not_counted",
        MetricKind.GAUGE,
        (),
        "1 = the broker does not count acknowledgements, so re-sends that do not come back stay "
        "unknown (`operations.md`).",
        "the looks at destinations",
    ),
    MetricSpec(
        "amqsidecar_orphaned_tokens",
        MetricKind.GAUGE,
        (),
        "Other schedules whose token is in the broker and that no sidecar works on: messages "
        "waiting in them are not sent. `/readyz` and the log name them.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_link_reconnects_total",
        MetricKind.COUNTER,
        (),
        "Times that an established link was lost and restored.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_takeovers_total",
        MetricKind.COUNTER,
        (),
        "Stopped sidecars whose last cycle this one settled by their token (`schedules.md`).",
        "the takeover",
    ),
    MetricSpec(
        "amqsidecar_cause_notes_ambiguous_total",
        MetricKind.COUNTER,
        (),
        "Deaths with a consumer's note that may be about another copy of the message, and so gives "
        "no cause (`cause-notes.md`).",
        "explained",
    ),
    MetricSpec(
        "amqsidecar_clock_steps_total",
        MetricKind.COUNTER,
        ("direction",),
        "Times that the machine's clock was set by a second or more while the sidecar ran. "
        "Direction: ahead or back. Delays are not affected.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_clock_behind_seconds",
        MetricKind.GAUGE,
        (),
        "By how much the schedule's clock is behind the machine's clock, negative = ahead; after a "
        "step it comes back to 0 by a twentieth of the time that passes.",
        "the service",
    ),
    MetricSpec(
        "amqsidecar_store_size_bytes",
        MetricKind.GAUGE,
        (),
        "Disk space used by the store.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_store_available_bytes",
        MetricKind.GAUGE,
        (),
        "Free space on the disk of the store's file; absent for a store in PostgreSQL.",
        "the file system",
        is_always_there=False,
    ),
    MetricSpec(
        "amqsidecar_taking_stopped",
        MetricKind.GAUGE,
        (),
        "1 = the store has no room, so no dead letters are taken; due messages are still sent.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_journal_lag_seconds",
        MetricKind.GAUGE,
        (),
        "Age of the oldest event that is not in the journal yet; 0 = all are. Up to "
        "`journal.segment_s` is normal.",
        "the store's outbox",
    ),
    MetricSpec(
        "amqsidecar_journal_waiting_events",
        MetricKind.GAUGE,
        (),
        "Events that are not in the journal yet; the store keeps them until they are.",
        "the store's outbox",
    ),
    MetricSpec(
        "amqsidecar_journal_segments_total",
        MetricKind.COUNTER,
        (),
        "Segments that were written into the journal.",
        "the journal's writer",
    ),
    MetricSpec(
        "amqsidecar_journal_written_bytes_total",
        MetricKind.COUNTER,
        (),
        "Bytes of these segments' files.",
        "the journal's writer",
    ),
    MetricSpec(
        "amqsidecar_journal_failures_total",
        MetricKind.COUNTER,
        (),
        "Attempts to write the journal that failed; each has a line in the log, and is repeated.",
        "the journal's writer",
    ),
    MetricSpec(
        "amqsidecar_operations_running",
        MetricKind.GAUGE,
        (),
        "Operations in progress.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_operations_stopped",
        MetricKind.GAUGE,
        (),
        "Of the latest 50 operations, those that stopped by themselves because too many messages "
        "came back, until a person resumes or cancels them.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_operation_messages_total",
        MetricKind.COUNTER,
        ("action",),
        "Messages that operations changed since the service started, by any process. Action: "
        "retry, redirect, cancel, discard, hold or release.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_operation_came_back_total",
        MetricKind.COUNTER,
        ("action",),
        "Of these, messages that were sent and died again.",
        "the store",
    ),
    MetricSpec(
        "amqsidecar_log_ins_total",
        MetricKind.COUNTER,
        ("caller", "result"),
        "Log-ins by password. Caller: known = the browser or its network logged in before; "
        "unknown. Result: accepted, wrong, delayed (after wrong ones), or crowded (refused: too "
        "many of this kind were waiting).",
        "console",
    ),
    MetricSpec(
        "amqsidecar_build_info",
        MetricKind.GAUGE,
        ("version", "python"),
        "Always 1; the labels are the versions.",
        "the program",
    ),
)
"""The table. Alerts, dashboard and reference are checked against it."""

LISTENER_METRICS: Final = (
    MetricSpec(
        "amqsidecar_listener_connections",
        MetricKind.GAUGE,
        (),
        "Open connections of clients, from their acceptance on, TLS handshakes included.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_connections_refused_total",
        MetricKind.COUNTER,
        (),
        "Clients without a log-in that were refused or gave way: `listener.logins_max` or "
        "`listener.connections_max` was reached.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_connections_without_login",
        MetricKind.GAUGE,
        (),
        "The part of the connections whose log-in the broker has not accepted.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_connections_max",
        MetricKind.GAUGE,
        (),
        "`listener.connections_max`.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_connections_without_login_max",
        MetricKind.GAUGE,
        (),
        "`listener.logins_max`.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_unkept_messages_total",
        MetricKind.COUNTER,
        (),
        "Messages that could not be kept, because memory or files were full: giving them up is "
        "treated by `listener.on_failure`.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_broker_unreachable_total",
        MetricKind.COUNTER,
        (),
        "Clients that were cut off because the broker could not be reached.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_bytes_total",
        MetricKind.COUNTER,
        ("sender",),
        "Bytes received. Sender: client or broker.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_given_up_total",
        MetricKind.COUNTER,
        ("how", "outcome"),
        "Messages that consumers gave up, by NACK, rejected or modified. Outcome: intercepted = "
        "saved; noted = its cause or its delay was written as a note, and the broker has it as a "
        "dead letter; passed = neither could be done, so that the broker got it as without a "
        "listener (a log line says why); refused = the broker refused the copy, or there was none "
        "and `listener.on_failure` is `closed`, so that the consumer gets it again.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_memory_bytes",
        MetricKind.GAUGE,
        (),
        "Memory of messages that clients have in hand.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_spooled_bytes",
        MetricKind.GAUGE,
        (),
        "The part of these in files.",
        "`listen`",
    ),
    MetricSpec(
        "amqsidecar_listener_relay_seconds",
        MetricKind.HISTOGRAM,
        (),
        "Time from a read of one side to the write on the other, for each read.",
        "`listen`",
        (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0),
    ),
    MetricSpec(
        "amqsidecar_listener_build_info",
        MetricKind.GAUGE,
        ("version", "python"),
        "Always 1; the labels are the versions.",
        "`listen`",
    ),
)
"""Metrics of the process `amqsidecar listen`."""


def metrics_markdown() -> str:
    """Return the table as a page."""
    lines = [
        "# Metrics",
        "",
        "`python -m amqsidecar.telemetry.metrics_table` prints this page.",
        "",
        f"The label `destination` has at most {DESTINATION_LIMIT} values at a time "
        f"(`http.metrics_destinations`); further destinations share `{OTHER}`, and `amqsidecar "
        "status` names them. A destination at which nothing waits, and nothing happened for an "
        "hour, gives its value to one that needs it, and begins again at 0. On Linux `process_*` "
        "describe the process.",
        "",
        "| metric | kind | labels | meaning | from |",
        "|---|---|---|---|---|",
    ]
    for spec in (*METRICS, *LISTENER_METRICS):
        labels = ", ".join(f"`{label}`" for label in spec.labels)
        lines.append(f"| `{spec.name}` | {spec.kind} | {labels} | {spec.help} | {spec.source} |")
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.stdout.write(metrics_markdown())
