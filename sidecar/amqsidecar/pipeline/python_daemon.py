"""The process from which Spark forks its Python workers on this machine (`session.py`).

That of Spark leaves the imports to each worker, and the worker takes pyspark out of a zip without
compiled files: a second of processor time for each of them.
"""

import gc
import sys
from importlib import import_module
from typing import Final

_ZIPS: Final = "/pyspark/python/lib/"
"""Where an installed pyspark holds itself and py4j once more; Spark names them first."""


def main() -> None:
    """Import what workers need, and fork a worker whenever Spark asks for one, until it ends."""
    sys.path[:] = [one for one in sys.path if not _is_installed_too(one)]
    for name in ("pandas", "pyarrow.parquet", "pyspark.worker", "pyspark.sql.pandas.serializers"):
        import_module(name)
    # Why: a worker looks for garbage after each task; what was imported is none.
    gc.freeze()
    import_module("pyspark.daemon").manager()


def _is_installed_too(entry: str) -> bool:
    folder, found, _ = entry.partition(_ZIPS)
    return bool(found) and folder in sys.path


if __name__ == "__main__":
    main()
