"""Files where Spark writes its tables, on this machine or in an object store.

Why not fsspec: Spark has its own file systems, with the credentials for its tables.
"""

from collections.abc import Iterable
from typing import Any

from pyspark.sql import SparkSession


def write_by_hadoop(session: SparkSession, path: str, content: bytes) -> None:
    """Write a file atomically; replaces an existing one.

    Raises:
        py4j.protocol.Py4JJavaError: the file system refuses it.
    """
    hadoop, configuration = _hadoop(session)
    files = hadoop.Path(path).getFileSystem(configuration)
    target = files.makeQualified(hadoop.Path(path))
    unfinished = hadoop.Path(target.getParent(), f".{target.getName()}.unfinished")
    stream = files.create(unfinished, True)
    try:
        stream.write(bytearray(content))
    finally:
        stream.close()
    context = hadoop.FileContext.getFileContext(files.getUri(), configuration)
    options = hadoop.Options.Rename
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001  as below
    overwrite = gateway.new_array(options, 1)
    overwrite[0] = options.OVERWRITE
    context.rename(unfinished, target, overwrite)


def read_by_hadoop(session: SparkSession, path: str) -> bytes:
    """Return the content of a file.

    Raises:
        py4j.protocol.Py4JJavaError: the file system refuses it, or it is not there.
    """
    hadoop, configuration = _hadoop(session)
    files = hadoop.Path(path).getFileSystem(configuration)
    stream = files.open(hadoop.Path(path))
    try:
        return bytes(stream.readAllBytes())
    finally:
        stream.close()


def list_by_hadoop(session: SparkSession, path: str) -> list[str]:
    """Return the names in a folder; none if it is not there."""
    hadoop, configuration = _hadoop(session)
    files = hadoop.Path(path).getFileSystem(configuration)
    if not files.exists(hadoop.Path(path)):
        return []
    return [one.getPath().getName() for one in files.listStatus(hadoop.Path(path))]


def remove_by_hadoop(session: SparkSession, paths: Iterable[str]) -> None:
    """Remove files, and folders with their content, in this order; missing ones are ignored.

    Raises:
        py4j.protocol.Py4JJavaError: the file system refuses it.
    """
    hadoop, configuration = _hadoop(session)
    for path in paths:
        target = hadoop.Path(path)
        target.getFileSystem(configuration).delete(target, True)


def _hadoop(session: SparkSession) -> tuple[Any, Any]:
    """Return the Java package of Hadoop's files, and the session's configuration of them."""
    java: Any = session.sparkContext._jvm  # noqa: SLF001  PySpark has no public way to Hadoop's files
    configuration = session.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  as above
    return java.org.apache.hadoop.fs, configuration
