"""Files that jobs write and read beside Spark's tables, on this machine or in an object store.

URLs are those of `folder_of`, also where this process has no Spark driver (Spark Connect).
"""

from collections.abc import Iterable

from amqsidecar.pipeline.sources.journal_files import folder_of


def write_file(path: str, content: bytes) -> None:
    """Write a file atomically; replaces an existing one.

    Raises:
        ConfigError: see `folder_of`.
        OSError: the file system refuses it.
    """
    system, target, url = folder_of(path)
    folder, _, name = target.rpartition("/")
    system.makedirs(folder, exist_ok=True)
    # Why not in object stores: there a write is atomic, and a move is a copy.
    unfinished = f"{folder}/.{name}.unfinished" if url.startswith("file:") else target
    system.pipe_file(unfinished, content)
    if unfinished != target:
        system.mv(unfinished, target)


def read_file(path: str) -> bytes:
    """Return the content of a file.

    Raises:
        ConfigError: see `folder_of`.
        OSError: the file system refuses it, or it is not there.
    """
    system, inner, _ = folder_of(path)
    return bytes(system.cat_file(inner))


def list_names(path: str) -> list[str]:
    """Return the names in a folder; none if it is not there."""
    system, inner, _ = folder_of(path)
    system.invalidate_cache()
    try:
        names = system.ls(inner, detail=False)
    except FileNotFoundError:
        return []
    return [str(one).rstrip("/").rpartition("/")[2] for one in names]


def remove(paths: Iterable[str]) -> None:
    """Remove files, and folders with their content, in this order; missing paths are ignored."""
    for path in paths:
        system, inner, _ = folder_of(path)
        system.invalidate_cache()
        if system.exists(inner):
            system.rm(inner, recursive=True)
