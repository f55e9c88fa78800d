"""The tables of compatibility: the results of `make versions`, and the releases' differences."""

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, NamedTuple

from support.versions import RELEASES

RECORDS: Final = Path(__file__).parents[2] / "deploy" / "evidence" / "records"
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
        "It logs in so, and again before the token expires (connecting.md).",
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


def write_record(new: Result) -> None:
    """Record a result in place of an older one of the same part and release; write the tables."""
    kept = [one for one in read_record() if (one.release, one.part) != (new.release, new.part)]
    order = [str(one) for one in RELEASES]
    record = sorted((*kept, new), key=lambda one: (order.index(one.release), one.part))
    text = json.dumps([asdict(one) for one in record], indent=1)
    RECORD.write_text(f"{text}\n", encoding="utf-8")
    for name, table in tables(record).items():
        (RECORDS / name).write_text(table, encoding="utf-8")


def tables(record: Sequence[Result]) -> Mapping[str, str]:
    """Return the tables that are made of the record, by the name of their file."""
    return {"compatibility.csv": results_csv(record), "releases.csv": differences_csv(record)}


def results_csv(record: Sequence[Result]) -> str:
    """Return the raw table: a line for each part on a release."""
    rows = (
        (
            *(one.release, one.part, one.passed, ", ".join(one.failed)),
            "; ".join(f"{count}: {reason}" for reason, count in one.skipped.items()),
            *(one.commit, one.day),
        )
        for one in record
    )
    return _csv(("release", "tests", "passed", "failed", "skipped", "commit", "day"), rows)


def differences_csv(record: Sequence[Result]) -> str:
    """Return a row for each difference, with that product's releases on which its test passed."""
    rows = (
        (
            *(one.releases, one.what, one.answer, one.path),
            ", ".join(
                found.release
                for found in record
                if not found.failed
                and found.release.split()[0] == one.releases.split()[0]
                and one.path.removeprefix("tests/") in found.paths
            ),
        )
        for one in DIFFERENCES
    )
    return _csv(("releases", "difference", "what the sidecar does", "test", "passed on"), rows)


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
