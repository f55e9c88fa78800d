"""Archives of the classes that brokers, JMS peers and Spark load: a JVM starts with less work.

A JVM with an archive neither parses nor verifies its classes. Without one, or with one that another
Java has written, it starts as ever. `support.write_class_archives` writes them into the cache.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from support.maven import cache_root, tool

FILE: Final = "classes.jsa"
WRITE: Final = "-XX:ArchiveClassesAtExit="
_READ: Final = "-XX:SharedArchiveFile="


def archive_name(class_path: str) -> str:
    """Return the name of the folder in the cache that holds the archive of a class path."""
    java = Path(tool("java")).resolve()
    # Why: an archive fits one build of Java.
    release = java.parent.parent / "release"
    build = release.read_text(encoding="utf-8") if release.is_file() else str(java)
    digest = hashlib.sha256(f"{build}\0{class_path}".encode()).hexdigest()[:12]
    return f"classes-{digest}"


def class_path_of(command: Sequence[str]) -> str:
    """Return what follows `-cp` in a command."""
    return command[command.index("-cp") + 1]


def with_archive(command: Sequence[str]) -> list[str]:
    """Return a command of Java with the option that reads its archive, if there is one.

    Args:
        command: JVM options with `-cp`, main class and arguments, without the program.
    """
    is_written = any(option.startswith(WRITE) for option in command)
    return [*([] if is_written else reading(class_path_of(command))), *command]


def reading(class_path: str) -> list[str]:
    """Return the option of Java that reads the archive of a class path; none if there is none."""
    archive = cache_root() / archive_name(class_path) / FILE
    return [f"{_READ}{archive}"] if archive.is_file() else []
