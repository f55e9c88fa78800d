"""Runs the sidecar on stock brokers and records the results: `make field`."""

import csv
import io
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from field.cases import CASES, Case
from field.run import Row, try_url, wait_for_http
from field.stock import known_ports, stock_brokers

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "field-tests.json"
TABLE = ROOT / "deploy" / "evidence" / "records" / "field-tests.csv"


def rows(
    broker_name: str, cases: list[Case], folder: Path, known: Mapping[str, Row] | None = None
) -> list[Row]:
    """Run the cases on one broker; those rows are expected by URL, if any is known."""
    found = []
    with stock_brokers()[broker_name]() as broker:
        if "8161" in known_ports(broker) and any(":8161" in case.url for case in cases):
            wait_for_http(broker)
        for number, case in enumerate(cases):
            url = case.url
            for stock, port in known_ports(broker).items():
                url = url.replace(f"localhost:{stock}", f"127.0.0.1:{port}")
            expected = (known or {}).get(case.url)
            place = folder / str(number)
            found.append(try_url(broker, broker_name, url, case.url, place, expected))
    return found


def recorded() -> list[Row]:
    """Return the rows of the record."""
    return [Row(**line) for line in json.loads(RECORD.read_text(encoding="utf-8"))]


def table(all_rows: list[Row]) -> str:
    """Return the rows as CSV, for people."""
    meanings = {(case.broker, case.url): case.meaning for case in CASES}
    heads = ("broker", "broker.url", "mistake", "outcome", "came back", "left", "message")
    lines: list[Sequence[str]] = [heads]
    for row in all_rows:
        back = ", ".join(f"{name} {count}" for name, count in row.back.items())
        left = str(row.left) if row.back else ""
        meaning = meanings[row.broker, row.url]
        lines.append((row.broker, row.url, meaning, row.outcome, back, left, " / ".join(row.says)))
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()


def main() -> int:
    """Run all cases, or those of the named brokers; write the record and its table."""
    asked = sys.argv[1:] or list(stock_brokers())
    known = [row for row in (recorded() if RECORD.exists() else []) if row.broker not in asked]
    with tempfile.TemporaryDirectory() as folder:
        for number, name in enumerate(asked):
            cases = [case for case in CASES if case.broker == name]
            known += rows(name, cases, Path(folder) / str(number))
            print(f"{name}: {len(cases)} runs", file=sys.stderr)
    order = [(case.broker, case.url) for case in CASES]
    known.sort(key=lambda row: order.index((row.broker, row.url)))
    lines = [json.dumps(row.as_json(), ensure_ascii=False) for row in known]
    RECORD.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
    TABLE.write_text(table(known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
