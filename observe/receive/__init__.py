"""``vtwin receive``: spans that servers and agents send over OTLP/HTTP, as measured traces that grow with them."""
