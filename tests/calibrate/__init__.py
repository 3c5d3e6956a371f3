"""Tests of the room calibrate."""
