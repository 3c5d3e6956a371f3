"""What happens to a request before it is routed: admission, and the queue that holds it while the fleet is full."""
