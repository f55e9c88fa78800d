"""What the Grafana dashboard shows: questions, with the queries that answer them.

Counters of single sidecars are summed. Values that every sidecar of a shared schedule reports alike
are the maximum over its job, then the sum over jobs: one job is one schedule.
`PICKED` and `OF` are the variables at the top of the page.
"""

from collections.abc import Sequence
from dataclasses import dataclass

PICKED = 'namespace=~"$namespace",job=~"$job",instance=~"$instance"'
OF = PICKED + ',destination=~"$destination"'
LISTENERS = 'namespace=~"$namespace"'
"""Listeners have jobs of their own."""


SCHEDULE = "namespace, job"
"""Labels that identify a schedule."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One picture.

    Attributes:
        queries: (legend, expression) each.
        help: what the picture shows and what it can't.
        kind: timeseries, stat, table or state-timeline.
        unit: as Grafana names units.
        bounds: values from which on it is yellow, and red.
        is_stacked: areas on top of each other.
    """

    title: str
    queries: Sequence[tuple[str, str]]
    help: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    bounds: tuple[float, float] | None = None
    is_stacked: bool = False


@dataclass(frozen=True, kw_only=True)
class Row:
    """A question of the console's first screen."""

    title: str
    panels: Sequence[Panel]
    is_closed: bool = False


def per_5m(metric: str, by: str, labels: str = PICKED) -> str:
    """Return how much a counter grew within five minutes, by some labels."""
    return f"sum by ({by}) (increase({metric}{{{labels}}}[5m]))"


def of_schedules(metric: str, by: str = "", labels: str = PICKED) -> str:
    """Return one value per schedule, even if several sidecars report it."""
    return f"max by ({', '.join(filter(None, (SCHEDULE, by)))}) ({metric}{{{labels}}})"


def grown(metric: str, window: str = "1h") -> str:
    """Return how much a counter grew within a time, altogether."""
    return f"sum(increase({metric}{{{PICKED}}}[{window}]))"


def of_listeners(metric: str, by: str = "") -> str:
    """Return how much a counter of listeners grew within five minutes."""
    return f"sum {by}(increase({metric}{{{LISTENERS}}}[5m]))"


def quantiles(metric: str, labels: str = PICKED) -> list[tuple[str, str]]:
    """Return median and 99th percentile of a histogram."""
    buckets = f"sum by (le) (rate({metric}_bucket{{{labels}}}[5m]))"
    return [(f"p{share}", f"histogram_quantile(0.{share}, {buckets})") for share in (50, 99)]


def outcomes(window: str, by: str, only: str = "") -> str:
    """Return how many outcomes became known, by some labels; each sidecar of a schedule counts all.

    Args:
        window: within this time.
        by: labels, of which `SCHEDULE` may be some.
        only: one more matcher.
    """
    labels = f"{OF},{only}" if only else OF
    grown_by = f"increase(amqsidecar_outcomes_total{{{labels}}}[{window}])"
    return f"sum by ({by}) (max by ({SCHEDULE}, destination, outcome) ({grown_by}))"


def acted(metric: str) -> str:
    """Return how much operations did in five minutes; each sidecar of a schedule counts all."""
    grown_by = f"increase({metric}{{{PICKED}}}[5m])"
    return f"sum by (action) (max by ({SCHEDULE}, action) ({grown_by}))"


def came_back(window: str) -> str:
    """Return the share of re-sends that came back, by schedule and destination."""
    by = f"{SCHEDULE}, destination"
    back = outcomes(window, by, 'outcome="came back"')
    return f"{back} / {outcomes(window, by)}"


OF_JOBS = 'namespace=~"$namespace",job=~"$job"'
USUAL = f"destination:amqsidecar_dead_letters_received:increase5m{{{OF_JOBS}}}"
MEDIAN = (
    "last_over_time("
    f"destination:amqsidecar_dead_letters_received:increase5m_median1w{{{OF_JOBS}}}[20m])"
)
PLACE = f"{SCHEDULE}, destination"
AT = "{{job}} {{destination}}"

DASHBOARD = (
    Row(
        title="What fires",
        panels=(
            Panel(
                title="Alerts",
                kind="table",
                queries=[
                    (
                        "",
                        f"max by (alertname, severity, {SCHEDULE}, instance, destination)"
                        ' (ALERTS{alertname=~"Amqsidecar.*",alertstate="firing",' + OF_JOBS + "})",
                    )
                ],
                help="Of the schedules that are chosen above. What to do: runbooks.md.",
                width=24,
                height=5,
            ),
        ),
    ),
    Row(
        title="What dies now, since when, why",
        panels=(
            Panel(
                title="Dead letters in five minutes, by destination",
                queries=[
                    (
                        AT,
                        "topk(10, "
                        + per_5m("amqsidecar_dead_letters_received_total", PLACE, OF)
                        + ")",
                    )
                ],
                help="Where they died; those that came back count again. Causes with examples are "
                "in the sidecar's console, under Groups: metrics have no texts of strangers.",
                width=16,
                is_stacked=True,
            ),
            Panel(
                title="Times the usual",
                kind="table",
                queries=[("", f"sort_desc({USUAL} / {MEDIAN})")],
                help="Dead letters in five minutes beside the median of the week. Only where "
                "something dies most of the time; needs the recording rules.",
                width=8,
                bounds=(2, 5),
            ),
            Panel(
                title="Verdicts in five minutes",
                queries=[
                    ("{{action}}", per_5m("amqsidecar_decisions_total", "action")),
                ],
                help="What the rules decided: redeliver, dead_letter (used up), discard; park and "
                "hold are the sidecar's own.",
            ),
            Panel(
                title="Verdicts by the kind of rule, last hour",
                kind="table",
                queries=[
                    (
                        "",
                        "sum by (rule_kind, action)"
                        f" (increase(amqsidecar_decisions_total{{{PICKED}}}[1h]))",
                    )
                ],
                help="Which family of rules decided.",
                width=6,
            ),
            Panel(
                title="New causes within the hour",
                kind="table",
                queries=[
                    ("", of_schedules("amqsidecar_new_causes", "destination", OF) + " > 0"),
                ],
                help="Destinations where a message died of a cause that the history doesn't know "
                "there. On the first day all are new.",
                width=6,
                bounds=(1, 5),
            ),
        ),
    ),
    Row(
        title="What waits, when it goes, what is overdue",
        panels=(
            Panel(
                title="Most overdue",
                kind="stat",
                queries=[("", f"max(amqsidecar_oldest_overdue_seconds{{{PICKED}}})")],
                help="For how long the first message that is due has not been sent; 0 = none is.",
                unit="s",
                width=4,
                bounds=(60, 300),
            ),
            Panel(
                title="In the schedule",
                kind="stat",
                queries=[
                    (
                        "{{state}}",
                        "sum by (state) ("
                        + of_schedules("amqsidecar_waiting", "destination, state", OF)
                        + ")",
                    )
                ],
                help="waiting = goes at its time; held = waits for a person; parked = can't be "
                "sent as things are; exhausted = redelivered no more until a person acts. Each "
                "job is one schedule.",
                width=8,
            ),
            Panel(
                title="Given up and dropped, last hour",
                kind="stat",
                queries=[
                    # Why `or`: there is no series before the first one of a destination.
                    ("used up", grown("amqsidecar_exhausted_total") + " or vector(0)"),
                    ("discarded by rule", grown("amqsidecar_discarded_total") + " or vector(0)"),
                    (
                        "would be discarded",
                        grown("amqsidecar_would_discard_total") + " or vector(0)",
                    ),
                ],
                help="Used up: exhausted, waits for a person.",
                width=8,
                bounds=(1, 100),
            ),
            Panel(
                title="Blocked destinations",
                kind="stat",
                queries=[
                    (
                        "",
                        f"sum({of_schedules('amqsidecar_blocked', 'destination', OF)})"
                        " or vector(0)",
                    )
                ],
                help="What is due there waits; the log's destination_blocked says why.",
                width=4,
                bounds=(1, 10),
            ),
            Panel(
                title="Waiting, by destination",
                queries=[
                    (
                        AT + " {{state}}",
                        "topk(10, "
                        + of_schedules("amqsidecar_waiting", "destination, state", OF)
                        + ")",
                    )
                ],
                help="By where they will go.",
                is_stacked=True,
            ),
            Panel(
                title="Lying in dead-letter queues",
                queries=[
                    (AT, f"topk(10, {of_schedules('amqsidecar_in_place', 'destination', OF)})")
                ],
                help="Exhausted messages in their queues, and all of `redelivery.mode: manual`.",
                width=8,
            ),
            Panel(
                title="Age of the oldest that waits for a person",
                queries=[("{{job}} {{state}}", of_schedules("amqsidecar_oldest_seconds", "state"))],
                help="Held, parked or exhausted; `amqsidecar list --state STATE` names it.",
                unit="s",
                width=8,
                bounds=(86_400, 604_800),
            ),
            Panel(
                title="Scheduled and re-sent in five minutes",
                queries=[
                    ("scheduled", grown("amqsidecar_scheduled_total", "5m")),
                    ("re-sent", grown("amqsidecar_resent_total", "5m")),
                ],
                help="More scheduled than re-sent: what waits grows. When exactly what goes is in "
                "the console, under Plots.",
            ),
            Panel(
                title="Lateness of re-sends",
                queries=quantiles("amqsidecar_lateness_seconds"),
                help="How long after its due time a message was sent.",
                unit="s",
                width=8,
            ),
            Panel(
                title="Re-sent in five minutes, by destination",
                queries=[
                    (
                        AT,
                        "topk(10, " + per_5m("amqsidecar_resent_total", PLACE, OF) + ")",
                    )
                ],
                help="Sent; whether it was consumed is the next question.",
                width=8,
                is_stacked=True,
            ),
            Panel(
                title="Held up by gates: in five minutes, and waiting now",
                queries=[
                    ("{{gate}}", per_5m("amqsidecar_gate_waits_total", "gate")),
                    (
                        "waiting for {{gate}}, " + AT,
                        "topk(10, "
                        + of_schedules("amqsidecar_gate_waiting", "destination, gate", OF)
                        + ")",
                    ),
                ],
                help="How often a gate gave a due message a later time, which is then when it is "
                "due, and how many wait for theirs. The reason stands beside the message. None "
                "without policy.gates.",
                width=8,
            ),
        ),
    ),
    Row(
        title="Which destinations don't recover",
        panels=(
            Panel(
                title="Share that came back, last hour",
                kind="table",
                queries=[("", f"sort_desc({came_back('1h')})")],
                help="Of the re-sends whose outcome became known. Above a half, redelivering does "
                "not help at the moment.",
                unit="percentunit",
                width=8,
                bounds=(0.2, 0.5),
            ),
            Panel(
                title="Share that came back",
                queries=[(AT, f"topk(10, {came_back('30m')})")],
                help="The same over time, of the last 30 minutes each.",
                unit="percentunit",
                width=8,
            ),
            Panel(
                title="Outcomes in five minutes",
                queries=[("{{outcome}}", outcomes("5m", "outcome"))],
                help="consumed is said only where it is proved; unknown is not bad, it is unknown.",
                width=8,
                is_stacked=True,
            ),
            Panel(
                title="Operations",
                kind="stat",
                queries=[
                    ("running", f"sum({of_schedules('amqsidecar_operations_running')})"),
                    (
                        "stopped by themselves",
                        f"sum({of_schedules('amqsidecar_operations_stopped')})",
                    ),
                    (
                        "messages that retention announced",
                        f"sum({of_schedules('amqsidecar_retention_announced')})",
                    ),
                ],
                help="What operators began. One that stopped waits for a person.",
                width=8,
            ),
            Panel(
                title="Messages changed by operations, in five minutes",
                queries=[
                    ("{{action}}", acted("amqsidecar_operation_messages_total")),
                    ("{{action}}: came back", acted("amqsidecar_operation_came_back_total")),
                ],
                help="retry and redirect may come back, the others don't.",
                width=16,
            ),
        ),
    ),
    Row(
        title="Is the sidecar well",
        panels=(
            Panel(
                title="Link",
                kind="state-timeline",
                queries=[("{{job}} {{instance}}", f"amqsidecar_link_up{{{PICKED}}}")],
                help="1 = connected, the token is ours, dead letters are read.",
            ),
            Panel(
                title="Last hour",
                kind="stat",
                queries=[
                    ("cycles in doubt", grown("amqsidecar_cycles_in_doubt_total")),
                    ("reconnects", grown("amqsidecar_link_reconnects_total")),
                    ("taken over", grown("amqsidecar_takeovers_total")),
                    ("journal failed", grown("amqsidecar_journal_failures_total")),
                    ("spans lost", grown("amqsidecar_otlp_dropped_total")),
                    ("clock set", grown("amqsidecar_clock_steps_total")),
                    ("ambiguous notes", grown("amqsidecar_cause_notes_ambiguous_total")),
                    ("webhooks sent", grown("amqsidecar_webhook_attempts_total")),
                    (
                        "webhooks that wait",
                        f"sum({of_schedules('amqsidecar_webhook_pending', 'subscription')})",
                    ),
                    (
                        "webhooks dropped",
                        f"sum({of_schedules('amqsidecar_webhook_dropped', 'subscription')})",
                    ),
                    (
                        "log-ins crowded out",
                        f'sum(increase(amqsidecar_log_ins_total{{{PICKED},result="crowded"}}[1h]))',
                    ),
                    (
                        "clock apart, s",
                        f"max(abs(amqsidecar_clock_behind_seconds{{{PICKED}}}))",
                    ),
                    ("token awaited now", f"sum(amqsidecar_token_awaited{{{PICKED}}})"),
                    (
                        "outcomes not counted",
                        f"max(amqsidecar_outcomes_not_counted{{{PICKED}}})",
                    ),
                    ("schedules alone now", f"sum({of_schedules('amqsidecar_orphaned_tokens')})"),
                    ("taking stopped now", f"sum(amqsidecar_taking_stopped{{{PICKED}}})"),
                ],
                help="All should be 0.",
                bounds=(1, 5),
            ),
            Panel(
                title="Left in their queues",
                kind="table",
                queries=[
                    ("", of_schedules("amqsidecar_left_behind", "destination, reason")),
                ],
                help="Dead letters that are not taken, and why; refused = the queue can't be read.",
                bounds=(1, 100),
            ),
            Panel(
                title="Store",
                queries=[
                    ("size {{job}} {{instance}}", f"amqsidecar_store_size_bytes{{{PICKED}}}"),
                    (
                        "left on the disk {{job}} {{instance}}",
                        f"amqsidecar_store_available_bytes{{{PICKED}}}",
                    ),
                ],
                help="Of a store in PostgreSQL the size only.",
                unit="bytes",
            ),
            Panel(
                title="Cycles: duration",
                queries=quantiles("amqsidecar_cycle_duration_seconds"),
                help="From gathering to the broker's commit.",
                unit="s",
                width=8,
            ),
            Panel(
                title="Cycles: messages",
                queries=quantiles("amqsidecar_cycle_messages"),
                help="How many messages a cycle took and sent.",
                width=8,
            ),
            Panel(
                title="Versions",
                kind="table",
                queries=[
                    (
                        "",
                        f"max by ({SCHEDULE}, instance, version, python)"
                        f" (amqsidecar_build_info{{{PICKED}}})",
                    )
                ],
                help="Version of each instance.",
                width=8,
            ),
            Panel(
                title="Journal: age of what is not written",
                queries=[("{{job}} {{instance}}", f"amqsidecar_journal_lag_seconds{{{PICKED}}}")],
                help="Up to journal.segment_s is normal.",
                unit="s",
                width=8,
            ),
            Panel(
                title="Journal: events not written",
                queries=[
                    ("{{job}} {{instance}}", f"amqsidecar_journal_waiting_events{{{PICKED}}}")
                ],
                help="The store keeps them until they are.",
                width=8,
            ),
            Panel(
                title="Journal: segments and bytes in an hour",
                queries=[
                    ("segments", grown("amqsidecar_journal_segments_total")),
                    ("bytes", grown("amqsidecar_journal_written_bytes_total")),
                ],
                help="0 and 0: off, or it stands still.",
                width=8,
            ),
        ),
    ),
    Row(
        title="Processes",
        is_closed=True,
        panels=(
            Panel(
                title="Memory",
                queries=[("{{job}} {{instance}}", f"process_resident_memory_bytes{{{PICKED}}}")],
                help="Of sidecars. Bounds: sizing.md.",
                unit="bytes",
                width=8,
            ),
            Panel(
                title="Processors in use",
                queries=[
                    (
                        "{{job}} {{instance}}",
                        f"rate(process_cpu_seconds_total{{{PICKED}}}[5m])",
                    )
                ],
                help="Near 1: at its limit, because one thread does all the work.",
                width=8,
            ),
            Panel(
                title="Open files and sockets",
                queries=[("{{job}} {{instance}}", f"process_open_fds{{{PICKED}}}")],
                help="The system's limit is process_max_fds.",
                width=8,
            ),
        ),
    ),
    Row(
        title="Listeners (amqsidecar listen)",
        is_closed=True,
        panels=(
            Panel(
                title="Connections",
                queries=[
                    (
                        f"{{{{job}}}} {{{{instance}}}} {legend}",
                        f"amqsidecar_listener_connections{suffix}{{{LISTENERS}}}",
                    )
                    for legend, suffix in (
                        ("all", ""),
                        ("places", "_max"),
                        ("without log-in", "_without_login"),
                        ("places without log-in", "_without_login_max"),
                    )
                ],
                help="Clients without a log-in have places of their own.",
            ),
            Panel(
                title="Clients cut off in five minutes",
                queries=[
                    ("no place", of_listeners("amqsidecar_listener_connections_refused_total")),
                    (
                        "broker unreachable",
                        of_listeners("amqsidecar_listener_broker_unreachable_total"),
                    ),
                ],
                help="No place: they did not log in.",
            ),
            Panel(
                title="Given up by consumers in five minutes",
                queries=[
                    (
                        "{{outcome}}",
                        of_listeners("amqsidecar_listener_given_up_total", "by (outcome) "),
                    ),
                    (
                        "not kept beforehand",
                        of_listeners("amqsidecar_listener_unkept_messages_total"),
                    ),
                ],
                help="intercepted and noted are saved; passed and refused are not.",
            ),
            Panel(
                title="Messages that clients have in hand",
                queries=[
                    ("memory", f"sum(amqsidecar_listener_memory_bytes{{{LISTENERS}}})"),
                    ("files", f"sum(amqsidecar_listener_spooled_bytes{{{LISTENERS}}})"),
                ],
                help="Limits: listener.memory_mib and listener.spool_mib for each listener.",
                unit="bytes",
            ),
            Panel(
                title="Bytes in five minutes",
                queries=[
                    (
                        "from the {{sender}}",
                        of_listeners("amqsidecar_listener_bytes_total", "by (sender) "),
                    )
                ],
                help="What clients and the broker sent.",
                unit="bytes",
                width=8,
            ),
            Panel(
                title="Time in the listener",
                queries=quantiles("amqsidecar_listener_relay_seconds", LISTENERS),
                help="From a read of one side to the write on the other.",
                unit="s",
                width=8,
            ),
            Panel(
                title="Versions of listeners",
                kind="table",
                queries=[
                    (
                        "",
                        f"max by ({SCHEDULE}, instance, version, python)"
                        f" (amqsidecar_listener_build_info{{{LISTENERS}}})",
                    )
                ],
                help="Version of each listener.",
                width=8,
            ),
        ),
    ),
)
