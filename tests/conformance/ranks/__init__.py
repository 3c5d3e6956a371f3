"""Schedulers of data-parallel ranks in step, ``--prefill-schedule-interval`` included."""
