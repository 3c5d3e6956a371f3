"""Tests of observe/senders."""
