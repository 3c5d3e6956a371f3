"""A TWIN.yaml to start from: of a server's command line or a trace's header."""
