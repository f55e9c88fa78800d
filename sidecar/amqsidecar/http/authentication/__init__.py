"""Authentication: passwords, OpenID Connect, trusted proxies, sessions."""
