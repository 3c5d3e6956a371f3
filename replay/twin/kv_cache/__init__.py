"""What a server's KV cache is: groups of layers that keep alike, and a second tier."""
