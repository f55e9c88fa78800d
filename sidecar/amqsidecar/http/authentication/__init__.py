"""Who a caller is: passwords, OpenID Connect, a proxy in front, sessions."""
