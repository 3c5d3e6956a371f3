"""The load generators beside each other: one load on one server of known times; see ``__main__``."""
