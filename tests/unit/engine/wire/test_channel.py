"""Channel: private, bounded, two-way; junk is dropped, messages survive unchanged."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator

import msgspec
import pytest
from tests.configs import resolved_config

from octavo.config.engine import EngineConfig
from octavo.engine.wire import frames
from octavo.engine.wire.channel import CoreChannel, decode_start, encode_start
from octavo.engine.wire.frames import ChannelError, FrameReader, FrameWriter
from octavo.engine.wire.messages import (
    AbortChoices,
    AddRequest,
    CoreReady,
    CoreStats,
    FromCore,
    Shutdown,
    StartCore,
    StepOutputs,
    TokenOutput,
)
from octavo.engine.wire.parent_channel import ParentChannel
from octavo.request import Request
from octavo.sampling_params import SamplingParams
from octavo.step import TokenLogprobs

REQUEST = Request(
    request_id="r",
    prompt_token_ids=[1, 2],
    sampling=SamplingParams(logit_bias={5: 1.5}, stop=["x"], seed=-1),
    seed=2**63 - 1,
    max_tokens=3,
    stop_token_ids=[2],
    arrival_s=1.5,
)
STEP = StepOutputs(
    [TokenOutput("r", 0, [7], [TokenLogprobs(7, -0.25, 1, [7], [-0.25])], finish_reason="stop")], ["r"], CoreStats(1), 1.0
)


def test_messages_arrive_unchanged_in_both_directions() -> None:
    async def test() -> FromCore:
        parent = ParentChannel()
        core = CoreChannel(parent.core_end)
        try:
            parent.send(AddRequest(REQUEST))
            parent.send(AbortChoices([("r", -1)]))
            received = await asyncio.to_thread(core.receive, 5.0)
            while len(received) < 2:
                received += await asyncio.to_thread(core.receive, 5.0)
            assert received == [AddRequest(REQUEST), AbortChoices([("r", -1)])]
            assert core.receive(0.0) == []
            core.send(STEP)
            return await asyncio.wait_for(parent.receive(), 5.0)
        finally:
            core.close()
            parent.close()

    assert asyncio.run(test()) == STEP


def test_the_start_message_carries_the_whole_configuration() -> None:
    start = StartCore(5, 1, "info", EngineConfig())
    assert decode_start(encode_start(start)) == start


def test_a_message_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "MAX_MESSAGE_BYTES", 64)

    async def test() -> None:
        parent = ParentChannel()
        try:
            with pytest.raises(ChannelError, match="larger than the limit of 64"):
                parent.send(AbortChoices([("r" * 100, 0)]))
        finally:
            parent.close()

    asyncio.run(test())


def test_undecodable_messages_from_the_core_are_skipped() -> None:
    async def test() -> FromCore:
        parent = ParentChannel()
        core = CoreChannel(parent.core_end)
        try:
            core._socket.send(b"\0\0\0\4junk")
            core.send(CoreReady(resolved_config(), b"v", ["line"], ()))
            return await asyncio.wait_for(parent.receive(), 5.0)
        finally:
            core.close()
            parent.close()

    assert asyncio.run(test()) == CoreReady(resolved_config(), b"v", ["line"], ())


def test_messages_are_delivered_from_the_event_loop_and_what_the_taker_raises_ends_it() -> None:
    async def test() -> None:
        parent = ParentChannel()
        core = CoreChannel(parent.core_end)
        taken: list[FromCore] = []

        def take(message: FromCore) -> None:
            taken.append(message)
            if len(taken) == 3:
                raise RuntimeError("enough")

        try:
            core.send(STEP)
            assert await parent.receive() == STEP
            core.send(STEP)
            await asyncio.sleep(0.05)  # one that nobody waits for
            delivery = asyncio.create_task(parent.deliver(take))
            core.send(STEP)
            core.send(STEP)
            with pytest.raises(RuntimeError, match="enough"):
                await asyncio.wait_for(delivery, 5.0)
            assert taken == [STEP] * 3
        finally:
            core.close()
            parent.close()

    asyncio.run(test())


def test_messages_larger_than_the_socket_arrive_whole_and_nobody_waits() -> None:
    long = AbortChoices([("r" * 1_000_000, -1)] * 3)
    large = StepOutputs([TokenOutput("t" * 2_000_000, 0, [1])], [], CoreStats(), 1.0)

    async def test() -> None:
        parent = ParentChannel()
        core = CoreChannel(parent.core_end)
        try:
            parent.send(long)
            parent.send(AbortChoices([("after", 0)]))
            received = await asyncio.to_thread(core.receive, 5.0)
            while len(received) < 2:
                received += await asyncio.to_thread(core.receive, 5.0)
            assert received == [long, AbortChoices([("after", 0)])]
            core.send(large)
            core.send(STEP)
            closing = asyncio.create_task(asyncio.to_thread(core.close))  # what is left leaves before it closes
            assert [await parent.receive(), await parent.receive()] == [large, STEP]
            await closing
        finally:
            parent.close()

    asyncio.run(test())


def test_a_core_whose_parent_has_closed_is_told_to_end() -> None:
    async def test() -> None:
        parent = ParentChannel()
        core = CoreChannel(parent.core_end.dup())
        parent.send(AbortChoices([("r", 0)]))
        parent.close()
        assert core.receive(1.0) == [AbortChoices([("r", 0)]), Shutdown()]
        with pytest.raises(ChannelError, match="gone"):
            core.send(STEP)
        core.close()

    asyncio.run(test())


def test_a_side_that_never_reads_is_an_error_in_the_end(pair: tuple[socket.socket, socket.socket]) -> None:
    writer = FrameWriter(pair[0])
    with pytest.raises(ChannelError, match="does not read"):
        for _ in range(1000):
            writer.send(AbortChoices([("r" * 1000, 0)]))


def test_messages_are_cut_out_wherever_the_reads_end_and_garbage_between_them_is_dropped(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    stream = b"\0\0\0\4\xa3abc" + b"\0\0\0\0" + b"\0\0\0\3\xa2de"
    for size in range(1, len(stream) + 1):
        reader = FrameReader(pair[1], msgspec.msgpack.Decoder(str))
        messages: list[str] = []
        for start in range(0, len(stream), size):
            pair[0].send(stream[start : start + size])
            messages += reader.read() or ()
        assert messages == ["abc", "de"]


def test_a_frame_beyond_the_limit_is_not_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    pair[0].send(b"\x7f\0\0\0xyz")
    with pytest.raises(ChannelError, match="larger than the limit"):
        list(FrameReader(pair[1], msgspec.msgpack.Decoder(str)).read() or ())


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[socket.socket, socket.socket]]:
    monkeypatch.setattr(frames, "MAX_UNSENT_BYTES", 100_000)
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        far.setblocking(False)
        yield near, far
