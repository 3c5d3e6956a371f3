"""How the engine becomes machine code: all that relies on names that numba does not publish is in this room."""

import sys

if "scipy" not in sys.modules:
    sys.modules["scipy"] = None  # type: ignore[assignment] # numba would import it for its version alone: 8 ms
    try:
        import numba  # noqa: F401
    finally:
        del sys.modules["scipy"]
