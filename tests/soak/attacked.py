"""Serves a site with dead letters whose causes are a megabyte each, until its input ends."""

import sqlite3
import sys
from pathlib import Path

from amqsidecar.http.access import Role
from support.web.console_store import dead, keep, open_store
from support.web.site import running_site

ROWS = 300
CAUSE = "com.acme.Outer: x\n" + "\tat com.acme.Frame\n" * 55_000 + "Caused by: com.acme.Root: y"


def main() -> None:
    folder = Path(sys.argv[1])
    with running_site(folder) as site:
        store = open_store(folder / "schedule.db")
        first = store.allocate_ids(ROWS)
        keep(store, [dead(first + n, "short", 1_000) for n in range(ROWS)])
        store.close()
        with sqlite3.connect(folder / "schedule.db") as database:
            database.execute("UPDATE redelivery SET cause = ? WHERE id >= ?", (CAUSE, first))
        database.close()
        print(site.address, site.tokens[Role.VIEWER], flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
