"""instructor: a pydantic model out of every mode that OpenAI has, whole and in parts."""

from __future__ import annotations

from typing import Any

import instructor
import openai
import pytest
from tests.clients.person import ASK, Person

MODES = [instructor.Mode.TOOLS, instructor.Mode.TOOLS_STRICT, instructor.Mode.JSON_SCHEMA]
REQUEST: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": ASK}], "max_tokens": 300, "max_retries": 0}


def client(base_url: str, mode: instructor.Mode) -> Any:
    return instructor.from_openai(openai.OpenAI(base_url=base_url, api_key="none", max_retries=0), mode=mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_model_comes_back_whole_and_in_parts(base_url: str, mode: instructor.Mode) -> None:
    made = client(base_url, mode)
    whole = made.chat.completions.create(response_model=Person, temperature=0, **REQUEST)
    assert isinstance(whole, Person)
    parts = list(made.chat.completions.create_partial(response_model=Person, temperature=0, **REQUEST))
    assert parts[-1].model_dump() == whole.model_dump()


def test_seeded_answers_are_valid_too(base_url: str) -> None:
    made = client(base_url, instructor.Mode.JSON_SCHEMA)
    people = [made.chat.completions.create(response_model=Person, temperature=1, seed=seed, **REQUEST) for seed in range(3)]
    assert all(isinstance(person, Person) for person in people)
