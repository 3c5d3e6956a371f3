"""Tests of loads that are sent from several machines."""
