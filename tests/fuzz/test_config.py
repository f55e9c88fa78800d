"""Whatever is set: options, or our own error that names where it came from."""

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from amqsidecar.config.load import load_config
from amqsidecar.config.schema import known_options
from amqsidecar.errors import ConfigError
from support.wires.fuzz import damaged, fuzz

pytestmark = pytest.mark.timeout(120)

DIGITS = "9" * 5000
LAUGHS = "{a: &a [x, x, x, x, x, x, x, x], " + ", ".join(
    f"{chr(98 + level)}: &{chr(98 + level)} [{', '.join(['*' + chr(97 + level)] * 8)}]"
    for level in range(8)
)
HOSTILE = (
    *(DIGITS, f"0x{DIGITS}", f"-{DIGITS}", "1e400", ".nan", "2001-99-99", "!!int x", "!!bool x"),
    *("[" * 300, LAUGHS + "}", "&a [*a]", "{a: !!float x}", "\0", "", "[", "%YAML 9", "~", "- - -"),
    *(
        "tcp://a:99999999999",
        "failover:(",
        "amqp://[::1",
        "amqp://u:p@h:1?x=%zz",
        "::::",
        "é\ud800",
    ),
)
keys = st.sampled_from((*known_options(), "broker", "cycle", "policy", "policy.rules.x", "", "a.b"))
texts = st.sampled_from(HOSTILE) | st.text(max_size=12)


def problems(path: Path | None, sets: list[str], environ: dict[str, str]) -> list[str]:
    try:
        load_config(path, sets, environ)
    except ConfigError as error:
        return [str(problem) for problem in error.problems]
    return []


@fuzz
@given(keys, texts)
@example("cycle.max_wait_ms", f"0x{DIGITS}")
@example("policy.rules", "{plugins: " + LAUGHS + "}}")
@example("policy.rules", "!!omap [{? [a] : x}]")
def test_any_value_that_is_set(key: str, text: str) -> None:
    told = problems(None, [f"{key}={text}"], {})
    assert all(one.startswith(("--set", "broker.url")) for one in told), told
    assert all(len(one) < 20_000 for one in told)


@fuzz
@given(keys, texts)
def test_any_value_of_the_environment(key: str, text: str) -> None:
    name = "AMQSIDECAR_" + key.upper().replace(".", "__")
    told = problems(None, [], {name: text})
    assert all(name in one or one.startswith("broker.url") for one in told), told


@fuzz
@given(
    st.lists(st.tuples(keys, texts), max_size=3)
    .map(lambda found: "".join(f"{key}: {text}\n" for key, text in found))
    .map(lambda text: text.encode(errors="replace"))
    | damaged(st.just(b"broker:\n  url: amqp://localhost\ncycle: {max_wait_ms: 5}\nlog:\n"))
)
@example(b"broker: " + LAUGHS.encode() + b"}")
@example(b"? [a]\n: b")
@example(2 * (b"cycle: " + LAUGHS.encode() + b"}\n"))
@example(b"broker: " + LAUGHS.encode() + b"}\n? *i\n: x\n")
@example(b"broker: !!omap\n- ? [a]\n  : x\n")
def test_any_file(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    path.write_bytes(data)
    told = problems(path, [], {})
    assert all(one.startswith((str(path), "broker.url")) for one in told), told
    assert all(len(one) < 20_000 for one in told)
