"""beam_params: what a body with use_beam_search asks for. A field that beam search would ignore is refused by name."""

from __future__ import annotations

from octavo.engine.frontend.beam_search import MAX_BEAM_WIDTH, BeamSearchParams
from octavo.errors import InvalidRequestError
from octavo.sampling_params import SamplingParams
from octavo.server.openai.sampling_fields import SamplingFields

_IGNORED = (
    *("top_p", "top_k", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "min_tokens", "stop"),
    *("stop_token_ids", "logit_bias", "bad_words", "allowed_token_ids", "prompt_logprobs", "response_format"),
    *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "detokenize"),
)
_NEUTRAL = SamplingParams()


def beam_params(body: SamplingFields, max_tokens: int | None, num_logprobs: int | None) -> BeamSearchParams | None:
    """The beam search that a body asks for, n its width; None if it asks for none.

    max_tokens None: as many as the context leaves. Raises InvalidRequestError naming the field.
    """
    if not body.use_beam_search:
        if body.length_penalty not in (None, 1.0):
            raise InvalidRequestError(
                f"length_penalty is {body.length_penalty:g}; it needs use_beam_search: true", param="length_penalty"
            )
        return None
    width = 1 if body.n is None else body.n
    if not 1 <= width <= MAX_BEAM_WIDTH:
        raise InvalidRequestError(
            f"n is {width}; with use_beam_search it is the number of beams, 1 to {MAX_BEAM_WIDTH}", param="n"
        )
    if body.stream:
        raise InvalidRequestError(
            "use_beam_search cannot be streamed: which beam is the best shows at the end; leave out stream", param="stream"
        )
    for name in _IGNORED:
        value = getattr(body, name, None)
        if value and value != getattr(_NEUTRAL, name, None) and not (name == "top_k" and value == -1):
            raise InvalidRequestError(
                f"{name} has no effect in beam search; leave it out, or leave out use_beam_search",
                param=name,
                code="unsupported_field",
            )
    if num_logprobs is not None and num_logprobs > 2 * width:
        raise InvalidRequestError(
            f"{num_logprobs} logprobs are asked for; a search with {width} beams knows {2 * width} of them, so ask for no more",
            param="logprobs",
        )
    return BeamSearchParams(
        beam_width=width,
        max_tokens=2**31 if max_tokens is None else max_tokens,
        ignore_eos=bool(body.ignore_eos),
        temperature=0.0 if body.temperature is None else body.temperature,
        length_penalty=1.0 if body.length_penalty is None else body.length_penalty,
        include_stop_str_in_output=bool(body.include_stop_str_in_output),
    )
