"""File, environment and `--set` become one checked `Config`."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from amqsidecar.config.option import Section
from amqsidecar.config.schema import Config, known_options, options_of_entries
from amqsidecar.errors import ConfigError, Problem

ENVIRONMENT_PREFIX: Final = "AMQSIDECAR_"

# Quirk (Kubernetes): a Service called `amqsidecar` puts these into the environment of every pod.
_SERVICE_VARIABLE: Final = re.compile(
    r"(?:^|_)(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_\w+)?)?)$"
)

_NOT_OPTIONS: Final = frozenset({"AMQSIDECAR_CONFIG", "AMQSIDECAR_CRASH_POINT"})
"""Environment variables of amqsidecar that set no option: see `cli.options`."""

_FREE_FORM: Final = (
    "policy.rules",
    "policy.plugins",
    "policy.gates",
    "intake.group_by",
    "redelivery.parked_keep",
    "redelivery.exhausted_keep",
    "redelivery.in_place_keep",
)
"""Options whose content isn't described by the schema."""

_READ_AT_START: Final = (
    "broker.password_file",
    "broker.token_file",
    "broker.oidc.client_secret_file",
    "broker.tls.ca_file",
    "broker.tls.cert_file",
    "broker.tls.key_file",
    "journal.path",
    "policy.source",
    "store.password_file",
)
_EXPECTED: Final = {
    "int_type": "a whole number",
    "bool_type": "true or false",
    "string_type": "a text (put it in quotes if it looks like a number)",
    "tuple_type": "a list",
    "path_type": "the path of a file",
}


def load_config(
    config_file: Path | None, sets: Sequence[str], environ: Mapping[str, str]
) -> Config:
    """Return the options: the file's, overridden by the environment, overridden by `sets`.

    Relative paths in the file start at its folder, others at the working directory. No other file
    is opened, so that a configuration can be read where its secrets are not; see `check_start`.

    Args:
        config_file: YAML; None = no file.
        sets: `dotted.key=value`, the value in YAML.
        environ: `AMQSIDECAR_DOTTED__KEY` to a value in YAML; other variables are ignored.

    Raises:
        ConfigError: with every problem found.
    """
    merger = _Merger()
    if config_file is not None:
        merger.add_file(config_file)
    merger.add_environment(environ)
    merger.add_sets(sets)
    config = merger.build()
    if merger.problems or config is None:
        raise ConfigError(merger.problems)
    return config


def missing_files(config: Config, keys: Iterable[str]) -> dict[str, Path]:
    """Return the files that do not exist, by the option that names them; `keys` name files."""
    paths = {key: _lookup(config, key) for key in sorted(keys)}
    return {
        key: path
        for key, path in paths.items()
        if isinstance(path, Path) and _is_file(str(path)) and not path.exists()
    }


def check_start(config: Config, awaited: Collection[str] = ()) -> list[Problem]:
    """Return why `run` refuses to start.

    Files that can't be read, an address open to strangers, a library that is not installed.

    Args:
        config: all options.
        awaited: options whose files do not exist yet, which is no problem.
    """
    problems = check_wire(config)
    if config.http.strangers_problem:
        what = f"http.listen: {config.http.strangers_problem}"
        problems.append(Problem(config.origin("http.listen"), what))
    if config.otel.endpoint and find_spec("opentelemetry") is None:
        what = 'otel.endpoint: needs OpenTelemetry: pip install "amqsidecar[otel]"'
        problems.append(Problem(config.origin("otel.endpoint"), what))
    for key in _READ_AT_START:
        path = _lookup(config, key)
        if key in awaited or not isinstance(path, Path) or not _is_file(str(path)):
            continue
        try:
            with path.open("rb"):
                pass
        except OSError as error:
            reason = error.strerror or str(error)
            problems.append(Problem(config.origin(key), f"{key}: {path} can't be read: {reason}"))
    return problems


def has_amqp() -> bool:
    """Return whether the library of AMQP is installed."""
    return find_spec("proton") is not None


def check_wire(config: Config) -> list[Problem]:
    """Return which libraries are not installed that `broker.url` or `broker.oidc` asks for."""
    if config.broker.oidc.issuer and find_spec("authlib") is None:
        what = 'broker.oidc: needs Authlib: pip install "amqsidecar[oidc]"'
        return [Problem(config.origin("broker.oidc.issuer"), what)]
    if not any(url.scheme.startswith("amqp") for url in config.broker.url):
        return []
    if has_amqp():
        return []
    what = (
        'broker.url: AMQP needs python-qpid-proton: pip install "amqsidecar[amqp]". It is compiled '
        "where no wheel of it is at hand, which needs a C compiler and Python's headers (Debian: "
        "apt-get install gcc libc6-dev python3-dev) but not OpenSSL's: TLS is Python's own. "
        "`openwire://` for Classic and `artemis://` for Artemis need nothing"
    )
    return [Problem(config.origin("broker.url"), what)]


class _Merger:
    """Collects values, where each comes from, and everything that is wrong."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self._values: dict[str, object] = {}
        self._origins: dict[str, str] = {}

    def add_file(self, path: Path) -> None:
        # Why here: it is slow to import, and most commands have no file to read.
        from amqsidecar.policy_source.yaml_text import NotYaml, read_yaml_text  # noqa: PLC0415

        try:
            tree = read_yaml_text(path.read_text(encoding="utf-8"), keeps_lines=True)
        except OSError as error:
            self._fail(str(path), f"can't be read: {error.strerror or error}")
        except UnicodeDecodeError:
            self._fail(str(path), "can't be read: it is not UTF-8")
        except NotYaml as error:
            where = str(path) if error.line is None else f"{path}:{error.line}"
            self._fail(where, f"is not YAML: {error}")
        else:
            if isinstance(tree, Mapping):
                self._add_tree(tree, "", path)
            elif tree is not None:
                self._fail(f"{path}:1", "expected options, such as `broker:`")

    def _add_tree(self, tree: Mapping[Any, object], prefix: str, path: Path) -> None:
        for name, value in tree.items():
            key = f"{prefix}{name}"
            where = f"{path}:{_line(tree, name)}"
            if _is_section(key):
                if isinstance(value, Mapping):
                    self._add_tree(value, f"{key}.", path)
                elif value is not None:
                    self._fail(where, f"{key}: expected options below it, found {value!r}")
            elif key not in known_options():
                self._fail(where, _unknown(key))
            elif value is not None:
                self._put(key, _completed(known_options(), key, value, path.parent), where)

    def add_environment(self, environ: Mapping[str, str]) -> None:
        for name in sorted(environ):
            if not name.startswith(ENVIRONMENT_PREFIX) or name in _NOT_OPTIONS:
                continue
            rest = name.removeprefix(ENVIRONMENT_PREFIX)
            key = rest.lower().replace("__", ".")
            if key in known_options() or _is_section(key):
                self._put_text(key, environ[name], f"environment variable {name}")
            elif not _SERVICE_VARIABLE.search(rest):
                names = {_variable(known): known for known in known_options()}
                near = get_close_matches(name, names, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                self._fail(f"environment variable {name}", f"there is no such option{hint}")

    def add_sets(self, sets: Sequence[str]) -> None:
        for text in sets:
            key, separator, value = text.partition("=")
            key = key.strip()
            where = f"--set {key}"
            if not separator:
                self._fail("--set", f"expected dotted.key=value, found {_shown(key, text)}")
            elif key in known_options() or _is_section(key):
                self._put_text(key, value, where)
            elif whole := next((one for one in _FREE_FORM if key.startswith(f"{one}.")), None):
                self._fail(where, f"only the whole of `{whole}` can be set here")
            else:
                self._fail(where, _unknown(key))

    def _put_text(self, key: str, text: str, where: str) -> None:
        if _wants_text(key) and not text.lstrip().startswith(("[", "{", '"', "'", "- ")):
            # Why: a URL, a pattern or an empty value means itself and needs no quotes.
            self._put(key, text.strip(), where)
            return
        value = _parse_value(text)
        if _is_section(key):
            if not isinstance(value, Mapping):
                first = next(known for known in known_options() if known.startswith(f"{key}."))
                self._fail(
                    where, f"{key}: is a group of options; set one of them, such as `{first}`"
                )
                return
            for name, item in value.items():
                inner = f"{key}.{name}"
                if inner in known_options():
                    self._put(inner, item, where)
                else:
                    self._fail(where, _unknown(inner))
            return
        self._put(key, value, where)

    def _put(self, key: str, value: object, where: str) -> None:
        self._values[key] = value
        self._origins[key] = where

    def build(self) -> Config | None:
        """Return the options, or None where something is wrong; see `problems`."""
        tree: dict[str, Any] = {}
        for key, value in self._values.items():
            branch = tree
            *parents, leaf = key.split(".")
            for parent in parents:
                branch = branch.setdefault(parent, {})
            branch[leaf] = value
        sections: dict[str, Section] = {}
        for name, field in Config.model_fields.items():
            kind = field.annotation
            assert isinstance(kind, type)  # noqa: S101 - the schema has no other
            assert issubclass(kind, Section)  # noqa: S101 - as above
            try:
                built = kind.model_validate(tree.get(name, {}))
            except ValidationError as error:
                details = error.errors(include_url=False)
                self.problems.extend(self._explain(name, detail) for detail in details)
                continue
            sections[name] = built
            for key, what in built.problems():
                self._fail(self._where(f"{name}.{key}"), f"{name}.{key}: {what}")
        if self.problems:
            return None
        config = Config.model_validate(sections).with_origins(self._origins)
        for key, what in config.problems():
            self._fail(self._where(key), f"{key}: {what}")
        return None if self.problems else config

    def _where(self, key: str) -> str:
        return self._origins.get(key, key)

    def _explain(self, section: str, detail: ErrorDetails) -> Problem:
        location = [section, *(str(part) for part in detail["loc"])]
        key = next(
            (
                candidate
                for length in range(len(location), 0, -1)
                if (candidate := ".".join(location[:length])) in known_options()
            ),
            ".".join(location),
        )
        found = detail["input"]
        kind, context = detail["type"], detail.get("ctx", {})
        if kind == "value_error":
            what = str(context["error"])
        elif kind in _EXPECTED:
            what = f"expected {_EXPECTED[kind]}, found {_shown(key, found)}"
        elif kind == "enum":
            choices = context["expected"].replace("'", "")
            what = f"expected {choices}, found {_shown(key, found)}"
        elif kind == "string_pattern_mismatch":
            what = f"{found!r} doesn't fit the pattern {context['pattern']}"
        else:
            message = detail["msg"].replace("Input should be", "expected")
            what = f"{message[:1].lower()}{message[1:]}, found {_shown(key, found)}"
        return Problem(self._where(key), f"{key}: {what}")

    def _fail(self, where: str, what: str) -> None:
        self.problems.append(Problem(where, what))


def _completed(options: Mapping[str, Any], name: str, value: object, folder: Path) -> object:
    """Return the value of an option in a file; a relative path starts at the file's folder."""
    field = options.get(name)
    if isinstance(value, Mapping) and field is not None and (inner := options_of_entries(field)):
        return {
            one: {key: _completed(inner, key, part, folder) for key, part in entry.items()}
            if isinstance(entry, Mapping)
            else entry
            for one, entry in value.items()
        }
    is_path = (
        name == "journal.path"
        or (name == "log.audit" and value not in ("stderr", "stdout"))
        or (field is not None and Path in get_args(field.annotation))
    )
    if is_path and isinstance(value, str) and value and _is_file(value):
        return str(folder / value)
    return value


def _is_file(value: str) -> bool:
    """Return whether it is a path: neither a connection URI with a redelivery policy nor a URL."""
    return "jms.redeliveryPolicy." not in value and "://" not in value


def _shown(key: str, found: object) -> str:
    """Return a wrong value for a message; never one that could hold a password."""
    if key.startswith(("broker.url", "store.url")) or "://" in str(found):
        return "something else"
    text = repr(found)
    return text if len(text) <= 80 else f"{text[:77]}..."


def _variable(key: str) -> str:
    return ENVIRONMENT_PREFIX + key.upper().replace(".", "__")


def _line(tree: Mapping[Any, object], name: object) -> int:
    """Return the 1-based line of a key in a mapping of the YAML reader."""
    position = getattr(tree, "lc", None)
    try:
        line: int = position.key(name)[0] if position is not None else 0
    except KeyError:  # the key came in by a YAML merge
        line = position.line if position is not None else 0
    return line + 1


def _sections() -> Iterator[str]:
    for key in known_options():
        *parents, _ = key.split(".")
        for length in range(1, len(parents) + 1):
            yield ".".join(parents[:length])


def _is_section(key: str) -> bool:
    return key in set(_sections())


def _unknown(key: str) -> str:
    """Return a sentence about a key that doesn't exist, with the nearest one that does."""
    known = [*known_options(), *dict.fromkeys(_sections())]
    near = get_close_matches(key, known, n=1, cutoff=0.7)
    if not near:
        last = key.rsplit(".", 1)[-1]
        near = [option for option in known if option.rsplit(".", 1)[-1] == last][:1]
    if near:
        return f"{key}: there is no such option; did you mean `{near[0]}`?"
    parent = key.rsplit(".", 1)[0] + "." if "." in key else ""
    parent = parent if _is_section(parent.rstrip(".")) else ""
    below = {name.removeprefix(parent).split(".")[0] for name in known if name.startswith(parent)}
    return f"{key}: there is no such option; known here: {', '.join(sorted(below))}"


def _wants_text(key: str) -> bool:
    """Return whether an option takes a text, so that a value on a command line needs no quotes."""
    field = known_options().get(key)
    return field is not None and not any(
        kind in str(field.annotation) for kind in ("int", "float", "bool", "Mapping")
    )


def _parse_value(text: str) -> object:
    """Parse a value of the environment or the command line as YAML."""
    if re.fullmatch("[1-9][0-9]{0,17}|0", text):
        return int(text)
    # Why here: it is slow to import, and most values are texts or plain numbers.
    from amqsidecar.policy_source.yaml_text import NotYaml, read_yaml_text  # noqa: PLC0415

    try:
        return read_yaml_text(text, keeps_lines=False)
    except NotYaml:
        return text


def _lookup(config: Config, key: str) -> object:
    value: object = config
    for name in key.split("."):
        value = value[name] if isinstance(value, Mapping) else getattr(value, name)
    return value
