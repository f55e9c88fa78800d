"""One Artemis over two wires at once: each message goes over the one that keeps it whole."""
