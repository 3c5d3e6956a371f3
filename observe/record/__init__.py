"""Putting finished requests on record while the run goes on."""
