"""Tests of observe/judged."""
