"""Commands of the SDK's control clients against its control target, over the relay."""
import asyncio
import os
import threading

from aep_sdk import ControlClient, ControlTarget, Emitter, NackError, aio

URL = os.environ["RELAY_URL"]
TOKEN = os.environ.get("RELAY_TOKEN")


class Target:
    """A connection that claims a session and answers commands; it may lose some before it answers."""

    def __init__(self, session, accepts, lose=0):
        self.session, self.accepts, self.lose = session, accepts, lose
        self.executed = []

    async def start(self):
        self.duplex = await aio.open_duplex(URL, token=TOKEN)
        await self.duplex.send_json({
            "type": "hello", "versions": ["0.1"], "role": "emitter",
            "identity": {"agent": "target", "instance": "target-1"},
            "capabilities": {"control": {"accepts": self.accepts}},
        })
        hello = await self.duplex.recv_json()
        assert hello["type"] == "hello" and hello["versions"] == ["0.1"] and "roster" in hello["capabilities"], hello
        self.outbox = []
        self.emitter = Emitter("target", "host-1", self.outbox.append).session(self.session)
        self.target = ControlTarget(self.emitter, self.accepts)
        self.emitter.emit("session.started", {})
        await self.flush()
        await self.duplex.send_json({"type": "ping", "t": 7})
        assert await self.duplex.recv_json() == {"type": "pong", "t": 7}
        self.task = asyncio.ensure_future(self.run())

    async def flush(self):
        while self.outbox:
            await self.duplex.send_json(self.outbox.pop(0))

    async def run(self):
        while (message := await self.duplex.recv_json()) is not None:
            if self.lose:
                self.lose -= 1
                continue
            self.target.handle(message, self.executed.append)
            await self.flush()

    async def stop(self):
        self.task.cancel()
        await self.duplex.close()


async def nacked(sending, reason, text):
    try:
        await sending
    except NackError as nack:
        assert nack.reason == reason and text in (nack.detail or ""), nack
        assert not nack.synthesized, nack
    else:
        raise SystemExit(f"not refused as {reason}")


async def main():
    client = aio.ControlClient(URL, agent="controller", host="host-2", token=TOKEN)
    await client.connect()
    if TOKEN is None:
        await nacked(client.send("control.cancel", "s1"), "unauthorized", "")
        await client.close()
        print("watch-only")
        return

    await nacked(client.send("control.cancel", "s1"), "invalid", "no-route")
    assert await client.roster() == []

    target = Target("s1", ["control.cancel", "control.pause"])
    await target.start()
    roster = await client.roster()
    assert roster == [{"session": "s1", "agent": "target", "instance": "target-1",
                       "control": {"accepts": ["control.cancel", "control.pause"]}}], roster

    ack = await client.send("control.cancel", "s1", data={"reason": "tests"})
    assert ack["type"] == "control.accepted" and ack["cause"] == target.executed[0]["id"], ack
    assert target.executed[0]["data"] == {"reason": "tests"}
    await nacked(client.send("control.resume", "s1"), "unsupported", "")
    assert len(target.executed) == 1

    # Commands that got lost behind the relay are sent again; each is executed once.
    target.lose = 2
    ack = await client.send("control.pause", "s1", ack_window_ms=300, retries=10)
    assert ack["cause"] == target.executed[1]["id"] and len(target.executed) == 2, target.executed

    # Many at once, each with its own answer.
    acks = await asyncio.gather(*(client.send("control.cancel", "s1", data={"n": n}) for n in range(50)))
    assert len({ack["cause"] for ack in acks}) == 50 and len(target.executed) == 52

    # The blocking client says the same.
    def blocking():
        other = ControlClient(URL, agent="controller", host="host-3", token=TOKEN)
        other.connect()
        assert other.send("control.cancel", "s1")["type"] == "control.accepted"
        assert [entry["session"] for entry in other.roster()] == ["s1"]
        other.close()

    await asyncio.to_thread(blocking)

    second = Target("s1", ["control.cancel"])
    await second.start()
    await nacked(client.send("control.cancel", "s1"), "invalid", "ambiguous")
    await second.stop()
    # Its claim ends with its connection.
    while len(await client.roster()) > 1:
        pass
    assert (await client.send("control.cancel", "s1"))["type"] == "control.accepted"
    assert len(second.executed) == 0 and len(target.executed) == 54

    await target.stop()
    while await client.roster():
        pass
    await nacked(client.send("control.cancel", "s1"), "invalid", "no-route")
    await client.close()
    print("controlled")


asyncio.run(asyncio.wait_for(main(), 50))
