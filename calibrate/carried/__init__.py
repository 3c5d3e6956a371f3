"""``calibrate --from``: a server's twin made from another server's fitted twin and few requests of its own."""
