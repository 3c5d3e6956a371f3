"""What is sent and recorded beside the load: light probes, gauges of the server and its machine, the server's steps."""
