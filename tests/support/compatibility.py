"""Runs the tests of the wires on the releases that `make test` does not, and writes the results.

PYTHONPATH=tests python -m support.compatibility                   # make versions
PYTHONPATH=tests python -m support.compatibility artemis=2.57.0    # one release, nothing is written
"""

import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from support.versions import RELEASES, TESTED, Release

ROOT: Final = Path(__file__).parents[2]
PAGE: Final = ROOT / "deploy" / "evidence" / "compatibility.md"


class Part(NamedTuple):
    """Tests that make a column of the page.

    Attributes:
        name: head of the column.
        families: whose releases run them.
        paths: of the tests, below `tests`.
        keyword: for pytest's `-k`; `{family}`, `{harness}` and `{version}` are the release's, as
            tests are named.
        needs: a wire that a release must speak to run it; "" = none.
    """

    name: str
    families: Sequence[str]
    paths: Sequence[str]
    keyword: str = ""
    needs: str = ""


_CLASSIC: Final = ("classic_5", "classic_6")
_ARTEMIS: Final = ("artemis",)
PARTS: Final = (
    Part("contract of links", _CLASSIC, ("contract/test_link_contract.py",), "{harness}"),
    Part("contract of links", _ARTEMIS, ("contract/test_link_contract.py",), "artemis"),
    Part(
        "settings, as the broker's classes read them", _CLASSIC, ("oracle/test_classic_oracle.py",)
    ),
    Part(
        "settings, as the broker's classes read them",
        _ARTEMIS,
        ("oracle/test_artemis_oracle.py", "oracle/test_core_oracle.py"),
    ),
    Part("Core session", _ARTEMIS, ("contract/links/test_core_session.py",)),
    Part("kills", _ARTEMIS, ("end_to_end/crashes/test_kills_artemis.py",)),
    Part(
        "service, rights, doctor",
        _ARTEMIS,
        (
            "end_to_end/rights/test_permissions_artemis.py",
            "end_to_end/operators/test_doctor.py",
        ),
        "artemis or core",
        needs="amqp",
    ),
    Part("redelivery over Core", _ARTEMIS, ("end_to_end/redelivery/test_core.py",)),
    Part(
        "service, rights, doctor",
        _CLASSIC,
        (
            "end_to_end/redelivery/test_moving.py",
            "end_to_end/rights/test_permissions.py",
            "end_to_end/operators/test_doctor.py",
        ),
        "{harness} or {family} or {version}",
    ),
    Part(
        "what clients see, field by field",
        (*_CLASSIC, *_ARTEMIS),
        ("matrix/test_matrix.py",),
        "recorded and {family}",
    ),
)


def run(chosen: Release, part: Part) -> Counter[str]:
    """Run a part on a release; return the number of tests by outcome."""
    family = chosen.family
    keyword = part.keyword.format(
        harness=family.replace("_", "-"), family=family, version=chosen.version
    )
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        subprocess.run(
            [
                *(sys.executable, "-m", "pytest", "-q", "-rf", f"--junit-xml={report}"),
                *(["-k", keyword] if keyword else []),
                *(str(ROOT / "tests" / path) for path in part.paths),
            ],
            cwd=ROOT,
            env={**os.environ, f"TEST_{family.upper()}": chosen.version},
            check=False,
        )
        return outcomes(report)


def outcomes(report: Path) -> Counter[str]:
    """Return the number of tests by outcome, from pytest's report in JUnit's format."""
    found: Counter[str] = Counter()
    for suite in ElementTree.parse(report).getroot():
        failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
        skipped = int(suite.get("skipped", 0))
        found["failed"] += failed
        found["skipped"] += skipped
        found["passed"] += int(suite.get("tests", 0)) - failed - skipped
    return +found


_BEGIN: Final = "<!-- by make versions -->\n"
_END: Final = "<!-- end -->\n"


def with_table(text: str, table: str) -> str:
    """Return the page with another table."""
    head, _, rest = text.partition(_BEGIN)
    _, _, tail = rest.partition(_END)
    return f"{head}{_BEGIN}\n{table}\n\n{_END}{tail}"


def table(results: Mapping[Release, Mapping[str, Counter[str]]]) -> str:
    """Return the results of each release."""
    names = list(dict.fromkeys(part.name for part in PARTS))
    rows = [f"| release | wires | {' | '.join(names)} |", "|---" * (len(names) + 2) + "|"]
    for chosen, by_part in results.items():
        cells = [
            ", ".join(f"{count} {outcome}" for outcome, count in by_part[name].items())
            if name in by_part
            else ""
            for name in names
        ]
        rows.append(f"| {chosen} | {', '.join(chosen.wires)} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main(arguments: Sequence[str]) -> int:
    """Run the requested tests; return 1 if one failed."""
    asked = {tuple(argument.split("=", 1)) for argument in arguments}
    results: dict[Release, dict[str, Counter[str]]] = {}
    for chosen in RELEASES:
        is_asked = (
            (chosen.family, chosen.version) in asked if asked else chosen != TESTED[chosen.family]
        )
        if not is_asked:
            continue
        results[chosen] = {
            part.name: run(chosen, part)
            for part in PARTS
            if chosen.family in part.families and part.needs in ("", *chosen.wires)
        }
    print(table(results))
    if not asked:
        text = with_table(PAGE.read_text(encoding="utf-8"), table(results))
        PAGE.write_text(text, encoding="utf-8")
    return int(any(found["failed"] for parts in results.values() for found in parts.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
