"""The installed Spark once more, without the zips of its Python: workers take what is installed.

Spark names those zips first, and they hold nothing that is compiled, so that each Python process
compiles all that it imports: a second of processor time, forty times in the tests of the pipeline.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import pyspark

from support.maven import cached

INSTALLED: Final = Path(pyspark.__file__).parent


def spark_home() -> Path:
    """Return the folder for `SPARK_HOME`, made once for each version of Spark."""
    return cached(f"spark-{pyspark.__version__}", _build)


def _build(folder: Path) -> None:
    for name in ("bin", "jars"):
        shutil.copytree(INSTALLED / name, folder / name, copy_function=_linked)


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        return shutil.copy2(source, target)
    return target
