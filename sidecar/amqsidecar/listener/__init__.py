"""A proxy in front of a broker's acceptor that saves messages consumers give up (`listener.md`)."""
