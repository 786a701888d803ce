"""Emits by the SDK's HTTP sink and prints each event as it was sent."""
import json
import os

from aep_sdk import Emitter, http_sink


def fail(error):
    raise SystemExit(f"refused: {error}")


sink = http_sink(os.environ["RELAY_URL"], os.environ.get("RELAY_TOKEN"), fail)
emitter = Emitter("sdk-agent", "host-1", sink, epoch=3, capture="full")
emitted = [emitter.emit("agent.presence", {"status": "online"})]
session = emitter.session("sdk:session/ä \"1\"")
emitted += [
    session.emit("session.started", {"client": {"name": "sdk-agent"}}),
    session.emit("run.started", run="r1", severity="notice", extensions={"tenant": "a", "attempt": 2, "dry": True}),
    session.emit("tool.started", {"name": "shell", "ratio": 0.1, "big": 2**70, "text": "line\nbreak – 😀"},
                 run="r1", step="s1", subject="ls", cause="because",
                 traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
    session.emit("session.ended", {}),
]
session.redeliver(emitted[-1])
for event in emitted:
    print(json.dumps(event))
