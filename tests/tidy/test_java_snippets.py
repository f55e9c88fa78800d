"""The handler that the guide of the Java library shows is the one that runs in a real Spring."""

import re

from support.maven import JAVA_SOURCES, NOTES_LIBRARY


def stripped(text: str) -> str:
    return "\n".join(line.strip() for line in text.splitlines())


def test_the_handler_of_the_guide_is_the_one_that_is_tested() -> None:
    guide = (NOTES_LIBRARY / "README.md").read_text(encoding="utf-8").partition("## Spring")[2]
    found = re.search(r"Log log = .*?\}\);", stripped(guide), re.DOTALL)
    assert found is not None
    source = (JAVA_SOURCES / "SpringOrders.java").read_text(encoding="utf-8")
    assert found[0] in stripped(source)
