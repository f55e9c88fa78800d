"""A seal fits the one copy that it was made for, by one of the keys."""

from hypothesis import given
from hypothesis import strategies as st

from amqsidecar.formats.interception_seal import SEALED_PROPERTIES, open_seal, seal

KEYS = st.binary(min_size=32, max_size=64)
NUMBERS = st.from_regex(r"[0-9]{1,19}-[0-9]{1,13}", fullmatch=True)
PROPERTIES = st.dictionaries(st.sampled_from(SEALED_PROPERTIES), st.text(max_size=20))
DIGESTS = st.binary(min_size=32, max_size=32)


@given(KEYS, KEYS, NUMBERS, PROPERTIES, DIGESTS)
def test_any_of_the_keys_opens_it(
    key: bytes, other: bytes, number: str, properties: dict[str, str], digest: bytes
) -> None:
    text = seal(key, number, properties, digest)
    assert open_seal([other, key], text, properties, lambda _: digest) == number
    if other != key:
        assert open_seal([other], text, properties, lambda _: digest) is None


@given(KEYS, NUMBERS, PROPERTIES, PROPERTIES, DIGESTS, DIGESTS, NUMBERS)
def test_whatever_is_changed_it_fits_no_more(
    key: bytes,
    number: str,
    properties: dict[str, str],
    changed: dict[str, str],
    digest: bytes,
    another: bytes,
    other_number: str,
) -> None:
    text = seal(key, number, properties, digest)
    if changed != properties:
        assert open_seal([key], text, changed, lambda _: digest) is None
    if another != digest:
        assert open_seal([key], text, properties, lambda _: another) is None
    if other_number != number:
        forged = text.replace(number, other_number, 1)
        assert open_seal([key], forged, properties, lambda _: digest) is None
    assert open_seal([key], text, properties, lambda _: None) is None


@given(KEYS, st.text(), PROPERTIES, DIGESTS)
def test_no_other_text_opens(
    key: bytes, text: str, properties: dict[str, str], digest: bytes
) -> None:
    assert open_seal([key], text, properties, lambda _: digest) is None
