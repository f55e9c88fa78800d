"""Groups are read with their former ones: nothing else asks a store for the keys of deaths."""

from support.callers import calls


def test_only_one_module_reads_groups_as_they_were_counted() -> None:
    assert calls("failure_groups") == {"operations/failures/former_groups.py"}
