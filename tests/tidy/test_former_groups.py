"""Groups are read with their former ones: nothing else asks a store for the keys of deaths."""

from support.callers import calls


def test_only_one_module_reads_groups_as_they_were_counted() -> None:
    """A schedule of limited rights hands them on."""
    readers = {"operations/failures/former_groups.py", "http/seen_schedule.py"}
    assert calls("failure_groups") == readers
