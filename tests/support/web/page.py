"""What tests read in a page: lxml answers XPath with a union of types, these with one."""

from lxml import etree


def elements(within: etree._Element, path: str) -> list[etree._Element]:
    """Return the elements that an XPath names, in order."""
    found = within.xpath(path)
    assert isinstance(found, list)
    named = []
    for one in found:
        assert isinstance(one, etree._Element)
        named.append(one)
    return named


def strings(within: etree._Element, path: str) -> list[str]:
    """Return the attributes or texts that an XPath names, in order."""
    found = within.xpath(path)
    assert isinstance(found, list)
    named = []
    for one in found:
        assert isinstance(one, str)
        named.append(one)
    return named


def text_of(element: etree._Element) -> str:
    """Return all text in an element."""
    return str(element.xpath("string()"))
