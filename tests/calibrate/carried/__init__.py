"""A server's twin from another server's and few requests."""
