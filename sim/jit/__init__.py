"""How the engine becomes machine code, and how it is called; numba is imported where something is compiled."""
