"""How a request goes over the wire, and how a connection is read."""
