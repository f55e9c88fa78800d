"""One variable, `PROOF`, makes tests go on at length."""

import pytest

from support.tier import VARIABLE, at_length


@pytest.mark.parametrize(("value", "count"), [("1", 300), ("", 30)])
def test_the_variable_decides(monkeypatch: pytest.MonkeyPatch, value: str, count: int) -> None:
    monkeypatch.setenv(VARIABLE, value)
    assert at_length(300, otherwise=30) == count
