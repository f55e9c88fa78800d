"""A proxy in front of a broker's acceptor that saves what consumers give up (`listener.md`)."""
