"""The Core protocol of Apache Artemis as values and bytes: no IO, and nothing of the sidecar.

`framing` cuts a stream into packets, `packets` holds one class for each packet, `message` takes
messages apart and edits them, `primitives` are the field types. Everything that the bytes of a
peer can make wrong raises `CoreProtocolError`.

Described in sidecar/internals/core-protocol.md.
"""
