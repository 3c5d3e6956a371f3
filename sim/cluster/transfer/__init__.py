"""Prefill and decode on different instances: when, and how the KV gets from one to the other."""
