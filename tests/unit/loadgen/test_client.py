"""The load generator's HTTP client against a scripted server."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from octavo.errors import ConfigError
from octavo.loadgen.client import Connection, RemoteError, Target, Timing, parse_target, timed_completion

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


async def with_server(answers: Sequence[bytes], use: Callable[[Connection], Awaitable[None]]) -> int:
    """Run `use` against a server that gives answers[i] to its i-th request; returns how many connections there were."""
    connections = 0
    script = iter(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0]) if b"content-length" in head else 0
                await reader.readexactly(length)
                answer = next(script)
                for start in range(0, len(answer), 7):  # in pieces, so that nothing relies on whole reads
                    writer.write(answer[start : start + 7])
                    await writer.drain()
                if b"connection: close" in answer or b"content-length" not in answer and b"chunked" not in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    connection = Connection(Target("127.0.0.1", port, False, "", "key"))
    try:
        await use(connection)
    finally:
        connection.close()
        server.close()
        await server.wait_closed()
    return connections


def chunked(*parts: bytes) -> bytes:
    body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts)
    return HEAD + b"transfer-encoding: chunked\r\n\r\n" + body + b"0\r\n\r\n"


def sized(body: bytes, status: bytes = b"200 OK") -> bytes:
    return b"HTTP/1.1 " + status + b"\r\ncontent-length: %d\r\n\r\n" % len(body) + body


def test_events_survive_any_chunk_borders() -> None:
    async def use(connection: Connection) -> None:
        events = [event async for event in connection.stream_events("/x", {})]
        assert events == [b'{"a":1}', b'{"b":2}']

    asyncio.run(with_server([chunked(b'data: {"a"', b":1}\n", b'\ndata: {"b":2}\n\nda', b"ta: [DONE]\n\n")], use))


def test_connection_is_kept_for_the_next_request() -> None:
    async def use(connection: Connection) -> None:
        assert await connection.post_json("/x", {}) == {"n": 1}
        assert await connection.get_json("/y") == {"n": 2}

    assert asyncio.run(with_server([sized(b'{"n":1}'), sized(b'{"n":2}')], use)) == 1


def test_connection_closed_by_the_server_is_opened_again() -> None:
    async def use(connection: Connection) -> None:
        assert await connection.post_json("/x", {}) == {"n": 1}
        assert await connection.post_json("/x", {}) == {"n": 2}

    closing = b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"n":1}'
    assert asyncio.run(with_server([closing, sized(b'{"n":2}')], use)) == 2


def test_error_status_gives_the_servers_message() -> None:
    async def use(connection: Connection) -> None:
        with pytest.raises(RemoteError, match="status 429: queue full"):
            await connection.post_json("/x", {})

    asyncio.run(with_server([sized(b'{"error":{"message":"queue full"}}', b"429 Too Many Requests")], use))


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-hello\r\n\r\n",
        chunked(b"data: {}")[:-9].replace(HEAD, HEAD + b"connection: close\r\n"),
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    ],
)
def test_broken_answers_are_one_error(answer: bytes) -> None:
    async def use(connection: Connection) -> None:
        with pytest.raises(RemoteError):
            _ = [event async for event in connection.stream_events("/x", {})]

    asyncio.run(with_server([answer], use))


def test_timing_counts_text_and_usage() -> None:
    parts = [
        b'data: {"choices":[{"text":"a"}]}\n\n',
        b'data: {"choices":[{"text":"b","finish_reason":"length"}]}\n\n',
        b'data: {"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
    ]
    results: list[Timing] = []

    async def use(connection: Connection) -> None:
        results.append(await timed_completion(connection, "/x", {}, 5))

    asyncio.run(with_server([chunked(*parts)], use))
    (timing,) = results
    assert (timing.text, timing.prompt_tokens, timing.output_tokens, timing.error) == ("ab", 5, 2, None)
    assert len(timing.gaps_s) == 1 and timing.tpot_s is not None and timing.e2e_s >= timing.ttft_s


def test_timing_reads_chat_deltas_and_notes_error_events() -> None:
    results: list[Timing] = []

    async def use(connection: Connection) -> None:
        results.append(await timed_completion(connection, "/x", {}, 1))
        results.append(await timed_completion(connection, "/x", {}, 1))

    good = chunked(
        b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"hi"}}]}\n\n',
    )
    bad = chunked(b'data: {"error":{"message":"shutting down"}}\n\n')
    asyncio.run(with_server([good, bad], use))
    assert (results[0].text, len(results[0].token_times)) == ("hi", 1)
    assert results[1].error == "shutting down"


def test_unreachable_server_is_one_error() -> None:
    async def scenario() -> None:
        for host in ("127.0.0.1", "localhost"):
            with pytest.raises(RemoteError, match=rf"{host}:1: connection refused; is a server running there\?$"):
                await Connection(Target(host, 1, False, "")).get_json("/x")

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("http://h:1", Target("h", 1, False, "")),
        ("h:1", Target("h", 1, False, "")),
        ("https://h/v1", Target("h", 443, True, "")),
        ("http://h/proxy/v1/", Target("h", 80, False, "/proxy")),
        ("http://[::1]:8000", Target("::1", 8000, False, "")),
    ],
)
def test_urls_are_understood(url: str, target: Target) -> None:
    assert parse_target(url) == target


@pytest.mark.parametrize("url", ["", "ftp://h", "http://", "http://h:port", "http://h:99999"])
def test_strange_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url"):
        parse_target(url)
