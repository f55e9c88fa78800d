"""`amqsidecar access`: lines for the files that grant access to console and API."""

import getpass
import sys
from typing import Annotated

import typer

from amqsidecar.cli.options import Output, OutputFormat
from amqsidecar.cli.printing import print_json, print_line, say
from amqsidecar.cli.reading import configured
from amqsidecar.cli.user import enter_as_user
from amqsidecar.config.schema import Config
from amqsidecar.http.access import Role
from amqsidecar.http.authentication.files import NAME, new_token, password_proof, token_digest
from amqsidecar.telemetry import audit

Name = Annotated[
    str, typer.Argument(metavar="NAME", help="Name in logs and events: A-Z a-z 0-9 . _ @ -")
]
RoleOption = Annotated[
    str,
    typer.Option("--role", help="viewer, operator, or roles of `http.roles_file`, joined by +."),
]

_SHORTEST_PASSWORD = 12

access = typer.Typer(
    name="access", add_completion=False, no_args_is_help=True, rich_markup_mode=None
)


@access.callback()
def _access() -> None:
    """Make lines for the files that grant access to console and API."""


@access.command("token")
@configured
def make_token(
    *,
    name: Name,
    role: RoleOption = Role.VIEWER.value,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Print a line for `http.tokens_file`, and its new token.

    The token goes to standard error.

    JSON: {"name", "role", "token", "line"}
    """
    token = new_token()
    _audit("make-token", _checked(name), _checked_role(role, config), config)
    line = f"{name} {role} sha256:{token_digest(token)}"
    if output is OutputFormat.JSON:
        print_json({"name": name, "role": role, "token": token, "line": line})
        return
    say(f"the token, shown only this once: {token}")
    print_line(line)


@access.command("user")
@configured
def make_user(
    *,
    name: Name,
    role: RoleOption = Role.VIEWER.value,
    config: Config,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Ask for a password and print a line for `http.users_file`.

    Where there is no terminal, the password is the first line of standard input.
    JSON: {"name", "role", "line"}
    """
    line = f"{_checked(name)} {_checked_role(role, config)} {password_proof(_password())}"
    _audit("make-user", name, role, config)
    if output is OutputFormat.JSON:
        print_json({"name": name, "role": role, "line": line})
    else:
        print_line(line)


def _audit(action: str, name: str, role: str, config: Config) -> None:
    enter_as_user(config, is_needed=True)
    audit.write(action, after={"name": name, "role": role})


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        what = f"expected at most 64 of A-Z a-z 0-9 . _ @ -, found {name!r}"
        raise typer.BadParameter(what, param_hint="NAME")
    return name


def _checked_role(role: str, config: Config) -> str:
    is_named = config.http.roles_file is not None and all(map(NAME.fullmatch, role.split("+")))
    if role not in list(Role) and not is_named:
        what = f"expected {', '.join(Role)}, or a role of http.roles_file, found {role!r}"
        raise typer.BadParameter(what, param_hint="--role")
    return role


def _password() -> str:
    if sys.stdin.isatty():
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise typer.BadParameter("the two passwords differ")
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if len(password) < _SHORTEST_PASSWORD:
        raise typer.BadParameter(f"a password needs at least {_SHORTEST_PASSWORD} characters")
    return password
