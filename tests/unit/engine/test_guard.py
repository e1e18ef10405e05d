"""Guard: not in a forked copy of the process, and one thread at a time."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.fakes import write_model

from octavo import LLM, SamplingParams
from octavo.engine.guard import Guard
from octavo.errors import EngineDeadError


def in_a_copy(action: object) -> int:
    """Exit code of a forked child: 0 when the action raised EngineDeadError with a clear sentence."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            action()  # type: ignore[operator]
        except EngineDeadError as error:
            code = 0 if "forked" in error.message and "spawn" in error.message else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(str(write_model(tmp_path_factory.mktemp("model"))), load_format="dummy", num_threads=2)


@pytest.mark.parametrize(
    "use",
    [
        lambda llm: llm.generate("x", use_tqdm=False),
        lambda llm: llm.chat([{"role": "user", "content": "x"}], use_tqdm=False),
        lambda llm: llm.memory_stats(),
        lambda llm: llm.llm_engine.step(),
    ],
)
def test_a_forked_copy_gets_one_clear_error(llm: LLM, use: object) -> None:
    assert in_a_copy(lambda: use(llm)) == 0  # type: ignore[operator]


def test_a_forked_copy_ends_without_waiting_for_threads_that_it_does_not_have(llm: LLM) -> None:
    def end() -> None:
        llm.close()
        Guard("x").check_process()
        os._exit(5)

    assert in_a_copy(end) == 5


def test_threads_that_share_a_model_get_what_each_gets_alone(llm: LLM) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)

    def answer(prompt: str) -> list[int]:
        return list(llm.generate(prompt, sampling, use_tqdm=False)[0].outputs[0].token_ids)

    prompts = [f"prompt {index}" for index in range(8)]
    alone = [answer(prompt) for prompt in prompts]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(answer, prompts)) == alone


def test_one_thread_may_enter_again_and_others_wait() -> None:
    guard, order = Guard("thing"), []

    def other() -> None:
        with guard:
            order.append("other")

    with guard, guard:
        thread = threading.Thread(target=other)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
