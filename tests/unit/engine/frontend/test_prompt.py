"""read_prompt: vLLM's forms of a prompt."""

from __future__ import annotations

from typing import Any

import pytest

from octavo import TextPrompt, TokensPrompt
from octavo.engine.frontend.prompt import PromptParts, read_prompt
from octavo.errors import InvalidRequestError


@pytest.mark.parametrize(
    ("prompt", "parts"),
    [
        ("hi", PromptParts("hi", None)),
        ((1, 2), PromptParts(None, [1, 2])),
        (TextPrompt(prompt="hi"), PromptParts("hi", None)),
        (TokensPrompt(prompt_token_ids=[1, 2]), PromptParts(None, [1, 2])),
        (TokensPrompt(prompt_token_ids=[1], prompt="a"), PromptParts("a", [1])),
        (TextPrompt(prompt="hi", cache_salt="s"), PromptParts("hi", None, "s")),
        ({"prompt": "hi", "multi_modal_data": None, "mm_processor_kwargs": {}}, PromptParts("hi", None)),
        ({"prompt": "hi", "prompt_token_ids": None}, PromptParts("hi", None)),
    ],
)
def test_forms(prompt: Any, parts: PromptParts) -> None:
    assert read_prompt(prompt) == parts


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"prompt": "hi", "multi_modal_data": {"image": 1}}, "'multi_modal_data', which is not supported"),
        ({"promt": "hi"}, "did you mean prompt?"),
        ({"prompt_embeds": [1.0]}, "'prompt_embeds', which is not supported"),
        ({}, "must have prompt or prompt_token_ids"),
        ({"prompt": 5}, "prompt must be text, not int"),
        ({"prompt_token_ids": "text"}, "a list of token ids, not str"),
        ([], "the prompt is empty"),
        ([True], "integers only"),
    ],
)
def test_what_is_no_prompt_is_refused_in_words(prompt: Any, words: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read_prompt(prompt)
    assert words in caught.value.message and caught.value.param == "prompt"
