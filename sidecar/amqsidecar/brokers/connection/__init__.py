"""The parts that every connection shares: sockets, addresses, limits."""
