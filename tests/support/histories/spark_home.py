"""The installed Spark once more, without the zips of its Python: workers take what is installed.

Spark names those zips first, and they hold nothing that is compiled, so that each Python process
compiles all that it imports: a second of processor time, forty times in the tests of the pipeline.
"""

import os
import shutil
from pathlib import Path
from typing import Final

import pyspark

from support.class_archives import reading
from support.maven import cached

INSTALLED: Final = Path(pyspark.__file__).parent
FAST_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""For Java where plans are new in each test and rows few, so that compiling well costs most.

Without the second compiler Java keeps 48 MiB for what is compiled. A session that lives for all
tests fills them, and then dies where Spark calls through a method handle.
"""


def spark_home() -> Path:
    """Return the folder for `SPARK_HOME`, made once for each version of Spark."""
    return cached(f"spark-{pyspark.__version__}", _build)


def spark_class_path() -> str:
    """Return what Java gets as the class path with this home."""
    return f"{spark_home()}/jars/*"


def java_options(*more: str) -> str:
    """Return the setting for a driver with this home, with more options of Java."""
    options = " ".join((FAST_START, *(more or reading(spark_class_path()))))
    return f"spark.driver.extraJavaOptions={options}"


def _build(folder: Path) -> None:
    for name in ("bin", "jars"):
        shutil.copytree(INSTALLED / name, folder / name, copy_function=_linked)


def _linked(source: str, target: str) -> str:
    try:
        os.link(source, target)
    except OSError:  # another file system
        return shutil.copy2(source, target)
    return target
