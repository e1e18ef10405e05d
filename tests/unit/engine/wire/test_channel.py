"""Channel: private, bounded, two-way; junk is dropped, messages survive unchanged."""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path

import pytest

from octavo.config.engine import EngineConfig
from octavo.engine.wire import channel as channel_module
from octavo.engine.wire.channel import ChannelError, CoreChannel, decode_start, encode_start
from octavo.engine.wire.messages import (
    AbortChoices,
    AddRequest,
    CoreReady,
    CoreStats,
    FromCore,
    StartCore,
    StepOutputs,
    TokenOutput,
)
from octavo.engine.wire.parent_channel import ParentChannel
from octavo.errors import ConfigError
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
    [TokenOutput("r", 0, [7], [TokenLogprobs(7, -0.25, 1, [7], [-0.25])], finish_reason="stop")], ["r"], CoreStats(1), 1.0, 2.0
)


def test_messages_arrive_unchanged_in_both_directions() -> None:
    async def test() -> FromCore:
        parent = ParentChannel()
        core = CoreChannel(parent.address)
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
    start = StartCore("ipc://x", 1, "info", EngineConfig())
    assert decode_start(encode_start(start)) == start


def test_only_this_user_can_reach_the_socket_and_it_is_removed() -> None:
    async def test() -> Path:
        parent = ParentChannel()
        folder = Path(parent.address.removeprefix("ipc://")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        parent.close()
        parent.close()
        return folder

    assert not asyncio.run(test()).exists()


def test_a_message_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_module, "MAX_MESSAGE_BYTES", 64)

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
        core = CoreChannel(parent.address)
        try:
            core._socket.send(b"junk")
            core.send(CoreReady(EngineConfig(), b"v", ["line"]))
            return await asyncio.wait_for(parent.receive(), 5.0)
        finally:
            core.close()
            parent.close()

    assert asyncio.run(test()) == CoreReady(EngineConfig(), b"v", ["line"])


@pytest.mark.parametrize("folder", ["missing", "x" * 120])
def test_a_temporary_folder_that_cannot_hold_a_socket_is_a_mistake_of_the_user(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if folder != "missing":
        (tmp_path / folder).mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / folder))

    async def test() -> None:
        with pytest.raises(ConfigError, match="set TMPDIR"):
            ParentChannel()

    asyncio.run(test())
    assert not list((tmp_path / folder).glob("*"))
