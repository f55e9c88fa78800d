"""Hypothesis strategies for encoded AMQP messages."""

from hypothesis import strategies as st
from proton import Message, byte, int32, symbol, timestamp, ubyte, uint, ulong

texts = st.text(max_size=300)
names = st.text(st.characters(codec="ascii", exclude_categories=["Cc"]), min_size=1, max_size=40)
# Why: Hypothesis finds the names that brokers and we reserve; an application's own begin otherwise.
own_names = names.map("own.{}".format)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    texts,
    st.binary(max_size=300),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1).map(int32),
    st.integers(-128, 127).map(byte),
    st.integers(0, 255).map(ubyte),
    st.integers(0, 2**32 - 1).map(uint),
    st.integers(0, 2**64 - 1).map(ulong),
    st.integers(0, 2**62).map(timestamp),
    st.floats(allow_nan=False),
    st.uuids(),
    names.map(symbol),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(names, inner, max_size=6),
    max_leaves=20,
)


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """Return any message that Proton can encode."""
    message = Message(
        body=draw(values),
        inferred=draw(st.booleans()),
        address=draw(st.none() | names),
        reply_to=draw(st.none() | names),
        group_id=draw(st.none() | names),
        properties=draw(st.none() | st.dictionaries(own_names, scalars, max_size=20)),
        annotations=draw(st.none() | st.dictionaries(names.map(symbol), values, max_size=5)),
        instructions=draw(st.none() | st.dictionaries(names.map(symbol), values, max_size=3)),
    )
    message.durable = draw(st.booleans())
    message.priority = draw(st.integers(0, 9))
    message.ttl = draw(st.sampled_from([0, 1, 3600]))
    message.delivery_count = draw(st.integers(0, 9))
    message.id = draw(
        st.one_of(st.none(), texts, st.uuids(), st.integers(0, 2**64 - 1), st.binary(max_size=40))
    )
    message.correlation_id = draw(st.one_of(st.none(), texts, st.uuids()))
    message.content_type = symbol(draw(names))
    return bytes(message.encode())
