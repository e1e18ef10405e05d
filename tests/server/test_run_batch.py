"""Batch files: the app's own answers without a socket, one line each; a run that was killed goes on as if it had not been."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from tests.fakes_server import ANSWER, FakeEngine
from tests.served import SRC

from octavo import LLM
from octavo.cli.main import run
from octavo.config.server import ServerConfig
from octavo.errors import ConfigError, EngineDeadError, OverloadedError
from octavo.server.app import create_app
from octavo.server.batch import command, requests, runner
from octavo.server.batch.answers import AnswerFile, AnswerStream, Done, answer_line
from octavo.server.batch.requests import URLS
from octavo.server.batch.runner import Runner, Tally, plan

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


def line(custom_id: str, url: str = COMPLETIONS, **body: Any) -> str:
    if url == COMPLETIONS:
        body = {"prompt": "x", **body}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": url, "body": body})


class Batch:
    """Runs over the app of a fake engine, into one file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.engine: FakeEngine

    def run(self, lines: list[str], at_once: int = 4, prepare: Any = None) -> Tally:
        async def work() -> Tally:
            self.engine = FakeEngine()
            if prepare is not None:
                prepare(self.engine)
            app: FastAPI = create_app(self.engine, ServerConfig(), model_names=["m"])
            source = BytesIO("\n".join(lines).encode("utf-8", "surrogateescape"))
            with AnswerFile(self.path) as answers:
                job = Runner(app, source, answers, URLS, lambda _: None)
                await job.run(plan(source, answers.recover()), at_once)
            return job.tally

        return asyncio.run(work())

    def answers(self) -> dict[str | None, dict[str, Any]]:
        found = [json.loads(text) for text in self.path.read_text().splitlines()]
        assert all(set(answer) == {"id", "custom_id", "response", "error"} for answer in found)
        assert len({answer["id"] for answer in found}) == len(found)
        return {answer["custom_id"]: answer for answer in found}


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    return Batch(tmp_path / "out.jsonl")


def test_each_request_gets_the_answer_of_its_route(batch: Batch) -> None:
    messages = [{"role": "user", "content": "hi"}]
    others = [line("e", "/v1/embeddings", input="x"), line("r", "/v1/responses", input="x")]
    tally = batch.run([line("a"), "", line("b", CHAT, messages=messages, max_tokens=2), line("c", max_tokens=-1), *others])
    found = batch.answers()
    assert (tally.answered, tally.failed) == (5, 1)
    assert len(found["e"]["response"]["body"]["data"]) == 1 and found["r"]["response"]["body"]["object"] == "response"
    assert found["a"]["response"]["status_code"] == 200 and found["a"]["error"] is None
    assert ANSWER.startswith(found["a"]["response"]["body"]["choices"][0]["text"])
    assert found["b"]["response"]["body"]["choices"][0]["message"]["content"] == ANSWER[:2]
    assert found["c"]["response"]["status_code"] == 400
    assert found["c"]["response"]["body"]["error"]["param"] == "max_tokens" and found["c"]["response"]["request_id"]


@pytest.mark.parametrize(
    ("broken", "word"),
    [
        ("nonsense", "not valid JSON"),
        ('{"custom_id": "x", "body": NaN}', "not valid JSON"),
        ("[1]", "must be an object"),
        ("[" * 5000, "not valid JSON"),
        ('"\udcff"', "not valid JSON"),
        ('{"custom_id": 7, "url": "/v1/completions", "body": {}}', "custom_id must be a text"),
        ('{"custom_id": "", "url": "/v1/completions", "body": {}}', "custom_id must be a text"),
        ('{"custom_id": "x", "method": "GET", "url": "/v1/completions", "body": {}}', "method is 'GET'"),
        ('{"custom_id": "x", "url": "/v1/models", "body": {}}', "url is '/v1/models'"),
        ('{"custom_id": "x", "url": "/admin/config", "body": {}}', "url is '/admin/config'"),
        ('{"custom_id": "x", "url": "/v1/completions"}', "body must be an object"),
        ('{"custom_id": "x", "url": "/v1/completions", "body": {"stream": true}}', "body.stream"),
        (line("a"), "stands twice"),
    ],
)
def test_a_broken_line_gets_an_error_and_stops_nothing(broken: str, word: str, batch: Batch) -> None:
    for _ in range(2):  # the second run finds nothing to do
        batch.run([line("a"), broken, line("b")])
        found = [json.loads(text) for text in batch.path.read_text().splitlines()]
        assert len(found) == 3
        (fault,) = [answer["error"] for answer in found if answer["error"] is not None]
        assert (fault["code"], fault["line"]) == ("invalid_line", 2) and word in fault["message"]
        assert sum(answer["response"] is not None for answer in found) == 2


def test_a_line_beyond_the_limit_is_an_error(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests, "MAX_LINE_BYTES", 200)
    batch.run([line("a"), line("long", prompt="x" * 5000), line("b")])
    assert "more than 200 bytes" in batch.answers()[None]["error"]["message"] and {"a", "b"} <= set(batch.answers())


def test_as_many_run_at_once_as_there_are_seats(batch: Batch) -> None:
    counts: list[int] = []

    def count(engine: FakeEngine) -> None:
        engine.on_request = lambda: counts.append(len(engine.running) + 1)

    batch.run([line(str(number)) for number in range(20)], at_once=5, prepare=count)
    assert max(counts) == 5 and len(batch.answers()) == 20


@pytest.mark.parametrize("tail", ["", "{", '{"id":"batch_req_1","custom_id":"2","response":nul', '{"custom_id": "2"'])
def test_a_run_goes_on_from_what_is_there(tail: str, batch: Batch) -> None:
    lines = [line(str(number), max_tokens=number + 1) for number in range(6)]
    batch.run(lines[:2])
    with batch.path.open("a") as file:
        file.write(tail)
    before = batch.path.read_text().removesuffix(tail)
    tally = batch.run(lines)
    assert batch.path.read_text().startswith(before) and tally.answered == 4 and len(batch.engine.requests) == 4
    assert set(batch.answers()) == {str(number) for number in range(6)}


def test_requests_that_were_turned_away_are_asked_again(batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LONGEST_WAIT_S", 0.0)

    def is_dead(engine: FakeEngine) -> None:
        engine.is_dead = True

    batch.run([line("a"), line("b")], prepare=is_dead)
    assert {answer["response"]["status_code"] for answer in batch.answers().values()} == {503}
    batch.run([line("a"), line("b"), line("c", max_tokens=-1)])
    statuses = {name: answer["response"]["status_code"] for name, answer in batch.answers().items()}
    assert statuses == {"a": 200, "b": 200, "c": 400}


@pytest.mark.parametrize("error", [OverloadedError("full"), EngineDeadError("the core was lost")])
def test_a_passing_fault_of_the_engine_is_waited_out(error: Any, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "LONGEST_WAIT_S", 0.0)

    def fails_twice(engine: FakeEngine) -> None:
        def count() -> None:
            engine.fail_first = error if len(engine.requests) <= 2 else None

        engine.on_request = count

    assert batch.run([line("a")], prepare=fails_twice).failed == 0 and len(batch.engine.requests) == 3


def test_what_was_answered_before_an_answer_of_none_stays(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    texts = [
        json.dumps({"id": "1", "custom_id": name, "response": {"status_code": status, "body": {}}, "error": None})
        for name, status in (("a", 200), ("b", 503), ("c", 400), ("d", 429), ("e", 200))
    ]
    path.write_text("\n".join([*texts, '{"half']))
    with AnswerFile(path) as file:
        assert file.recover() == Done({"a", "c", "e"}, set(), 1)
        file.append(b"more\n")
    assert path.read_text().splitlines() == [texts[0], texts[2], texts[4], "more"] and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("text", ["my notes\n", "[]\n", '{"custom_id": "a"}\n', '{"response": {}, "error": null}\n'])
def test_a_file_of_something_else_is_not_touched(text: str, tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text)
    with AnswerFile(path) as file, pytest.raises(ConfigError, match="no answer of a batch"):
        file.recover()
    assert path.read_text() == text


def test_answers_to_other_requests_and_a_second_run_are_refused(batch: Batch) -> None:
    batch.run([line("a")])
    with pytest.raises(ConfigError, match="answers to other requests"):
        batch.run([line("b")])
    with AnswerFile(batch.path), pytest.raises(ConfigError, match="another run"):
        AnswerFile(batch.path)


def test_standard_output_gets_whole_lines() -> None:
    stream = BytesIO()
    AnswerStream(stream).append(answer_line("a", 200, "id", b'{"choices": []}'))
    answer = json.loads(stream.getvalue())
    assert answer["response"] == {"status_code": 200, "request_id": "id", "body": {"choices": []}}


WORDS = ("sea", "moon", "bread", "clock", "river", "fox")


def question(word: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"A sentence about a {word}."}]


def start(model: Path, source: str, output: Path, **how: Any) -> subprocess.Popen[str]:
    options = [str(model), "--kv-cache-memory", "0.125", "--max-num-seqs", "2"]
    command = [sys.executable, "-m", "octavo", "run-batch", "-i", source, "-o", str(output), *options]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), os.environ.get("PYTHONPATH", "")])}
    return subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True, **how)


def test_a_killed_run_goes_on_with_the_answers_of_a_whole_one(smollm2_gguf: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    text = "\n".join(line(word, CHAT, messages=question(word), seed=7, max_tokens=16) for word in WORDS)
    source.write_text(text)
    for least, how, code in ((0, signal.SIGINT, 130), (1, signal.SIGKILL, -9)):
        process = start(smollm2_gguf, str(source), output)
        while not output.exists() or output.read_bytes().count(b"\n") < least:
            assert process.poll() is None
        process.send_signal(how)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == code and "Traceback" not in errors
        assert how == signal.SIGKILL or "the same command goes on from there" in errors
    assert 0 < output.read_bytes().count(b"\n") < len(WORDS)
    last = start(smollm2_gguf, "-", output, stdin=subprocess.PIPE)
    _, errors = last.communicate(text, timeout=120)
    assert last.returncode == 0 and "6 of 6 requests have their answer" in errors, errors
    bodies = {answer["custom_id"]: answer["response"]["body"] for answer in map(json.loads, output.read_text().splitlines())}
    with LLM(str(smollm2_gguf), kv_cache_memory=0.125) as llm:
        params = llm.get_default_sampling_params()
        params.seed, params.max_tokens = 7, 16
        whole = llm.chat([question(word) for word in WORDS], params, use_tqdm=False)
    assert [bodies[word]["choices"][0]["message"]["content"] for word in WORDS] == [one.outputs[0].text for one in whole]


@pytest.mark.parametrize(
    ("source", "output", "word"),
    [
        ("https://example.org/in.jsonl", "out", "give a file"),
        ("in.jsonl", "s3://bucket/out", "give a file"),
        ("missing.jsonl", "out", "No such file"),
        ("in.jsonl", "no/folder/out", "No such file"),
        ("in.jsonl", "in.jsonl", "the same file"),
    ],
)
def test_files_that_cannot_be_used_are_one_line(
    source: str,
    output: str,
    word: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "in.jsonl").write_text(line("a"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "setup_logging", lambda _level: None)
    assert run(["run-batch", "-i", source, "-o", output]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and word in said
