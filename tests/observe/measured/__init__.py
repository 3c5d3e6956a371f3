"""Tests of observe/measured."""
