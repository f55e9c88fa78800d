"""Groups of commands whose modules are imported when they are asked for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.shown import shown_line


def work_of(place: str) -> Any:
    """Import and return `module:name` of this package, so that help needs no work."""
    module, name = place.split(":")
    return getattr(import_module(f"amqsidecar.cli.{module}"), name)


class LazyCommand(TyperCommand):
    """A listed command or group of commands; its context is that of the imported command."""

    def __init__(self, place: str, summary: str) -> None:
        """Name `module:function`, or a group in the place of the function, without an import."""
        name = place.partition(":")[2].rstrip("_").replace("_", "-")
        super().__init__(name, help=summary)
        self._place = place

    def make_context(self, *arguments: Any, **options: Any) -> Any:
        """Import the command; the context is its own."""
        found = work_of(self._place)
        if not isinstance(found, typer.Typer):
            single = typer.Typer(add_completion=False, rich_markup_mode=None)
            single.command(self.name)(found)
            found = single
        return typer.main.get_command(found).make_context(*arguments, **options)


def lazy_commands(summaries: Mapping[str, str]) -> dict[str, LazyCommand]:
    """Return commands by name; `summaries` has the summary of each `module:function`."""
    commands = [LazyCommand(place, summary) for place, summary in summaries.items()]
    return {str(command.name): command for command in commands}


@contextmanager
def _visible_usage() -> Iterator[None]:
    """Make every character visible in the library's usage errors."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = shown_line(error.message)
        raise


def lazy_group(
    commands: dict[str, LazyCommand],
    *,
    aliases: Mapping[str, str] = MappingProxyType({}),
    extra: str | None = None,
) -> type[TyperGroup]:
    """Return a kind of group that imports a command when it is asked for.

    Args:
        commands: by name, in the order of the help.
        aliases: other names of commands, which the help leaves out.
        extra: extra of the package that running them needs; None = none.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes | {"commands": commands})

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            return super().get_command(ctx, aliases.get(cmd_name, cmd_name))

        def invoke(self, ctx: Any) -> Any:
            try:
                with _visible_usage():
                    return super().invoke(ctx)
            except ModuleNotFoundError as error:
                if extra is None:
                    raise
                what = f'needs more libraries: pip install "amqsidecar[{extra}]" ({error})'
                raise ConfigError([Problem(ctx.command_path, what)]) from error

    return LazyGroup
