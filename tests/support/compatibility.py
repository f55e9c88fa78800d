"""Runs the tests of the wires on the releases that `make test` does not, and records the results.

PYTHONPATH=tests python -m support.compatibility                           # make versions
PYTHONPATH=tests python -m support.compatibility artemis=2.57.0            # one release
PYTHONPATH=tests python -m support.compatibility artemis=2.57.0/counters   # one part on it

Each part is recorded as soon as it has run, so that a run can be ended and continued by hand.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree import ElementTree

from support.compatibility_tables import Result, write_record
from support.machine.processes import run_program
from support.versions import RELEASES, TESTED, Release, newest

ROOT: Final = Path(__file__).parents[2]


class Part(NamedTuple):
    """Tests that make a row of the record.

    Attributes:
        name: head of the column.
        families: whose releases run them.
        paths: of the tests, below `tests`.
        keyword: for pytest's `-k`; `{family}`, `{harness}` and `{version}` are the release's, as
            tests are named.
        needs: a wire that a release must speak to run it; "" = none.
        is_newest_only: the tests choose the newest release that speaks `needs` themselves.
    """

    name: str
    families: Sequence[str]
    paths: Sequence[str]
    keyword: str = ""
    needs: str = ""
    is_newest_only: bool = False

    def is_for(self, chosen: Release) -> bool:
        """Return whether a release runs it."""
        if chosen.family not in self.families or self.needs not in ("", *chosen.wires):
            return False
        return not self.is_newest_only or chosen == newest(chosen.family, self.needs)


_CLASSIC: Final = ("classic_5", "classic_6")
_ARTEMIS: Final = ("artemis",)
_LINKS: Final = "contract/links/test_{}_link.py"
_KILLS: Final = ("end_to_end/crashes/test_kills.py",)
PARTS: Final = (
    Part("contract of links", _CLASSIC, ("contract/test_link_contract.py",), "{harness}"),
    Part("contract of links", _ARTEMIS, ("contract/test_link_contract.py",), "artemis"),
    Part(
        "each wire's own",
        ("classic_6",),
        tuple(_LINKS.format(one) for one in ("openwire", "stomp_classic", "amqp_classic")),
        "not 5.18.3 and not classic_5",
    ),
    Part(
        "each wire's own",
        _ARTEMIS,
        (
            *(_LINKS.format(f"{one}artemis") for one in ("amqp_", "core_", "stomp_")),
            "contract/links/test_artemis_pair_link.py",
            "contract/links/test_core_session.py",
            "contract/test_tokens_across_wires.py",
            "end_to_end/redelivery/test_core.py",
        ),
    ),
    Part("settings", _CLASSIC, ("oracle/test_classic_oracle.py",), "not 5.18.3 or {version}"),
    Part("settings", _ARTEMIS, ("oracle/test_artemis_oracle.py", "oracle/test_core_oracle.py")),
    Part("fields", (*_CLASSIC, *_ARTEMIS), ("matrix/test_matrix.py",), "recorded and {family}"),
    Part(
        "service, rights, doctor",
        _ARTEMIS,
        (
            "end_to_end/rights/test_permissions_artemis.py",
            "end_to_end/rights/test_doctor_permissions.py",
            "end_to_end/operators/test_doctor.py",
        ),
        "artemis or core",
    ),
    Part(
        "service, rights, doctor",
        _CLASSIC,
        (
            "end_to_end/redelivery/test_moving.py",
            "end_to_end/rights/test_permissions.py",
            "end_to_end/rights/test_doctor_permissions.py",
            "end_to_end/operators/test_doctor.py",
        ),
        "{harness} or {family} or {version}",
    ),
    Part(
        "counters",
        ("classic_6",),
        ("contract/test_queue_counters.py", "end_to_end/operators/test_outcomes.py"),
        "counting or console or stock",
    ),
    Part(
        "counters",
        _ARTEMIS,
        ("contract/test_queue_counters.py", "end_to_end/operators/test_outcomes.py"),
        "artemis or single",
    ),
    Part("its own files", ("classic_6",), ("field/test_field.py",), "frame_size"),
    Part("log-in by tokens", _ARTEMIS, ("end_to_end/rights/test_tokens.py",), needs="amqp"),
    Part("kills", ("classic_6",), _KILLS, "openwire", "openwire", is_newest_only=True),
    Part("kills", _ARTEMIS, _KILLS, "amqp", "amqp", is_newest_only=True),
    Part("kills over Core", _ARTEMIS, _KILLS, "core", "core", is_newest_only=True),
    Part(
        "kills, mixed producers",
        _ARTEMIS,
        ("end_to_end/crashes/test_kills_artemis.py",),
        needs="amqp",
    ),
    Part("chaos", ("classic_6", "artemis"), ("chaos/test_chaos_small.py",), needs="amqp"),
)


def run(chosen: Release, part: Part) -> Result:
    """Run a part on a release; return what became of its tests."""
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
        return result(chosen, part, report)


def result(chosen: Release, part: Part, report: Path) -> Result:
    """Return what became of the tests, from pytest's report in JUnit's format."""
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failed = {
        str(case.get("name"))
        for case in cases
        if case.find("failure") is not None or case.find("error") is not None
    }
    skipped = Counter(
        str(found.get("message")) for case in cases if (found := case.find("skipped")) is not None
    )
    return Result(
        release=str(chosen),
        part=part.name,
        paths=part.paths,
        passed=len(cases) - len(failed) - skipped.total(),
        failed=sorted(failed),
        skipped=dict(sorted(skipped.items())),
        commit=_commit(),
        day=time.strftime("%Y-%m-%d", time.gmtime()),
    )


def _commit() -> str:
    said = run_program(["git", "rev-parse", "--short=8", "HEAD"], cwd=ROOT)
    return said.stdout.strip()


def planned(arguments: Sequence[str]) -> list[tuple[Release, Part]]:
    """Return what is asked for, as `family=version` or `family=version/part`; nothing = all."""
    asked = [argument.partition("/") for argument in arguments]
    return [
        (chosen, part)
        for chosen in RELEASES
        for part in PARTS
        if part.is_for(chosen)
        and (
            any(
                name == f"{chosen.family}={chosen.version}" and only in ("", part.name)
                for name, _, only in asked
            )
            if asked
            else chosen != TESTED[chosen.family]
        )
    ]


def main(arguments: Sequence[str]) -> int:
    """Run what is asked for and record each result; return 1 if a test failed."""
    plan = planned(arguments)
    if not plan:
        print(f"no part is called {' '.join(arguments)}", file=sys.stderr)
        return 2
    has_failed = False
    for chosen, part in plan:
        print(f"{chosen}: {part.name}", flush=True)
        found = run(chosen, part)
        has_failed |= bool(found.failed)
        write_record(found)
    return int(has_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
