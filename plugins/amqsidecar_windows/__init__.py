"""Gate `windows`: re-sends go only while a window is open; a cron expression says when it opens.

Expressions are those of crontab with five fields, read in the entry's time zone by APScheduler, so
that changes to and from daylight saving time are the library's business. A window is open from an
opening for a number of minutes, by the wall clock only until it is set.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from apscheduler.triggers.cron import CronTrigger

from amqsidecar.plugin import (
    Destination,
    DueMessage,
    EntriesPlugin,
    EntryFinder,
    GateEntries,
    GatePlugin,
    OptionReader,
    RuleSource,
    Wait,
)

DEFAULT_ZONE = "UTC"
WEEK_MINUTES = 7 * 24 * 60
_MILLISECOND = timedelta(milliseconds=1)
_LEFT_OUT = timedelta(hours=1)
"""The time that a change of the clocks leaves out."""


@dataclass(frozen=True, slots=True)
class Window:
    """When one window opens, and for how long; openings meanwhile prolong it."""

    expression: str
    opens: CronTrigger
    open_for: timedelta


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of one entry: it is open while any of them is."""

    windows: tuple[Window, ...]
    zone: ZoneInfo
    source: RuleSource

    def __str__(self) -> str:
        windows = " or ".join(
            f"{one.expression} for {one.open_for // timedelta(minutes=1)} min"
            for one in self.windows
        )
        return f"open at {windows}, {self.zone.key} ({self.source})"


@dataclass(frozen=True, slots=True)
class _Known:
    """The state from one change to the next.

    Attributes:
        from_ms, until_ms: when it holds; then it has to be looked at again.
        opens_at_ms: the next opening; None = it is open.
    """

    from_ms: int
    until_ms: int
    opens_at_ms: int | None


class WindowGate:
    """Lets pass while a window is open."""

    def __init__(self, options: GateEntries[Windows]) -> None:
        self._finder = EntryFinder(options)
        self._known: dict[int, _Known] = {}

    def describe(self, destination: Destination) -> str | None:
        """Return the options that act on a destination."""
        return self._finder.describe(destination)

    def wait_of(self, message: DueMessage, now_ms: int) -> Wait | None:
        """Return the next opening; None = a window is open."""
        windows = self._finder.find(message.destination)
        if windows is None:
            return None
        # Why by identity: there are as many as entries in the file, and triggers can't be hashed.
        known = self._known.get(id(windows))
        if known is None or not known.from_ms <= now_ms < known.until_ms:
            known = self._known[id(windows)] = look(windows, now_ms)
        if known.opens_at_ms is None:
            return None
        opens_at = datetime.fromtimestamp(known.opens_at_ms / 1000, windows.zone)
        reason = f"outside its window until {opens_at:%Y-%m-%d %H:%M} {windows.zone.key}"
        return Wait(known.opens_at_ms, f"{reason} ({windows.source})")

    def passed(self, message: DueMessage, now_ms: int) -> None:
        """Remember nothing."""

    def resent(self, destination: Destination, now_ms: int) -> None:
        """Remember nothing."""

    def returned(self, destination: Destination, now_ms: int) -> None:
        """Remember nothing."""


def look(windows: Windows, now_ms: int) -> _Known:
    """Return whether any window is open and until when that is known."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    openings_ms = []
    for window in windows.windows:
        opened_ms = _next_ms(window.opens, now - window.open_for)
        if opened_ms <= now_ms:
            return _Known(now_ms, opened_ms + window.open_for // _MILLISECOND, None)
        openings_ms.append(opened_ms)
    return _Known(now_ms, min(openings_ms), min(openings_ms))


def _next_ms(trigger: CronTrigger, now: datetime) -> int:
    """Return the next time after `now`, not at it."""
    # Why from before: APScheduler gives a time in an hour that is left out, as that much later,
    # only to who asks from before that hour.
    found: datetime | None = now - _LEFT_OUT
    while found is not None and found <= now:
        # Why more: it gives the first time at or after what it is asked for. Why UTC: Python
        # compares times of one zone by the wall clock.
        found = trigger.get_next_fire_time(None, found.astimezone(UTC) + _MILLISECOND)
    # Why the far future: expressions that never come true are refused when they are read.
    return 253_402_300_799_000 if found is None else round(found.timestamp() * 1000)


def _read(reader: OptionReader) -> Windows:
    name = reader.text("time_zone", DEFAULT_ZONE)
    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        reader.fail("time_zone", f"there is no time zone {name!r}; expected one such as UTC")
        zone = ZoneInfo(DEFAULT_ZONE)
    windows = []
    given = reader.mappings("windows")
    for window in given:
        opens = _read_cron(window, "opens", zone)
        minutes = window.integer("open_for_minutes", 60, least=1, most=WEEK_MINUTES)
        if opens is not None:
            windows.append(Window(window.text("opens", ""), opens, timedelta(minutes=minutes)))
        window.finish()
    if not given:
        reader.fail("windows", 'expected at least one window, such as {opens: "0 22 * * *"}')
    return Windows(tuple(windows), zone, reader.source)


def _read_cron(reader: OptionReader, key: str, zone: ZoneInfo) -> CronTrigger | None:
    text = reader.text(key, "")
    fields = text.split()
    example = "0 22 * * mon-fri"
    if len(fields) != 5:
        reader.fail(key, f"expected five fields of crontab, such as {example!r}, found {text!r}")
        return None
    if any(character.isdigit() for character in fields[4]):
        # Quirk (APScheduler 3): 0 is Monday there, and Sunday in crontab.
        reader.fail(key, f"write days of the week as names, such as {example!r}, found {text!r}")
        return None
    try:
        trigger = CronTrigger.from_crontab(text, timezone=zone)
    except ValueError as error:
        reader.fail(key, f"is no cron expression: {error}; expected one such as {example!r}")
        return None
    if trigger.get_next_fire_time(None, datetime(2026, 1, 1, tzinfo=UTC)) is None:
        reader.fail(key, f"never comes true: {text!r}")
        return None
    return trigger


plugin: GatePlugin = EntriesPlugin("windows", _read, WindowGate)
