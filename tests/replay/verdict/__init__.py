"""Tests of replay/verdict."""
