"""Messages are known by two hashes of their ids."""

import numpy as np
import pyarrow

from amqsidecar.pipeline.recovery.steps import hashed


def numbers(texts: list[str]) -> list[tuple[int, int]]:
    column = pyarrow.array(texts)
    first, second = hashed(column, np.arange(len(texts)))
    return list(zip(first.tolist(), second.tolist(), strict=True))


def test_texts_that_differ_have_other_numbers() -> None:
    texts = [f"9f2c41d07be85a36-{number:012d}" for number in range(20_000)]
    texts += [f"{number}" for number in range(20_000)]
    texts += ["\0" * number for number in range(1, 40)]
    found = numbers(texts)
    assert len({one for one, _ in found}) == len({one for _, one in found}) == len(texts)


def test_a_number_depends_on_its_text_only() -> None:
    alone = [numbers([text])[0] for text in ("a", "bcdefghi", "jklmnopqr")]
    assert numbers(["x", "a", "bcdefghi", "jklmnopqr"])[1:] == alone
    column = pyarrow.array(["x", "yy", "a", None, "bcdefghi"]).slice(2).fill_null("")
    first, _ = hashed(column, np.array([0, 2]))
    assert first.tolist() == [alone[0][0], alone[1][0]]


def test_numbers_stay_the_same_in_later_versions() -> None:
    """They may be stored."""
    assert numbers(["9f2c41d07be85a36-000000000001"]) == [
        (-6675485502017300049, 1269763084554207941)
    ]
