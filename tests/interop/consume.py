"""Follows the relay and prints each event with the positions to resume from; ends after EVENTS events."""
import asyncio
import json
import os
import threading

from aep_sdk import aio, subscribe

url = os.environ["RELAY_URL"]
options = {
    "filter": json.loads(os.environ.get("FILTER", "{}")),
    "token": os.environ.get("RELAY_TOKEN"),
    "from_": json.loads(os.environ.get("FROM", "null")),
    "capture": os.environ.get("CAPTURE"),
    "on_comment": lambda text: show({"comment": text}) if not text.startswith(("open", "ping")) else None,
    # Only a relay that is being started again may be away for a moment.
    "on_error": lambda error: show({"error": str(error)}) if error.kind != "network" else None,
    "backoff_initial_ms": 50,
}
wanted = int(os.environ["EVENTS"])


def show(line):
    print(json.dumps(line), flush=True)


def blocking():
    done = threading.Event()
    seen = 0
    ready = threading.Event()

    def on_event(event):
        nonlocal seen
        ready.wait()
        show({"event": event, "positions": subscription.positions()})
        seen += 1
        if seen >= wanted:
            done.set()

    subscription = subscribe(url, on_event, **options)
    ready.set()
    done.wait()
    subscription.close()


async def asynchronous(live):
    subscription = await aio.subscribe(url, live=live, **options)
    seen = 0
    async for event in subscription:
        show({"event": event, "positions": subscription.positions()})
        seen += 1
        if live and seen >= wanted:
            break
    subscription.close()


if os.environ["FLAVOUR"] == "blocking":
    blocking()
else:
    asyncio.run(asynchronous(live=os.environ["FLAVOUR"] == "asyncio"))
