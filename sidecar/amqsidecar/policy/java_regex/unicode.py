"""Unicode 13 as Java 17 has it; `tests/oracle/test_java_regex_oracle.py` writes the data."""

import zlib
from functools import cache
from importlib.resources import files


@cache
def _tables() -> dict[str, str]:
    packed = files("amqsidecar.policy.java_regex").joinpath("unicode13.zlib").read_bytes()
    return dict(line.split(" ", 1) for line in zlib.decompress(packed).decode().splitlines())


def table(name: str) -> str:
    """Return a table as the oracle printed it (see JavaRegexOracle.java)."""
    return _tables()[name]
