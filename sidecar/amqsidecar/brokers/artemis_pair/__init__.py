"""One Artemis over two wires at once: each message uses the wire that keeps it whole."""
