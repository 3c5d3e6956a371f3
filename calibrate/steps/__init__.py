"""A twin's steps learned from the server's own log of them."""
