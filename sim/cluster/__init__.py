"""Many engines behind a gateway: admission, the gateway's queue, routing, and the order of events at one time."""
