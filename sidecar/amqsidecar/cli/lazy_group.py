"""Groups of commands whose modules are imported when they are asked for."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any

import typer
from typer.core import TyperGroup

from amqsidecar.errors import ConfigError, Problem
from amqsidecar.model.shown import shown_line


@contextmanager
def _visible_usage() -> Iterator[None]:
    """Make everything visible in what the library prints of wrong usage."""
    try:
        yield
    except typer.BadParameter as error:
        error.message = shown_line(error.message)
        raise


def lazy_group(
    commands: Mapping[str, tuple[str, str]],
    *,
    aliases: Mapping[str, str] = MappingProxyType({}),
    extra: str | None = None,
) -> type[TyperGroup]:
    """Return a kind of group that imports a command when it is asked for.

    Args:
        commands: each command's name, and the module in this package and the function, or the group
            of commands, that it is; in the order of the help.
        aliases: other names of commands, which the help leaves out.
        extra: what has to be installed to run them, but not for their help; None = nothing more.
    """

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: Any) -> list[str]:
            return list(commands)

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            cmd_name = aliases.get(cmd_name, cmd_name)
            if cmd_name not in commands:
                return None
            if cmd_name not in self.commands:
                module, name = commands[cmd_name]
                found = getattr(import_module(f"amqsidecar.cli.{module}"), name)
                if not isinstance(found, typer.Typer):
                    single = typer.Typer(add_completion=False, rich_markup_mode=None)
                    single.command(cmd_name)(found)
                    found = single
                self.commands[cmd_name] = typer.main.get_command(found)
            return self.commands[cmd_name]

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            if args[0] not in commands and args[0] not in aliases:
                # Why: for a name that is none, the library suggests of those that were made.
                for name in commands:
                    self.get_command(ctx, name)
            return super().resolve_command(ctx, args)

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
