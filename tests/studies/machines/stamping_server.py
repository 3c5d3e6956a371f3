"""The server of known times (``observe.selfcheck``) at a given address: ``python -m … ADDRESS`` prints its port.

Its log has when each request's first token was due, by this machine's clock: ``first_us`` after the request had come.
"""

from __future__ import annotations

import asyncio
import sys

from observe.selfcheck.reference_server import ReferenceServer, Speaking


async def serve(address: str) -> None:
    """Serve until killed."""
    server = ReferenceServer()
    listener = await asyncio.get_running_loop().create_server(lambda: Speaking(server), address, 0)
    sys.stdout.write(f"port {listener.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
