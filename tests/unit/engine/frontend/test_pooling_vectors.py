"""EmbeddingForm, cosine, truncation; and what the ledger and the metrics make of a pooled request."""

from __future__ import annotations

import math

import numpy as np
import pytest

from octavo.config.model import PoolingConfig
from octavo.engine.frontend.ledger import Ledger, RequestRecord
from octavo.engine.frontend.metrics import Metrics
from octavo.engine.frontend.pooling import EmbeddingForm, cosine, truncated
from octavo.pooling_params import PoolingParams
from octavo.sequence import FinishReason


@pytest.mark.parametrize(
    ("params", "normalize", "expected"),
    [
        (PoolingParams(), True, [0.6, 0.8, 0.0]),
        (PoolingParams(), False, [3.0, 4.0, 0.0]),
        (PoolingParams(normalize=True), False, [0.6, 0.8, 0.0]),
        (PoolingParams(use_activation=False), True, [3.0, 4.0, 0.0]),
        (PoolingParams(dimensions=1), True, [1.0]),
        (PoolingParams(dimensions=2, normalize=False), True, [3.0, 4.0]),
    ],
)
def test_vectors_are_shortened_then_normalised(params: PoolingParams, normalize: bool, expected: list[float]) -> None:
    form = EmbeddingForm.of(params, PoolingConfig(normalize=normalize))
    found = form.apply_to(np.array([3, 4, 0], "<f4").tobytes())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_vector_of_zeros_stays_and_a_large_one_does_not_overflow() -> None:
    form = EmbeddingForm(None, True)
    assert form.apply(np.zeros(3, np.float32)).tolist() == [0, 0, 0]
    large = np.full(4, 3e38, np.float32)
    np.testing.assert_allclose(form.apply(large), 0.5)
    assert math.isclose(cosine(large, large), 1) and cosine(large, np.zeros(4, np.float32)) == 0


@pytest.mark.parametrize(
    ("limit", "suffix", "expected"),
    [(5, (), [1, 2, 3, 4, 9]), (3, (), [1, 2, 3]), (3, (9,), [1, 2, 9]), (1, (9,), [1]), (4, (8,), [1, 2, 3, 4])],
)
def test_a_cut_keeps_the_suffix_that_stood_behind_the_text(limit: int, suffix: tuple[int, ...], expected: list[int]) -> None:
    assert truncated([1, 2, 3, 4, 9], limit, suffix) == expected


def test_a_pooled_request_counts_its_prompt_and_no_generation() -> None:
    ledger = Ledger()
    registry = Metrics(ledger, "m").registry
    record = RequestRecord("r", 7, 1, 0, arrival_s=1.0)
    ledger.open(record)
    ledger.started("r", 2.0)
    record.num_cached_tokens = 4
    ledger.pooled(record)
    ledger.close("r", FinishReason.STOP, 3.0)
    ledger.check_integrity()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"octavo:{name}", {"model_name": "m", **labels})

    assert value("prompt_tokens_total") == 7 and value("generation_tokens_total") == 0
    assert value("tenant_prompt_tokens_total", tenant="default") == 3
    assert value("request_success_total", finished_reason="stop") == 1
    assert value("request_prompt_tokens_count") == 1 and value("e2e_request_latency_seconds_sum") == 2
    assert value("request_generation_tokens_count") == 0 and value("time_to_first_token_seconds_count") == 0
