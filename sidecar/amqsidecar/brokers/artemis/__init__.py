"""What links to Artemis share, whatever the wire: management, routes, token."""
