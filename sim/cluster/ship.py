"""``python -m sim.cluster.ship``: compile everything once, for every x86-64 of the last ten years, into the package.

It is run when a wheel or an image is built, on the package that goes into it; see ``sim/jit/shipped.py``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory


def main() -> int:
    """Compile, pack, print the folder; on a machine that could not run the code, print that and change nothing."""
    with TemporaryDirectory() as cache:
        # read when numba is imported, as are the two below
        os.environ |= {"NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": "", "VTWIN_CACHE_DIR": cache}
        from sim.cluster.cluster_ready import compile_everything
        from sim.jit.shipped import CPU, SHIPPED, ship, this_processor_runs_it

        if not this_processor_runs_it():
            sys.stderr.write(f"compiled code: none is shipped, as this machine is no {CPU}\n")
            return 0
        compile_everything()
        for folder in Path(cache).iterdir():
            ship(folder, SHIPPED / folder.name)
            for path in (SHIPPED / folder.name).rglob("*"):
                path.chmod(
                    0o755 if path.is_dir() else 0o644
                )  # the cache is its user's alone, this is everybody's
            sys.stderr.write(f"compiled code: {SHIPPED / folder.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
