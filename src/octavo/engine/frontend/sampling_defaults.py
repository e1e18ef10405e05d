"""sampling_in_force: the settings of requests that bring none, from the model's advice and the two flags about it."""

from __future__ import annotations

import json
from pathlib import Path

from octavo.config.loading import LoadingConfig
from octavo.errors import ConfigError, InvalidRequestError, LoadError
from octavo.loader.fields import Fields, read_json_object
from octavo.loader.hf_config import generation_defaults
from octavo.loader.sampling_advice import SamplingAdvice
from octavo.sampling_params import SamplingParams

_FIELDS = {
    **{name: name for name in ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")},
    "max_new_tokens": "max_tokens",
}
"""Key of generation_config.json -> field of SamplingParams."""


def sampling_in_force(loading: LoadingConfig, advice: SamplingAdvice) -> SamplingAdvice:
    """--generation-config: the model's advice (auto), none (vllm), or a folder's; --override-generation-config over it.

    Raises: ConfigError naming the flag.
    """
    if loading.generation_config == "vllm":
        advice = SamplingAdvice()
    elif loading.generation_config != "auto":
        advice = _from_folder(loading.generation_config)
    if loading.override_generation_config is None:
        return advice
    overriding = _from_json(loading.override_generation_config)
    source = f"{advice.source} and --override-generation-config says" if advice.values else "--override-generation-config says"
    return SamplingAdvice({**advice.values, **overriding}, source)


def _from_folder(given: str) -> SamplingAdvice:
    path = Path(given).expanduser()
    file = path / "generation_config.json" if path.is_dir() else path
    if not file.is_file():
        raise ConfigError(
            f"--generation-config {given[:200]} is neither auto, nor vllm, nor a folder with a generation_config.json",
            param="generation_config",
        )
    try:
        values = generation_defaults(Fields(read_json_object(file), str(file)))
    except LoadError as error:
        raise ConfigError(f"--generation-config: {error.message}", param="generation_config") from None
    return SamplingAdvice(values, f"{file} recommends") if values else SamplingAdvice()


def _from_json(text: str) -> dict[str, float | int]:
    flag = "--override-generation-config"
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise ConfigError(f"{flag} is {text[:100]!r}; it must be a JSON object", param="override_generation_config")
    for name in values:
        if name not in _FIELDS:
            raise ConfigError(
                f"{flag} has the key {name[:100]!r}; known: {', '.join(_FIELDS)}", param="override_generation_config"
            )
    given = {_FIELDS[name]: value for name, value in values.items() if value is not None}
    try:
        checked = SamplingParams(**given)
    except InvalidRequestError as error:
        raise ConfigError(f"{flag}: {error.message}", param="override_generation_config") from None
    return {name: getattr(checked, name) for name in given}
