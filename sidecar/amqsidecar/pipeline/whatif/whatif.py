"""The job `whatif`: replays other policies on the history, and proposes settings."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import pyarrow
import structlog
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from amqsidecar.model.shown import shown_line
from amqsidecar.pipeline.results import Results, time_text
from amqsidecar.pipeline.sources.event_files import lacking_segments
from amqsidecar.pipeline.sources.events import read_events
from amqsidecar.pipeline.sources.output_files import write_file
from amqsidecar.pipeline.tables import EVERYWHERE, WHATIF_PROPOSALS, arrow_schema
from amqsidecar.pipeline.whatif.courses import (
    Planner,
    read_courses,
    unknown_to_history,
    with_courses,
)
from amqsidecar.pipeline.whatif.evidence import (
    count_windows,
    fit_ensembles,
    usual_waits,
    windows_by_destination,
)
from amqsidecar.pipeline.whatif.messages import read_messages
from amqsidecar.pipeline.whatif.models import FailureKind
from amqsidecar.pipeline.whatif.policy import (
    PROPOSAL,
    Candidate,
    Setting,
    load_candidates,
    unmatched_entries,
    with_settings,
)
from amqsidecar.pipeline.whatif.replay import Replay, replay
from amqsidecar.pipeline.whatif.report import proposal_line, write_report
from amqsidecar.pipeline.whatif.search import Rule, make_grid
from amqsidecar.pipeline.whatif.tables import by_destination, evidence_rows, judge, propose
from amqsidecar.plugin import Plugin
from amqsidecar.plugin_loader import load_plugins
from amqsidecar.policy_source.load import compile_policy
from amqsidecar.policy_source.yaml_writer import write_helm_values, write_yaml

_TABLES: Final = ("whatif_by_destination", "whatif_proposals")
_JSON: Final = "whatif.json"
_PROPOSAL_FOLDER: Final = "proposal"

log = structlog.get_logger("amqsidecar.pipeline")


@dataclass(frozen=True, kw_only=True)
class WhatifOptions:
    """The options of `amqsidecar pipeline whatif`; its help explains them.

    None = not given; without `search` there is no proposal.
    """

    events: str
    output_folder: str
    policies: Sequence[str]
    since_ms: int | None
    until_ms: int | None
    horizon_ms: int
    most_attempts: int
    least_messages: int
    search: Rule | None


def run_whatif(spark: SparkSession, options: WhatifOptions) -> dict[str, object]:
    """Replay policies on the history; write tables, the proposal if asked for, and the report.

    Returns the first screen of the report.

    A run that is killed leaves each table whole or without `_SUCCESS`, none of an earlier run, and
    is simply run again; the report is written last.

    Raises:
        ConfigError: a policy can't be loaded, or the history can't be read; nothing is written.
    """
    results = Results(options.output_folder, (*_TABLES, _JSON, _PROPOSAL_FOLDER))
    plugins = load_plugins()
    candidates = load_candidates(options.policies, plugins)
    asks = any(one.asks for one in candidates)
    messages = read_messages(
        read_events(spark, options.events, until_ms=options.until_ms),
        options.until_ms,
        options.horizon_ms,
    )
    if options.since_ms is not None:
        is_since = f.col("arrived_ms").isNull() | (f.col("arrived_ms") >= options.since_ms)
        messages = messages.where(is_since)
    if not asks:
        for name in ("cause", "properties"):
            messages = messages.withColumn(name, f.lit(None).cast(messages.schema[name].dataType))
    messages.persist()
    counted = messages.where(f.col("left_out").isNull())
    usual = usual_waits(counted)
    seen = count_windows(counted).persist()
    ensembles = fit_ensembles(counted, seen, usual, options.least_messages)
    rows = []
    base = candidates[0]
    if options.search is not None:
        grid = make_grid(base.rules, plugins)
        rows = propose(ensembles, grid, usual, options.search, options.least_messages)
        candidates += _proposal(base, rows, plugins)
    planner = Planner(
        {one.name: one.rules for one in candidates}, plugins, usual, options.most_attempts
    )
    courses = with_courses(counted, planner, asks=asks)
    down = {
        place for (place, _), one in ensembles.items() if one.weight_of(FailureKind.DOWN_OR_LOADED)
    }
    windows = windows_by_destination(seen.where(f.col("destination").isin(*down)), usual)
    play = Replay(read_courses(courses, planner), ensembles, windows, usual)
    played = whole = replay(courses, play).persist()
    if options.search is not None:
        rows = judge(rows, ensembles, played)
        written = [row for row in rows if row["is_written"]]
        played = _as_written(played, base.name, [row["destination"] for row in written])
        candidates = [one for one in candidates if one.name != PROPOSAL]
        candidates += _proposal(base, written, plugins)
        schema = arrow_schema(WHATIF_PROPOSALS)
        results.write("whatif_proposals", pyarrow.Table.from_pylist(rows, schema))
        _write_proposal(options.output_folder, base, rows, plugins)
    unmatched = _log_unmatched(candidates, usual)
    forecasts = by_destination(played, ensembles)
    results.write("whatif_by_destination", forecasts)
    shown = forecasts.to_pylist()
    evidence = evidence_rows(ensembles)
    document = {
        "policies": [row for row in shown if row["destination"] == EVERYWHERE],
        "evidence": evidence,
    }
    write_file(
        f"{options.output_folder}/{_JSON}", json.dumps(document, indent=1, sort_keys=True).encode()
    )
    counts = {
        row["left_out"]: row["count"] for row in messages.groupBy("left_out").count().collect()
    }
    left_out = [
        f"{count:,} messages are left out: {reason}."
        for reason, count in sorted(counts.items(), key=str)
        if reason is not None
    ]
    unknown = unknown_to_history(counted, candidates)
    for one in unknown:
        log.warning("asked_but_not_in_history", asked=one)
    summary = write_report(
        results.report_path,
        [*lacking_segments(options.events), *left_out],
        _facts(options, counts.get(None, 0), unknown),
        unmatched,
        forecasts=shown,
        evidence=evidence,
        proposals=None if options.search is None else rows,
    )
    for frame in (whole, seen, messages):
        frame.unpersist()
    return results.finish(summary)


def _as_written(played: DataFrame, base: str, destinations: Sequence[str]) -> DataFrame:
    """Return `played` with the base replacing the proposal, except at these destinations."""
    is_written = f.col("destination").isin(*destinations)
    is_proposal = f.col("policy") == PROPOSAL
    kept = played.where(~is_proposal | is_written)
    if not destinations:
        return kept
    others = played.where((f.col("policy") == base) & ~is_written)
    return kept.unionByName(others.withColumn("policy", f.lit(PROPOSAL)))


def _proposal(
    base: Candidate, rows: Sequence[Mapping[str, Any]], plugins: Mapping[str, Plugin]
) -> list[Candidate]:
    """Return the base with the settings of these rows as a policy; nothing where it is the base."""
    if not rows:
        return []
    settings = {
        row["destination"]: Setting(*(row[field.name] for field in fields(Setting))) for row in rows
    }
    rules = with_settings(base.rules, settings)
    return [Candidate(PROPOSAL, rules, compile_policy(rules, plugins))]


def _write_proposal(
    folder: str, base: Candidate, rows: Sequence[Mapping[str, Any]], plugins: Mapping[str, Plugin]
) -> None:
    """Write the proposal as a policy and as Helm values, each with its numbers and its doubt.

    Where no destination got a proposal the files hold the base as it is.
    """
    written = [row for row in rows if row["is_written"]]
    found = _proposal(base, written, plugins)
    rules = found[0].rules if found else base.rules
    lines = [f"Settings of {len(written)} destinations by `amqsidecar pipeline whatif`."]
    lines += [proposal_line(row) for row in rows]
    head = "".join(f"# {shown_line(line)}\n" for line in lines)
    policy, values = head + write_yaml(rules), write_helm_values(rules, head)
    for name, text in (("policy.yaml", policy), ("values.yaml", values)):
        write_file(f"{folder}/{_PROPOSAL_FOLDER}/{name}", text.encode())


def _log_unmatched(
    candidates: Sequence[Candidate], destinations: Iterable[str]
) -> list[tuple[str, str]]:
    """Return and log the entries that match nothing in history, by policy."""
    places = list(destinations)
    found = [
        (one.name, entry) for one in candidates for entry in unmatched_entries(one.rules, places)
    ]
    for policy, entry in found:
        log.warning("entry_unknown_to_history", policy=policy, entry=entry)
    return found


def _facts(options: WhatifOptions, played: int, unknown: Sequence[str]) -> dict[str, str]:
    facts = {
        "history": options.events,
        "messages since": time_text(options.since_ms, "the beginning"),
        "observed until": time_text(options.until_ms, "the latest event of each stream"),
        "messages played": f"{played:,}",
    }
    facts["recovered"] = f"not returned within {options.horizon_ms / 1000:,.0f} s after a re-send"
    facts["re-sends played"] = f"at most {options.most_attempts:,} of one message"
    if unknown:
        facts["rules ask for, no message of the history has"] = ", ".join(unknown)
    if options.search is not None:
        facts["proposal"] = (
            f"least re-sends within {options.search.share_tolerance * 100:.4g} points of the best "
            f"share, on average at most {options.search.slowdown:.4g} times as late as messages "
            f"become recoverable; destinations of at least {options.least_messages:,} messages"
        )
    return facts
