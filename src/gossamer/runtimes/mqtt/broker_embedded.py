"""The process of an embedded broker: ``python -m gossamer.runtimes.mqtt.broker_embedded PORT``.

It serves one machine, on the loopback interface, anyone who connects, and ends when its standard input does. So it does
not outlive whoever started it, however that one ended.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading

from amqtt.broker import Broker


def config(port: int) -> dict[str, object]:
    """Return the broker's configuration."""
    return {
        "listeners": {"default": {"type": "tcp", "bind": f"127.0.0.1:{port}"}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }


async def serve(port: int) -> None:
    """Serve until standard input ends."""
    broker = Broker(config(port))
    await broker.start()
    print("running", flush=True)
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=watch, daemon=True).start()
    await ended.wait()
    await broker.shutdown()


if __name__ == "__main__":
    logging.basicConfig(level=logging.ERROR)
    asyncio.run(serve(int(sys.argv[1])))
