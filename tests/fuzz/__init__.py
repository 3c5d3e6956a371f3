"""Fuzzing: whatever bytes come in, a reader ends in time with a value or with one line of its own.

``TARGETS`` of every ``tests/fuzz/*_targets.py`` are run: a few fixed seeds in the suite, as long as one likes with
``make fuzz``. What once failed lies in ``tests/fuzz/corpus/<target>/`` and is read again by the suite.
"""
