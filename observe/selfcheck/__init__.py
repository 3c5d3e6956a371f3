"""The load generator against a server whose response times are known: ``vtwin selfcheck``."""
