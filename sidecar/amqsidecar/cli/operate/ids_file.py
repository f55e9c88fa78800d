"""Redelivery ids out of a file, as a Spark job or a person writes them."""

import csv
from pathlib import Path
from typing import Final

import typer

from amqsidecar.operations.select import IDS_MAX

COLUMN: Final = "redelivery_id"
_OPTION: Final = "--ids-from"


def read_ids(path: Path) -> list[str]:
    """Return the values of the column `redelivery_id`, each once, in the order of the file.

    Args:
        path: CSV with a head line, or a Parquet file or folder (needs `amqsidecar[journal]`).

    Raises:
        typer.BadParameter: it can't be read, has no such column or no id, or too many.
    """
    try:
        if path.is_dir() or path.suffix == ".parquet":
            found = _of_parquet(path)
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                rows = csv.DictReader(file)
                if COLUMN not in (rows.fieldnames or ()):
                    raise ValueError(f"its first line names no column {COLUMN}")
                found = dict.fromkeys(row[COLUMN].strip() for row in rows if row[COLUMN])
    except (OSError, ValueError, csv.Error, ImportError) as error:
        raise typer.BadParameter(f"{path} can't be read: {error}", param_hint=_OPTION) from error
    if not found or len(found) > IDS_MAX:
        what = f"{path} holds {len(found)} ids; expected 1 to {IDS_MAX}: divide the file"
        raise typer.BadParameter(what, param_hint=_OPTION)
    return list(found)


def _of_parquet(path: Path) -> dict[str, None]:
    from pyarrow import dataset  # noqa: PLC0415 - an extra

    table = dataset.dataset(path, format="parquet")
    if COLUMN not in table.schema.names:
        raise ValueError(f"it has no column {COLUMN}")
    found: dict[str, None] = {}
    for batch in table.to_batches(columns=[COLUMN]):
        found.update(dict.fromkeys(filter(None, batch.column(0).to_pylist())))
        if len(found) > IDS_MAX:
            break
    return found
