"""Runs the sidecar on stock brokers and writes down what happens: `make field`."""

import json
import sys
import tempfile
from pathlib import Path

from field.cases import CASES, Case
from field.run import Row, try_url, wait_for_http
from field.stock import known_ports, stock_brokers

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).parent / "field-tests.json"
PAGE = ROOT / "deploy" / "evidence" / "field-tests.md"

INTRODUCTION = """# Stock brokers

With only `broker.url` and `store.url` set, the sidecar redelivers everything that its wire carries
on brokers with their stock configuration. Where it can't, its message names the cause.

## Test

`make field` runs `amqsidecar run` on the brokers' own configuration files, with only ports and
paths replaced, and writes this page. `make test` repeats part of it and compares.

- Classic 5.18.3: `conf/` of its distribution. Classic 6.3.1: its own `activemq.xml` (OpenWire only,
  `maxFrameSize` 10 MiB) on its modules, without the web console, because Maven has no 6.3.1
  distribution.
- Artemis 2.44.0: `artemis create` with `--user admin --password admin --require-login`, or with
  `--allow-anonymous`.

To save time, queues are looked for every second (`discovery.interval_s=1`), and all runs on a
broker share it: each run has a new store beside the tokens of the runs before
(`store.accept_orphans=true`). Warnings about those tokens are left out.

- *back*: dead letters that came back to a consumer which then succeeded, by application. 8 = one of
  each JMS type (7 for Core, see [fidelity.md](fidelity.md) for a Stream with bytes), 2 = a text and
  bytes of a STOMP producer, read over JMS.
- *left*: messages in the dead-letter queue at the end.

Ports are those of the stock files.
"""


def rows(broker_name: str, cases: list[Case], folder: Path) -> list[Row]:
    """Run the cases on one broker."""
    found = []
    with stock_brokers()[broker_name]() as broker:
        if "8161" in known_ports(broker) and any(":8161" in case.url for case in cases):
            wait_for_http(broker)
        for number, case in enumerate(cases):
            url = case.url
            for stock, port in known_ports(broker).items():
                url = url.replace(f"localhost:{stock}", f"127.0.0.1:{port}")
            found.append(try_url(broker, broker_name, url, case.url, folder / str(number)))
    return found


def recorded() -> list[Row]:
    """Return the rows of the record."""
    return [Row(**line) for line in json.loads(RECORD.read_text(encoding="utf-8"))]


def page(all_rows: list[Row]) -> str:
    """Return the page."""
    meanings = {(case.broker, case.url): case.meaning for case in CASES}
    lines = [INTRODUCTION]
    for mistakes in (False, True):
        lines += [
            "## Typical mistakes\n" if mistakes else "## Measured\n",
            "| broker | `broker.url` | | outcome | back | left | what it says |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in all_rows:
            meaning = meanings[row.broker, row.url]
            if bool(meaning) != mistakes:
                continue
            back = ", ".join(f"{name} {count}" for name, count in row.back.items())
            says = "<br>".join(row.says).replace("|", "\\|") or "-"
            lines.append(
                f"| {row.broker} | `{row.url}` | {meaning} | {row.outcome} | {back or '-'} "
                f"| {row.left if row.back else '-'} | {says} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def main() -> int:
    """Run all cases, or those of the brokers named, and write record and page."""
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
    PAGE.write_text(page(known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
