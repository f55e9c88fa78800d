"""Numbers of schemas in both stores: they only grow, and no number means two schemas."""

from amqsidecar.errors import SchemaMismatch

FIRST = 101
"""The first number. Development versions gave 1 to 12 to one line of schemas, and 1 to 3 again to
the next line, which today's schemas continue."""

LAST_READER = "aa6563da"
"""The last commit whose program reads, migrates and empties each store of the first line."""


def schema_number(noted: int, *, has_discarded: bool, place: str) -> int:
    """Return the number of a store's schema, at least `FIRST`.

    Args:
        noted: the number in the store, perhaps of a development version.
        has_discarded: whether the store has a table `discarded`. Of the schemas with a number up to
            3, only the second line's have it.
        place: the store, as errors name it.

    Raises:
        SchemaMismatch: a program of the first line wrote the store.
    """
    number = noted + FIRST - 1 if has_discarded and 1 <= noted <= 3 else noted
    if number < FIRST:
        raise SchemaMismatch(
            f"{place} has schema version {number} of an early development version, which this "
            f"amqsidecar can't migrate: run the program of commit {LAST_READER} until `amqsidecar "
            "status` says `messages 0`, then move the store away and start this one"
        )
    return number
