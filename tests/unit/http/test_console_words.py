"""What the console says besides pages: commands to copy, texts made visible, plots."""

import itertools
import shlex
import subprocess
from typing import Any
from xml.etree import ElementTree as ET

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.cli.main import run_command_line
from amqsidecar.cli.operate import commands as act_commands
from amqsidecar.cli.operate.options import Asked, read_chosen, read_pace
from amqsidecar.http.console.advice import known_of, next_steps
from amqsidecar.http.console.command import command_of, shell_word
from amqsidecar.http.console.described import describe_pace
from amqsidecar.http.console.pages import headline
from amqsidecar.http.console.svg import Plotted, draw, label_marks, nice_top
from amqsidecar.model.foreign_token import ForeignToken
from amqsidecar.model.operation import CAREFUL, Action, OperationPace, Selection
from amqsidecar.model.schedule import RowFilter, RowState
from amqsidecar.model.shown import shown
from amqsidecar.operations.charts import share
from amqsidecar.operations.failures.groups import Group, Trend
from amqsidecar.operations.operate import Wish
from amqsidecar.operations.overview import (
    DestinationRecovery,
    Died,
    Overview,
    RecoveryState,
    Waiting,
)
from amqsidecar.operations.status import sidecar_status
from amqsidecar.operations.words import CAUSE_SOURCES
from amqsidecar.telemetry.health import Health
from amqsidecar.telemetry.metrics import Metrics

NOW_MS = 1_800_000_000_000
HOSTILE = "x'; rm -rf ~ #`$(reboot)\"\n\x1b[2J\u202e\\"
FILTERS = [
    RowFilter(),
    RowFilter(destination=f"queue://{HOSTILE}", cause_group=HOSTILE),
    RowFilter(
        state=RowState.HELD, redelivery_count=2, cause_contains="--yes", source="queue://DLQ.a b"
    ),
    RowFilter(received_from_ms=NOW_MS - 60_000, received_before_ms=NOW_MS - 5_000),
    RowFilter(ids=(1, 22)),
]


def retried(selection: Selection, **more: Any) -> Wish:
    """Return a wish to retry messages."""
    return Wish(**{"action": Action.RETRY, "selection": selection, "actor": "", **more})


@pytest.mark.parametrize("rows", FILTERS)
@pytest.mark.parametrize("pace", [OperationPace(), CAREFUL, OperationPace(begin_at_ms=NOW_MS + 5)])
def test_a_copied_command_asks_for_the_same(
    rows: RowFilter, pace: OperationPace, monkeypatch: pytest.MonkeyPatch
) -> None:
    properties = (("colour", HOSTILE),) if rows.destination else ()
    selection = Selection(rows=rows, properties=properties)
    command = command_of(retried(selection, pace=pace, reason=HOSTILE), NOW_MS)
    assert command is not None
    assert shown(command) == command
    assert "\n" not in command
    # A shell takes it apart, and the command line understands it.
    script = f"printf '%s\\0' {command}"
    taken = subprocess.run(["bash", "-c", script], capture_output=True, check=True).stdout
    words = taken.decode().split("\0")[:-1]
    assert words[:2] == ["amqsidecar", "retry"]
    asked: list[Asked] = []
    monkeypatch.setattr(act_commands, "_act", lambda _name, given, _config: asked.append(given))
    assert run_command_line(words[1:]) == 0
    [given] = asked
    found = read_chosen(given, NOW_MS)
    assert (read_pace(given, NOW_MS), given.reason) == (pace, HOSTILE)
    assert tuple(map(int, given.ids or ())) == (rows.ids or ())
    if not rows.ids:
        assert found == selection


def test_what_no_option_says_is_no_command() -> None:
    everything = Selection(rows=RowFilter(due_before_ms=3))
    assert command_of(retried(everything), NOW_MS) is None
    parked = Selection(rows=RowFilter(state=RowState.PARKED))
    assert command_of(retried(parked, action=Action.HOLD), NOW_MS) is None
    held = Selection(rows=RowFilter(state=RowState.HELD))
    found = command_of(retried(held, action=Action.RELEASE), NOW_MS)
    assert found == "amqsidecar release --all"


def test_a_plain_word_stays_plain() -> None:
    assert shell_word("orders.pay") == "orders.pay"
    assert shlex.split(shell_word("it's")) == ["it's"]


def test_a_pace_is_said_in_words() -> None:
    assert describe_pace(OperationPace()) == "All at once."
    said = describe_pace(CAREFUL)
    assert said.startswith(
        "50 first, then a check whether they come back; then portions of twice the size"
    )
    assert said.endswith("more than 10 % come back. A message may come back for 1m.")


@pytest.mark.parametrize("highest", [0, 1, 4, 5, 9, 11, 99, 101, 312, 4_001, 10**9])
def test_an_axis_ends_not_below_what_it_shows_nor_far_above(highest: int) -> None:
    top = nice_top(highest)
    assert top % 4 == 0
    assert highest <= top <= max(4, 2.5 * highest)


@pytest.mark.parametrize("is_compared", [False, True])
def test_a_plot_has_a_text_alternative_and_no_markup_of_strangers(is_compared: bool) -> None:
    plotted = Plotted(
        key="deaths",
        title="Deaths <b>",
        description="12 </svg><script>",
        axis="hour",
        labels=["00:00", "01:00"],
        names=["<script>\u202e", "other"],
        counts=[[3, 0], [4, 5]],
        empty="",
        is_compared=is_compared,
    )
    root = ET.fromstring(str(draw(plotted)))
    tags = {element.tag for element in root.iter()}
    assert tags <= {"svg", "title", "desc", "line", "text", "rect", "polyline"}
    said = {element.get("id"): element.text for element in root if element.get("id")}
    assert said == {"deaths-title": "Deaths <b>", "deaths-description": "12 </svg><script>"}
    assert root.get("aria-labelledby") == "deaths-title deaths-description"
    assert not any("style" in element.attrib for element in root.iter())
    if not is_compared:
        heights = [float(bar.attrib["height"]) for bar in root.iter("rect")]
        assert heights[0] * 4 == pytest.approx(heights[1] * 3, abs=1)
        assert "<script>‹U+202E›: 3" in (root.find("rect/title").text or "")  # type: ignore[union-attr]


def test_without_a_view_the_page_does_not_claim_that_nothing_died() -> None:
    """A link that is down takes no dead letters: that is no good news."""
    numbers = dict.fromkeys(("overdue", "overdue_ms", "soon", "hour", "day", "later"), 0)
    waiting = Waiting(next_due_at_ms=None, by_destination=[], gates=[], **numbers)
    seen = Overview(
        at_ms=NOW_MS,
        died=Died(messages=0, deaths=0, causes=0, new=0),
        groups=[],
        solved=[],
        unproved=[],
        snoozed=[],
        waiting=waiting,
        recoveries=[],
        exhausted=[],
        missing=[],
        unknown=[],
        unapproved=[],
    )
    assert headline(seen) == "Nothing died in the last hour."
    blind = msgspec.structs.replace(seen, status=sidecar_status(Health(), Metrics()))
    assert headline(blind).endswith("but this sidecar needs attention.")


def test_the_first_screen_says_what_is_unknown_and_which_schedule_is_alone() -> None:
    health, metrics = Health(), Metrics()
    health.link_up("Apache Artemis 2.57.0 at core://broker:61616")
    health.store_ok()
    assert sidecar_status(health, metrics).is_well
    metrics.set_value("amqsidecar_outcomes_not_counted", True)
    told = sidecar_status(health, metrics)
    assert (told.is_well, "<statisticsBrokerPlugin/>" in told.outcomes_doubt) == (True, True)
    health.foreign_tokens([ForeignToken(instance="old", sent_at_ms=0, is_held=False)])
    told = sidecar_status(health, metrics)
    assert (told.is_well, told.orphans) == (
        False,
        ["amqsidecar.token.old (last cycle 1970-01-01 00:00:00Z)"],
    )


def group(**counts: int) -> Group:
    none = dict.fromkeys(
        ("recent", "recent_messages", "day_before", "waiting", "held", "parked", "exhausted"), 0
    )
    return Group(
        number=1,
        destination="queue://orders",
        cause_group="x",
        trend=Trend.NEW,
        first_at_ms=1,
        last_at_ms=2,
        total=1,
        example_id="m-1",
        note=None,
        **(none | counts),  # type: ignore[arg-type]
    )


def recovery(part: int, whole: int, state: RecoveryState) -> DestinationRecovery:
    shared = share(part, whole)
    return DestinationRecovery(
        destination="queue://orders", since_ms=0, since="", came_back=shared, state=state
    )


def test_a_group_begins_with_what_is_known_of_it() -> None:
    found = group(recent=9730, recent_messages=5000, waiting=12, exhausted=300)
    assert known_of(found, recovery(24, 119, RecoveryState.PARTLY)) == [
        "5,000 messages died in the last hour, 9,730 times.",
        "Now: 300 exhausted, 12 waiting for the next attempt.",
        "Of 119 re-sent to its destination in 24 hours, 24 came back.",
    ]
    assert known_of(group(), None) == ["No death of this group in the last hour."]


@pytest.mark.parametrize(
    ("counts", "found", "first"),
    [
        ({"exhausted": 3, "waiting": 1}, None, "The exhausted messages wait for a person"),
        ({"parked": 3}, None, "The parked messages can't be sent"),
        ({"waiting": 3}, recovery(29, 30, RecoveryState.FAILS), "Most re-sends come back: hold"),
        (
            {"waiting": 3},
            recovery(0, 30, RecoveryState.LIES),
            "The re-sent messages are still in their queue",
        ),
        (
            {"waiting": 3, "recent": 3},
            None,
            "The waiting messages are sent automatically; hold them if",
        ),
        ({"waiting": 3}, None, "Nothing to do"),
        (
            {"held": 3},
            None,
            "The held messages are sent when a person releases or retries them, or when their wait",
        ),
    ],
)
def test_a_group_says_what_to_do_next(
    counts: dict[str, int], found: DestinationRecovery | None, first: str
) -> None:
    assert next_steps(group(**counts), found)[0].startswith(first)
    assert next_steps(group(recent=5), None) == []


@pytest.mark.parametrize(
    ("cause_group", "is_told"),
    [("(no reason given)", True), ("(no reason given) [code=E1]", True), ("x.Y: no", False)],
)
def test_a_group_without_a_cause_says_how_to_get_one(cause_group: str, is_told: bool) -> None:
    found = msgspec.structs.replace(group(), cause_group=cause_group)
    assert next_steps(found, None) == ([CAUSE_SOURCES] if is_told else [])


def test_a_legend_begins_with_the_largest_series() -> None:
    names = ["a", "b", "c"]
    plotted = Plotted(
        key="x",
        title="",
        description="",
        axis="",
        labels=["1", "2"],
        names=names,
        counts=[[1, 1], [9, 0], [0, 3]],
        empty="",
    )
    assert [names[at] for at in plotted.by_size] == ["b", "c", "a"]


@pytest.mark.parametrize(
    ("places", "texts"),
    [
        ([], []),
        ([60, 300], ["1", "2"]),
        ([90, 570, 572], ["1", "2–3"]),
        ([100, 112, 130, 300], ["1–3", "4"]),
        # Why together: at the edge of the picture the second label moves to the left.
        ([540, 592], ["1", "2"]),
        ([574, 592], ["1–2"]),
    ],
)
def test_marks_that_are_near_each_other_share_a_label(
    places: list[float], texts: list[str]
) -> None:
    assert [one.text for one in label_marks(places, 600)] == texts


@given(
    places=st.lists(st.floats(52, 592), max_size=40).map(sorted),
    width_px=st.sampled_from([600, 1160]),
)
def test_labels_of_marks_never_collide(places: list[float], width_px: int) -> None:
    labels = label_marks(places, width_px)
    assert [n for one in labels for n in range(one.first, one.last + 1)] == [
        *range(1, len(places) + 1)
    ]
    ends = [52.0]
    for one in labels:
        assert one.begin_px >= ends[-1] - 1e-6
        ends.append(one.end_px)
    assert ends[-1] <= width_px
    for one in labels:
        assert all(b - a >= 4 for a, b in itertools.pairwise(one.lines_px))
