"""A run of `make kubernetes` that was ended goes on where it was, on the same working tree."""

from pathlib import Path

from kubernetes.progress import Progress


def test_what_passed_is_kept_for_the_same_tree(tmp_path: Path) -> None:
    file = tmp_path / "progress.json"
    Progress(file, "a").add("test_one", ["1", "2"])
    Progress(file, "a").add("test_two", [])
    assert Progress(file, "a").passed == {"test_one": ["1", "2"], "test_two": []}
    assert Progress(file, "b").passed == {}


def test_a_run_that_came_to_its_end_is_forgotten(tmp_path: Path) -> None:
    progress = Progress(tmp_path / "progress.json", "a")
    progress.forget()
    progress.add("test_one", [])
    progress.forget()
    assert Progress(tmp_path / "progress.json", "a").passed == {}
