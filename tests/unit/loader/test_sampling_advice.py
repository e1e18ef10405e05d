"""The advice of the makers of known families, for files that carry none."""

from __future__ import annotations

import pytest

from octavo.loader.sampling_advice import SamplingAdvice, advice_for_family


@pytest.mark.parametrize(
    ("architecture", "names", "values"),
    [
        ("llama", ("smollm2", "Smollm2 135M 8k Lc100K Mix1 Ep2"), {"temperature": 0.2, "top_p": 0.9}),
        ("llama", ("SmolLM2-1.7B-Instruct",), {"temperature": 0.2, "top_p": 0.9}),
        ("gemma3", ("gemma-3", "Gemma 3 270m"), {"temperature": 1.0, "top_k": 64, "top_p": 0.95}),
        ("gemma3", (), {"temperature": 1.0, "top_k": 64, "top_p": 0.95}),
        ("qwen3", ("Qwen3 0.6B",), {"temperature": 0.6, "top_k": 20, "top_p": 0.95}),
        (
            "qwen2",
            ("Qwen2.5", "Qwen2.5 0.5B Instruct"),
            {"temperature": 0.7, "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.05},
        ),
        ("llama", ("Llama-3.2", "Llama 3.2 1B Instruct"), {"temperature": 0.6, "top_p": 0.9}),
    ],
)
def test_known_families(architecture: str, names: tuple[str, ...], values: dict[str, float]) -> None:
    advice = advice_for_family(architecture, *names)
    assert advice.values == values and "the file has no settings" in advice.source


@pytest.mark.parametrize(
    ("architecture", "names"),
    [("llama", ("TinyLlama 1.1B",)), ("qwen2", ("Qwen2.5 0.5B",)), ("llama", ("Llama 3.2 1B",)), ("llama", ())],
)
def test_base_models_and_strangers_get_none(architecture: str, names: tuple[str, ...]) -> None:
    assert advice_for_family(architecture, *names) == SamplingAdvice()


def test_the_start_up_line_names_settings_and_source() -> None:
    line = advice_for_family("llama", "smollm2").describe()
    assert line == (
        "sampling temperature 0.2, top_p 0.9 where a request says nothing, "
        "as the makers of SmolLM2 advise; the file has no settings"
    )
    assert "temperature 1 where" in SamplingAdvice().describe()
