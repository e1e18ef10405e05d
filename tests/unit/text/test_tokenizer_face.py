"""TokenizerFace: names and defaults of a transformers tokenizer, on the embedded models."""

from __future__ import annotations

from pathlib import Path

import pytest

from octavo.text.chat_template import ChatTemplate
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer_face import TokenizerFace

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello!"}]


def face(path: Path) -> TokenizerFace:
    tokenizer = load_tokenizer(path)
    return TokenizerFace(tokenizer, ChatTemplate.for_tokenizer(tokenizer, None))


@pytest.fixture(scope="module")
def smollm2(smollm2_gguf: Path) -> TokenizerFace:
    return face(smollm2_gguf)


@pytest.fixture(scope="module")
def gemma3(gemma3_gguf: Path) -> TokenizerFace:
    return face(gemma3_gguf)


def test_special_tokens_have_names_and_ids(smollm2: TokenizerFace, gemma3: TokenizerFace) -> None:
    assert (smollm2.eos_token, smollm2.eos_token_id) == ("<|im_end|>", 2)
    assert (gemma3.bos_token, gemma3.bos_token_id) == ("<bos>", 2)
    assert smollm2.eos_token_id in smollm2.all_special_ids and "<|im_end|>" in smollm2.all_special_tokens
    assert len(smollm2) == smollm2.vocab_size == 49152 and smollm2.chat_template is not None


@pytest.mark.parametrize("name", ["smollm2", "gemma3"])
def test_text_goes_to_ids_and_back(name: str, request: pytest.FixtureRequest) -> None:
    tokenizer: TokenizerFace = request.getfixturevalue(name)
    ids = tokenizer.encode("Hello world, grüße")
    assert tokenizer.decode(ids, skip_special_tokens=True) == "Hello world, grüße"
    assert tokenizer("Hello world, grüße") == {"input_ids": ids, "attention_mask": [1] * len(ids)}
    assert tokenizer(["a", "b"])["input_ids"] == [tokenizer.encode("a"), tokenizer.encode("b")]
    assert tokenizer.batch_decode([ids, ids], skip_special_tokens=True) == ["Hello world, grüße"] * 2
    assert tokenizer.convert_tokens_to_ids(tokenizer.convert_ids_to_tokens(ids)) == ids
    assert tokenizer.get_vocab()[tokenizer.convert_ids_to_tokens(ids[-1])] == ids[-1]


def test_special_tokens_are_added_and_shown_as_in_transformers(gemma3: TokenizerFace) -> None:
    assert gemma3.encode("Hi")[0] == gemma3.bos_token_id and gemma3.encode("Hi", add_special_tokens=False)[0] != 2
    assert gemma3.decode(gemma3.encode("Hi")) == "<bos>Hi"
    assert gemma3.convert_ids_to_tokens(gemma3.encode("Hi"), skip_special_tokens=True) == gemma3.tokenize("Hi")


def test_tokens_are_spelled_as_in_the_vocabulary(smollm2: TokenizerFace) -> None:
    assert smollm2.tokenize("Hello world") == ["Hello", "Ġworld"]
    assert smollm2.convert_ids_to_tokens(2) == "<|im_end|>" and smollm2.convert_ids_to_tokens(10**9) is None


def test_a_chat_is_text_or_ids(smollm2: TokenizerFace) -> None:
    text = smollm2.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello!<|im_end|>\n<|im_start|>assistant\n"
    ids = smollm2.apply_chat_template(CHAT, add_generation_prompt=True)
    assert ids == smollm2.encode(text, add_special_tokens=False)
    assert smollm2.apply_chat_template([CHAT, CHAT], add_generation_prompt=True) == [ids, ids]
    assert not smollm2.apply_chat_template(CHAT, tokenize=False).endswith("assistant\n")


def test_a_template_and_its_variables_may_be_given(smollm2: TokenizerFace) -> None:
    source = "{{ messages[0].content }}{{ mood }}"
    assert smollm2.apply_chat_template(CHAT, chat_template=source, tokenize=False, mood="?") == "Be brief.?"
