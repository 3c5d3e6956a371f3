"""How the engine becomes machine code: all that relies on names that numba does not publish is in this room."""
