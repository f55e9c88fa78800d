"""The process from which Spark forks its Python workers on this machine (`session.py`).

That of Spark leaves the imports to each worker, and the worker takes pyspark out of a zip without
compiled files: a second of processor time for each of them.
"""

import gc
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

_ZIPS: Final = "/pyspark/python/lib/"
"""Where an installed pyspark holds itself and py4j once more; Spark names them first."""


def main() -> None:
    """Import the workers' modules, and fork a worker whenever Spark asks for one, until it ends."""
    sys.path[:] = without_zips(sys.path)
    for name in ("pandas", "pyarrow.parquet", "pyspark.worker", "pyspark.sql.pandas.serializers"):
        import_module(name)
    # Why: a worker collects garbage after each task; imported objects are not garbage.
    gc.freeze()
    import_module("pyspark.daemon").manager()


def without_zips(path: Sequence[str]) -> list[str]:
    """Return a module path without the zips of a pyspark that is installed on it."""
    return [one for one in path if _ZIPS not in one or one.partition(_ZIPS)[0] not in path]


if __name__ == "__main__":
    main()
