"""The page of compatibility: what `make versions` recorded, and what differs between releases."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from support.versions import RELEASES

PAGE: Final = Path(__file__).parents[2] / "deploy" / "evidence" / "compatibility.md"
RECORD: Final = Path(__file__).with_name("compatibility.json")


@dataclass(frozen=True)
class Result:
    """What became of the tests of a part on a release.

    Attributes:
        release: such as `Artemis 2.55.0`.
        part: name of the part.
        paths: of its tests, below `tests`.
        passed: number of tests.
        failed: names of tests.
        skipped: number of tests by reason.
        commit: checked out at the time.
        day: in UTC.
    """

    release: str
    part: str
    paths: Sequence[str]
    passed: int
    failed: Sequence[str]
    skipped: Mapping[str, int]
    commit: str
    day: str


class Difference(NamedTuple):
    """What a release does otherwise than the one before it.

    Attributes:
        releases: that do so.
        what: the difference, as sentences.
        answer: what the sidecar does, as sentences.
        path: of the test that holds it.
    """

    releases: str
    what: str
    answer: str
    path: str


DIFFERENCES: Final = (
    Difference(
        "Artemis 2.55 and later",
        "Over STOMP a user may ask the management without the right `createAddress` at "
        "`activemq.management`.",
        "It asks in the same way, and `doctor` reports no missing right.",
        "tests/end_to_end/rights/test_doctor_permissions.py",
    ),
    Difference(
        "Artemis 2.55 and later",
        "`countMessages` with a filter counts the whole queue. In 2.44 it counts among the first "
        "`management-browse-page-size` (200) messages, as `listMessages` does in both.",
        "Over STOMP it takes what is listed and reports the rest as `unseen`, whatever is counted.",
        "tests/contract/links/test_stomp_artemis_link.py",
    ),
    Difference(
        "Artemis 2.55 and later",
        "The wildcard delimiter `$` separates words like any other delimiter. In 2.44 it is not "
        "quoted in a regular expression, and patterns with it match next to nothing.",
        "It follows 2.44. Use another delimiter.",
        "tests/oracle/test_artemis_oracle.py",
    ),
    Difference(
        "Artemis 2.57 and later",
        "The Core packets `CheckFailoverMessage` and `CheckFailoverReplyMessage` have new names. "
        "Their codes and fields are the same.",
        "nothing",
        "tests/oracle/test_core_oracle.py",
    ),
    Difference(
        "Artemis 2.54 and later",
        "A user can log in with a bearer token (`OIDCLoginModule`), over AMQP by `OAUTHBEARER` and "
        "`XOAUTH2`.",
        "It logs in so, and anew before the token expires "
        "([connecting.md](../reference/connecting.md#tokens)).",
        "tests/end_to_end/rights/test_tokens.py",
    ),
    Difference(
        "Artemis 2.56 and later",
        "An acceptor reads 4 KiB of a log-in over AMQP, unless `initialRemoteMaxFrameSize` says "
        "more. By its source, not run.",
        "It names the parameter when the broker hangs up on a long token.",
        "tests/unit/brokers/test_amqp_sasl.py",
    ),
    Difference(
        "Artemis 2.57 and later",
        "An acceptor ends a Core connection that sends a frame above 128 KiB (`coreMaxFrameSize`), "
        "and above 4 KiB before the log-in (`coreInitialMaxFrameSize`).",
        "It sends a message above 100 KiB in pieces, whatever wire it came by, and names the "
        "parameter where a long token is cut off. **A message with more than 128 KiB of properties "
        "ends the link again and again**: raise `coreMaxFrameSize`.",
        "tests/contract/links/test_core_artemis_link.py",
    ),
    Difference(
        "Classic 6.3.0 and later",
        "Its own `activemq.xml` listens for OpenWire only, with frames up to 10 MiB.",
        "A message that comes back and would be larger with our properties waits with the reason, "
        "and delays no other.",
        "tests/field/test_field.py",
    ),
)


def read_record() -> tuple[Result, ...]:
    """Return what is recorded, by release and part."""
    found: list[dict[str, object]] = json.loads(RECORD.read_text(encoding="utf-8"))
    return tuple(Result(**one) for one in found)  # type: ignore[arg-type]


def write_record(new: Result) -> tuple[Result, ...]:
    """Record a result in place of an older one of the same part and release; return all."""
    kept = [one for one in read_record() if (one.release, one.part) != (new.release, new.part)]
    order = [str(one) for one in RELEASES]
    record = sorted((*kept, new), key=lambda one: (order.index(one.release), one.part))
    text = json.dumps([asdict(one) for one in record], indent=1)
    RECORD.write_text(f"{text}\n", encoding="utf-8")
    return tuple(record)


def with_tables(page: str, record: Sequence[Result]) -> str:
    """Return the page with its generated tables made of this record."""
    for name, made in (
        ("results", results_table(record)),
        ("differences", differences_table(record)),
        ("skipped", skipped_list(record)),
    ):
        begin, end = f"<!-- {name}, by make versions -->\n", "<!-- end -->"
        head, _, rest = page.partition(begin)
        _, _, tail = rest.partition(end)
        page = f"{head}{begin}\n{made}\n\n{end}{tail}"
    return page


def results_table(record: Sequence[Result]) -> str:
    """Return a row for each part, a column for each release."""
    releases = list(dict.fromkeys(one.release for one in record))
    parts = sorted({one.part for one in record})
    found = {(one.release, one.part): one for one in record}
    lines = [f"| | {' | '.join(releases)} |", f"|---|{'---|' * len(releases)}"]
    for part in parts:
        cells = [_cell(found.get((release, part))) for release in releases]
        lines.append(f"| {part} | {' | '.join(cells)} |")
    commits = [
        ", ".join(sorted({f"{one.commit} ({one.day})" for one in record if one.release == release}))
        for release in releases
    ]
    lines.append(f"| *at* | {' | '.join(commits)} |")
    return "\n".join(lines)


def _cell(found: Result | None) -> str:
    if found is None:
        return "-"
    counts = {
        "passed": found.passed,
        "skipped": sum(found.skipped.values()),
        "**failed**": len(found.failed),
    }
    text = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    return f"{text}: {', '.join(f'`{one}`' for one in found.failed)}" if found.failed else text


def differences_table(record: Sequence[Result]) -> str:
    """Return a row for each difference, with that product's releases on which its test passed."""
    lines = ["| releases | difference | what the sidecar does | test |", "|---|---|---|---|"]
    for one in DIFFERENCES:
        passed = [
            found.release
            for found in record
            if not found.failed
            and found.release.split()[0] == one.releases.split()[0]
            and one.path.removeprefix("tests/") in found.paths
        ]
        on = f", passed on {', '.join(passed)}" if passed else ""
        lines.append(f"| {one.releases} | {one.what} | {one.answer} | `{one.path}`{on} |")
    return "\n".join(lines)


def skipped_list(record: Sequence[Result]) -> str:
    """Return why tests were skipped on which release."""
    reasons: dict[tuple[str, str], int] = {}
    for one in record:
        for reason, count in one.skipped.items():
            key = (one.release, reason)
            reasons[key] = reasons.get(key, 0) + count
    return "\n".join(
        f"- {release}, {count} tests: {reason}." for (release, reason), count in reasons.items()
    )
