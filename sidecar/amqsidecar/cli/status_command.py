"""`amqsidecar status`: how the schedule stands."""

from dataclasses import dataclass

from amqsidecar.cli.opened import opened_view
from amqsidecar.cli.options import Chosen, Output, OutputFormat
from amqsidecar.cli.printing import print_fact, print_json, print_line, print_table
from amqsidecar.cli.reading import check_of_broker, find_group, read_selection, takes
from amqsidecar.clock import SystemClock
from amqsidecar.config.schema import Config
from amqsidecar.model.schedule import GateTally
from amqsidecar.operations.browse import Status, read_status
from amqsidecar.operations.words import (
    clock_time,
    due,
    exhausted_line,
    missing_line,
    one_line,
    size,
    unknown_line,
)


@dataclass(frozen=True, kw_only=True)
class Wanted(Chosen):
    """The values of the options."""

    output: Output = OutputFormat.TEXT


@takes(Wanted)
def status(wanted: Wanted, config: Config) -> None:
    """Print waiting messages by destination and state.

    Filters say which messages are counted; all else is about the whole schedule.

    \b
    JSON: {"instance", "cycle", "unfinished_cycle": null | {"cycle", "taken_count", "sent_count"},
    "total", "waiting": [{"destination", "state", "count"}], "next_due_at_ms": null | number,
    "oldest_overdue_seconds", "store_size_bytes", "room": {"is_enough", "reason"},
    "backlog": {dead-letter queue: messages to hold},
    "instances": [{"instance", "uid", "is_held", "seen_seconds_ago", "cycle", "unfinished_cycle":
    null | number, "manual": [pattern]}] (on a shared schedule), "gates": [{"destination", "gate",
    "count", "next_due_at_ms", "last_due_at_ms"}] (messages that gates delay), "exhausted":
    [{"destination", "queue", "is_in_queue", "count", "since_ms"}], "missing": [{"queue", "count",
    "seen_at_ms"}] (of what went to final dead-letter queues), "unknown": [{"queue", "count",
    "at_least", "seen_at_ms"}] (messages of dead-letter queues that are not read, and not in the
    schedule)}
    """  # noqa: D301 - the backspace makes the library keep the lines
    now_ms = SystemClock().now_ms()
    selection = read_selection(wanted, now_ms)
    check_of_broker(config.store.url, selection, is_simple=wanted.group is None)
    with opened_view(config) as store:
        state = store.state()
        rows = find_group(store, wanted, selection.rows)
        found = read_status(store, state, now_ms, rows)
    if wanted.output is OutputFormat.JSON:
        print_json(found)
    else:
        _print(found, now_ms)


def _gate_line(one: GateTally, now_ms: int) -> str:
    first, last = one.next_due_at_ms, one.last_due_at_ms
    until = clock_time(last) if first == last else f"{clock_time(first)} to {clock_time(last)}"
    what = one.gate or "events outside, at the latest"
    return (
        f"{one.count} due for {one_line(one.destination)} wait for {what} until {until} "
        f"({due(first, now_ms)})"
    )


def _print(found: Status, now_ms: int) -> None:
    for one in found.instances:
        seen = f"seen {one.seen_seconds_ago:.0f} s ago" if one.is_held else "free"
        cycle = "" if one.unfinished_cycle is None else f", cycle {one.unfinished_cycle} unfinished"
        print_line(f"instance     {one.instance}, {seen}, last cycle {one.cycle}{cycle}")
    if not found.instances:
        print_line(f"instance     {found.instance}")
        print_line(f"last cycle   {found.cycle}")
        if (unfinished := found.unfinished_cycle) is not None:
            print_line(
                f"cycle {unfinished.cycle} runs now or was interrupted: "
                f"{unfinished.taken_count} taken, {unfinished.sent_count} sent"
            )
    print_fact(f"store        {size(found.store_size_bytes)}")
    if not found.room.is_enough:
        print_fact(f"taking       stopped: {found.room.reason}")
    if found.next_due_at_ms is not None:
        at = clock_time(found.next_due_at_ms)
        print_fact(f"next due     {due(found.next_due_at_ms, now_ms)} ({at})")
    for source, count in found.backlog.items():
        print_fact(f"backlog      the next {count} dead letters of {source} will be held")
    for gate in found.gates:
        print_fact(f"gate         {_gate_line(gate, now_ms)}")
    for exhausted in found.exhausted:
        print_fact(f"exhausted    {exhausted_line(exhausted, now_ms)}")
    for missing in found.missing:
        print_fact(f"missing      {missing_line(missing, now_ms)}")
    for unknown in found.unknown:
        print_fact(f"unknown      {unknown_line(unknown, now_ms)}")
    print_fact(f"messages     {found.total}")
    if found.waiting:
        print_line()
        rows = [
            (one_line(tally.destination), tally.state.value, str(tally.count))
            for tally in found.waiting
        ]
        print_table(("destination", "state", "messages"), rows)
