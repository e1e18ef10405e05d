"""Request: ids are unique, and what is left at its default does not travel."""

from __future__ import annotations

import msgspec

from octavo.request import MAX_REQUEST_ID_LENGTH, Request, new_request_id
from octavo.sampling_params import SamplingParams


def test_new_ids_are_unique_and_short_enough() -> None:
    ids = {new_request_id("chatcmpl") for _ in range(100)}
    assert len(ids) == 100 and all(i.startswith("chatcmpl-") and len(i) <= MAX_REQUEST_ID_LENGTH for i in ids)


def test_a_request_crosses_the_wire_unchanged() -> None:
    request = Request(
        request_id="r",
        prompt_token_ids=[1],
        sampling=SamplingParams(logit_bias={3: -1.0}),
        seed=-(2**63),
        max_tokens=1,
        stop_token_ids=[2],
        arrival_s=0.5,
    )
    data = msgspec.msgpack.encode(request)
    assert msgspec.msgpack.decode(data, type=Request) == request
    assert b"cache_salt" not in data and b"priority" not in data
