"""What every connection shares: sockets, addresses, limits."""
