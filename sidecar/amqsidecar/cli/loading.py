"""Commands that are imported when they are asked for, and libraries that may not be installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand

from amqsidecar.errors import ConfigError, Problem


class LazyCommand(TyperCommand):
    """A listed command or group of commands; its context is that of the imported command."""

    def __init__(self, place: str, summary: str) -> None:
        """Name `module:function`, or a group in the place of the function, without an import."""
        self._module, _, self._function = place.partition(":")
        super().__init__(self._function.rstrip("_").replace("_", "-"), help=summary)

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Import the command; the context is its own."""
        found = getattr(import_module(f"amqsidecar.cli.{self._module}"), self._function)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(self.name)(found)
            found = single
        return typer.main.get_command(found).make_context(*arguments, **options)


@contextmanager
def needing(extra: str, command: str) -> Iterator[None]:
    """Say which extra of the package a command needs whose libraries are missing.

    Raises:
        ConfigError: a library is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        what = f'needs more libraries: pip install "amqsidecar[{extra}]" ({error})'
        raise ConfigError([Problem(command, what)]) from error
