"""What the simulator is configured from: TWIN.yaml, defaults.yaml, a server's command line."""
