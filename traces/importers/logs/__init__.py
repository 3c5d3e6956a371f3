"""Public logs of requests: when they came and how long they were; no server of one's own answered them."""
