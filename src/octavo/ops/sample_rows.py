"""SampleRows and SampleResult: what a sampler is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from octavo.ops.arrays import F32, I32, I64


@dataclass(slots=True)
class SampleRows:
    """Sampling settings of one step, one entry per sampled row (structure of arrays, C-contiguous).

    logit_row            int32 [n] row in the logits
    temperature          float32 [n]; 0 is greedy
    top_k                int32 [n]; 0 keeps all
    top_p, min_p         float32 [n]
    repetition, presence, frequency   float32 [n] penalties (1, 0, 0 are off)
    seed                 uint64 [n]; noise = f(seed, choice, position)
    choice, position     int32 [n]; position is that of the token being chosen
    history              int32 [total] token ids of prompt + output of rows with penalties, concatenated
    history_start        int64 [n + 1] slices of history (empty when no penalty is on)
    num_prompt           int32 [n] how many ids of the slice are prompt
    bias_ids, bias_values, bias_start   int32/float32 [total], int64 [n + 1]: added to logits; -inf masks (min_tokens)
    top_logprobs         int32 [n] how many alternatives to report; -1: no logprobs at all
    mask_row             int32 [n] row of masks with the tokens that may be chosen; -1: all may
    masks                int32 [m, words] packed bits: bit i % 32 of word i // 32 allows token i; ids beyond the words are
                         forbidden
    """

    logit_row: I32
    temperature: F32
    top_k: I32
    top_p: F32
    min_p: F32
    repetition: F32
    presence: F32
    frequency: F32
    seed: NDArray[np.uint64]
    choice: I32
    position: I32
    history: I32
    history_start: I64
    num_prompt: I32
    bias_ids: I32
    bias_values: F32
    bias_start: I64
    top_logprobs: I32
    mask_row: I32
    masks: I32


@dataclass(slots=True)
class SampleResult:
    """What was chosen, and its logprobs where top_logprobs >= 0.

    token_ids           int32 [n]
    is_finite           bool [n]: the raw logit of the chosen token, and its logprob where asked for, are finite. Of a row that
                        is not, nothing else may be used
    logprob, rank       float32 [n], int32 [n]: of the chosen token; rank counts from 1
    top_ids, top_values int32, float32 [n, k], k = max(top_logprobs); entries beyond a row's own count are undefined
    """

    token_ids: I32
    is_finite: NDArray[np.bool_]
    logprob: F32
    rank: I32
    top_ids: I32
    top_values: F32
