"""Streamed text equals the whole, and stop strings act on characters, wherever token borders fall."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.emitter import TextEmitter
from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.load import load_tokenizer
from octavo.text.tokenizer import Tokenizer

ByName = Callable[[str], Tokenizer]
_FOLDERS = Path(__file__).parents[2] / "golden" / "text" / "tokenizers"
GPT2 = tokenizer_from_folder(_FOLDERS / "gpt2_like")
LLAMA = tokenizer_from_folder(_FOLDERS / "llama_legacy")
GEMMA = tokenizer_from_folder(_FOLDERS / "gemma_like")
UNIGRAM = tokenizer_from_folder(_FOLDERS / "unigram")
ALL = [GPT2, LLAMA, GEMMA, UNIGRAM]
_BYTE_IDS = {bytes: token for token, bytes in ((i, GPT2.token_bytes(i)) for i in range(GPT2.vocab_size)) if len(bytes) == 1}


def _run(tokenizer: Tokenizer, ids: Sequence[int], **options: object) -> tuple[list[str], TextEmitter]:
    emitter = TextEmitter(tokenizer, **options)  # type: ignore[arg-type]
    deltas = [emitter.push(token_id) for token_id in ids]
    return [*deltas, emitter.finish()], emitter


def _byte_tokens(data: bytes) -> list[int]:
    return [_BYTE_IDS[bytes([byte])] for byte in data]


def _reference_stop(text: str, stops: Sequence[str], include: bool) -> tuple[str, str | None]:
    """Character by character: the first end at which any stop string is complete; the longest of those."""
    for end in range(1, len(text) + 1):
        matches = [stop for stop in stops if text[:end].endswith(stop)]
        if matches:
            stop = max(matches, key=len)
            return text[: end if include else end - len(stop)], stop
    return text, None


@settings(max_examples=150, deadline=None)
@given(data=st.data(), which=st.sampled_from(range(len(ALL))), at_start=st.booleans(), skip=st.booleans())
def test_joined_deltas_equal_the_whole_for_any_token_ids(data: st.DataObject, which: int, at_start: bool, skip: bool) -> None:
    tokenizer = ALL[which]
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 3), max_size=40))
    deltas, emitter = _run(tokenizer, ids, at_start=at_start, skip_special_tokens=skip)
    whole = tokenizer.tokens_to_bytes(ids, skip_special_tokens=skip, at_start=at_start)
    assert "".join(deltas) == whole.decode("utf-8", "replace")
    assert emitter.num_tokens == len(ids)


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40))
def test_random_bytes_are_replaced_as_the_whole_decode_does(data: bytes) -> None:
    deltas, _ = _run(GPT2, _byte_tokens(data))
    assert "".join(deltas) == data.decode("utf-8", "replace")


@settings(max_examples=150, deadline=None)
@given(st.text(alphabet=st.characters(blacklist_categories=["Cs"], blacklist_characters="\ufffd"), max_size=40))
def test_valid_text_never_shows_a_replacement_character(text: str) -> None:
    deltas, _ = _run(GPT2, _byte_tokens(text.encode()))
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)


@settings(max_examples=300, deadline=None)
@given(
    text=st.text(alphabet="abcé中", max_size=30),
    stops=st.lists(st.text(alphabet="abcé中", min_size=1, max_size=5), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 6), max_size=60),
    include=st.booleans(),
)
def test_stop_handling_equals_a_naive_search_for_any_token_borders(
    text: str, stops: list[str], cuts: list[int], include: bool
) -> None:
    tokens = [bytes_of for bytes_of in _cut(text.encode(), cuts)]
    emitter = TextEmitter(_Spelled(tokens), stop=stops, include_stop_str_in_output=include)
    deltas = [emitter.push(token_id) for token_id in range(len(tokens))]
    streamed = "".join([*deltas, emitter.finish()])
    assert (streamed, emitter.stopped) == _reference_stop(text, stops, include)
    for count, delta in enumerate(deltas[: emitter.num_tokens], 1):
        arrived = b"".join(tokens[:count]).decode("utf-8", "ignore")
        held = len(arrived) - len("".join(deltas[:count]))
        if emitter.stopped is None or count < emitter.num_tokens:
            tail = arrived[len(arrived) - held :]
            assert held == 0 or any(stop.startswith(tail) and stop != tail for stop in stops), delta


class _Spelled(Tokenizer):
    """A fake: token i is the i-th of the given byte strings."""

    def __init__(self, tokens: list[bytes]) -> None:
        self._tokens = tokens
        self.special_token_ids = frozenset()

    @property
    def strips_leading_space(self) -> bool:
        return False

    def token_bytes(self, token_id: int) -> bytes:
        return self._tokens[token_id]


def _cut(data: bytes, cuts: list[int]) -> list[bytes]:
    pieces = []
    for size in cuts:
        pieces.append(data[:size])
        data = data[size:]
    return [piece for piece in [*pieces, data] if piece]


def test_an_incomplete_character_is_held_and_flushed_as_one_replacement() -> None:
    emitter = TextEmitter(GPT2)
    assert [emitter.push(i) for i in _byte_tokens("é👍".encode()[:5])] == ["", "é", "", "", ""]
    assert emitter.finish() == "\ufffd"
    assert emitter.finish() == ""


def test_num_tokens_counts_up_to_the_token_that_completed_the_stop() -> None:
    ids = _byte_tokens(b"hello world")
    deltas, emitter = _run(GPT2, ids, stop=["lo w"])
    assert ("".join(deltas), emitter.stopped, emitter.num_tokens) == ("hel", "lo w", 7)
    assert emitter.push(ids[0]) == ""
    assert emitter.num_tokens == 7


def test_a_held_beginning_of_a_stop_comes_out_at_the_end() -> None:
    deltas, emitter = _run(GPT2, _byte_tokens(b"a\nUser"), stop=["\nUser:"])
    assert deltas == ["a", "", "", "", "", "", "\nUser"]
    assert emitter.stopped is None


def test_a_continuation_keeps_its_leading_space_and_a_text_of_its_own_does_not() -> None:
    ids = LLAMA.encode("hello there", add_special_tokens=False)
    assert "".join(_run(LLAMA, ids)[0]) == " hello there"
    assert "".join(_run(LLAMA, ids, at_start=True)[0]) == "hello there" == LLAMA.decode(ids)


@pytest.mark.parametrize("skip", [True, False])
def test_special_tokens_are_left_out_unless_wanted(skip: bool) -> None:
    ids = GPT2.encode("a<|endoftext|>b")
    assert "".join(_run(GPT2, ids, skip_special_tokens=skip)[0]) == ("ab" if skip else "a<|endoftext|>b")


def test_random_ids_of_a_real_vocabulary_stream_to_the_whole(smollm2_gguf: Path) -> None:
    tokenizer = load_tokenizer(smollm2_gguf)
    dice = random.Random(7)
    for _ in range(100):
        ids = [dice.randrange(tokenizer.vocab_size) for _ in range(50)]
        deltas, _emitter = _run(tokenizer, ids, stop=["\n\n\n\n"])
        assert "".join(deltas) == tokenizer.decode(ids)


CONTROL = min(GPT2.special_token_ids)
NAME = GPT2.added_tokens[CONTROL]


@pytest.mark.parametrize("skip", [True, False])
@pytest.mark.parametrize("include", [True, False])
@pytest.mark.parametrize("stop", [NAME, f"{NAME}b", f"a{NAME}", f"a{NAME}b", f"{NAME}{NAME}", NAME[:-1]])
def test_a_stop_string_of_control_tokens_stops_although_they_are_no_text(stop: str, skip: bool, include: bool) -> None:
    ids = [*_byte_tokens(b"xa"), CONTROL, CONTROL, *_byte_tokens(b"a"), CONTROL, *_byte_tokens(b"bc")]
    whole = f"xa{NAME}{NAME}a{NAME}bc"
    deltas, emitter = _run(GPT2, ids, stop=[stop], skip_special_tokens=skip, include_stop_str_in_output=include)
    before = whole[: whole.index(stop)]
    assert emitter.stopped == stop
    assert "".join(deltas) == (before.replace(NAME, "") if skip else before) + (stop if include else "")


@pytest.mark.parametrize("stop", ["zz", f"{NAME}z", f"a{NAME}z"])
def test_control_tokens_that_might_have_begun_a_stop_string_stay_out_of_the_text(stop: str) -> None:
    ids = [*_byte_tokens(b"a"), CONTROL, *_byte_tokens(b"b"), CONTROL]
    deltas, emitter = _run(GPT2, ids, stop=[stop])
    assert "".join(deltas) == "ab" and emitter.stopped is None


@pytest.mark.parametrize(
    ("text", "stop", "min_tokens", "shown"),
    [
        ("abcabc", ["b"], 0, "a"),
        ("abcabc", ["b"], 1, "a"),  # the second token may end a stop string
        ("abcabc", ["b"], 2, "abca"),
        ("abcabc", ["bc"], 2, "a"),  # it begins among the first two, and ends after them
        ("abcabc", ["ab", "abca"], 3, ""),
        ("abxab", ["ab", "abc"], 2, "abx"),
        ("abcabc", ["b"], 9, "abcabc"),
    ],
)
def test_no_stop_string_ends_within_the_first_tokens(text: str, stop: list[str], min_tokens: int, shown: str) -> None:
    deltas, _ = _run(GPT2, _byte_tokens(text.encode()), stop=stop, min_tokens=min_tokens)
    assert "".join(deltas) == shown


def test_shown_control_tokens_stand_in_the_text_and_stops_find_the_same() -> None:
    control = min(GPT2.special_token_ids)
    text = GPT2.added_tokens[control]
    ids = [*_byte_tokens(b"a"), control, *_byte_tokens(b"b"), control, *_byte_tokens(b"c")]
    for shown, expected in (((), "abc"), ((control,), f"a{text}b{text}c")):
        deltas, _ = _run(GPT2, ids, shown_token_ids=shown)
        assert "".join(deltas) == expected
    stop = f"b{text}"
    for shown, expected in (((), "a"), ((control,), f"a{text}")):
        deltas, emitter = _run(GPT2, ids, shown_token_ids=shown, stop=[stop])
        assert "".join(deltas) == expected and emitter.stopped == stop
