"""What a backend offers: the operations of a model, and the device that loads it, runs it and samples.

A model is a program over these operations. It never sees numbers: tensors are opaque handles, a numpy array in the reference
backend, a buffer of the native machine in the cpu backend, recorded once and replayed for every batch. Rows are tokens of
the step's batch (all sequences one after the other); after `select_rows` they are the rows whose logits are wanted.

The types of the handles are a backend's own, so that the protocols here are generic in them.

Equal bytes: each output row of every op is a function of its own input row (and, in attention, of its own sequence) alone.
No op may let the number of rows, the tiling, the thread count or the neighbours change a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias, TypeVar

import numpy as np

from octavo.config.model import RopeConfig
from octavo.loader.parameter import Axis, Role
from octavo.loader.stored import StoredTensor
from octavo.ops.arrays import F32, I32, U8
from octavo.ops.phase_cost import PhaseCost
from octavo.ops.sample_rows import SampleResult, SampleRows
from octavo.step import TokenRun

Tensor = TypeVar("Tensor")
"""A [rows, columns] float32 handle of the backend."""
Weight = TypeVar("Weight")
Weight_co = TypeVar("Weight_co", covariant=True)
Weight_contra = TypeVar("Weight_contra", contravariant=True)
"""A matrix parameter in the backend's own layout, made by `load_linear`."""
Vector = TypeVar("Vector")
Vector_co = TypeVar("Vector_co", covariant=True)
Vector_contra = TypeVar("Vector_contra", contravariant=True)
"""A float32 vector parameter in the backend's own layout, made by `load_vector`."""
KVCache = TypeVar("KVCache")
"""A KV cache that a backend has set aside, see `Backend.replace_kv_cache`."""
Logits = TypeVar("Logits")
Logits_co = TypeVar("Logits_co", covariant=True)
Logits_contra = TypeVar("Logits_contra", contravariant=True)
"""Logits [num_logits, vocab_size] of a step, wherever the device keeps them."""

NO_LOGITS: F32 = np.zeros((0, 0), np.float32)
"""What a step of a model without an output head comes to."""

FLOAT_TOLERANCE = 2e-5
"""How far two backends or ISAs differ in one op with float weights, relative to the output row's largest magnitude: sums run in
different orders. With quantised weights ISAs agree to the bit, as integer products are exact and float steps have one order."""


@dataclass(frozen=True, slots=True)
class AttentionSpec:
    """Static facts of one layer's attention.

    layer            index of the layer: which slice of the KV cache
    num_heads, num_kv_heads, head_dim   query head h reads KV head h // (num_heads // num_kv_heads)
    scale            factor on q.k
    window           sliding window in tokens, the own position included; None sees everything
    softcap          scores become softcap * tanh(score / softcap); None leaves them
    causal           False: each row sees all of its share, which is a whole sequence (an encoder)
    """

    layer: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    scale: float
    window: int | None = None
    softcap: float | None = None
    causal: bool = True


LookupKey: TypeAlias = Literal["token", "position", "zero"]
"""What an embedding looks its rows up by: token ids, positions, or entry 0 for all (the one token type of a single text)."""


@dataclass(slots=True)
class StepInputs:
    """The arrays of one step, filled by the worker and read by the backend; int32 unless said otherwise.

    token_ids, positions   [num_tokens]
    slot_mapping           [num_tokens] block_id * block_size + offset where the token's key and value are written
    query_start            [num_seqs + 1] first row of each sequence's share
    first_position         [num_seqs] position of each share's first token
    block_tables           [num_seqs, max_blocks] block ids by position // block_size; unread beyond a sequence's end
    logit_rows             [num_logits] rows whose logits are wanted
    """

    token_ids: I32
    positions: I32
    slot_mapping: I32
    query_start: I32
    first_position: I32
    block_tables: I32
    logit_rows: I32


@dataclass(frozen=True, slots=True)
class KVCacheSpec:
    """Shape of the KV cache: num_layers pairs of [num_blocks, num_kv_heads, block_size, head_dim] in dtype. int8 adds a float32
    scale to each key and each value of a head, max|x| / 127; codes are rounded to nearest even."""

    num_layers: int
    num_blocks: int
    num_kv_heads: int
    block_size: int
    head_dim: int
    dtype: str  # "float32", "float16", "bfloat16" or "int8"


class Program(Protocol[Logits_co]):
    """A model bound to a backend, ready to run steps."""

    def run(self, inputs: StepInputs) -> Logits_co:
        """Compute one step. Returns its logits, for `Sampling` of the same backend; valid until the next run."""
        ...

    def read_hidden(self, first: int, last: int) -> F32:
        """Last hidden states of the last run's rows first..last (end exclusive), float32 [rows, hidden_size]; valid until the
        next run. The model must have marked them."""
        ...

    def start_profile(self) -> None:
        """Count costs from now on. Raises ConfigError where nothing counts (eager mode, the reference backend)."""
        ...

    def profile(self) -> list[PhaseCost]:
        """What was counted since start_profile."""
        ...


class ParameterOps(Protocol[Weight_co, Vector_co]):
    """How parameters enter a backend. Called while a model is built."""

    def load_linear(
        self,
        parts: Sequence[StoredTensor],
        biases: Sequence[StoredTensor | None],
        role: Role = "mlp",
        cut: Axis | None = "output",
    ) -> Weight_co:
        """One weight whose outputs are those of parts one after the other (q, k, v in one product).

        parts: each [out_i, in], any storage format; biases: one vector [out_i] or None for each part; role, cut: as declared,
        for the precision (ops/weight_storage.py). Raises LoadError naming file and tensor if a scale or value is not finite.
        """
        ...

    def load_vector(self, tensor: StoredTensor, offset: float = 0.0) -> Vector_co:
        """A float32 vector, offset added to each element (Gemma stores its norms less 1). Raises LoadError like load_linear."""
        ...


class Ops(Protocol[Tensor, Weight_contra, Vector_contra]):
    """The operations. Shapes are [rows, columns]; every result is float32."""

    def embedding(self, table: Weight_contra, scale: float = 1.0, by: LookupKey = "token") -> Tensor:
        """Rows of table by the step's token ids or positions, times scale -> [num_tokens, hidden]."""
        ...

    def linear(self, x: Tensor, weight: Weight_contra) -> Tensor:
        """x [rows, in] times weight [out, in] transposed, plus bias -> [rows, out].

        Float weights: float32 sums in k order. Quantised weights: x is rounded to int8 per row and group of 32 columns,
        products accumulate in int32, group scales are applied in k order. w8a8: x is rounded to int8 per row, one int32 sum
        runs over all columns, and one float product with both scales ends it.
        """
        ...

    def rms_norm(self, x: Tensor, weight: Vector_contra, eps: float) -> Tensor:
        """Scale to unit root mean square, then by weight (Zhang and Sennrich, 2019).

        Works on groups of len(weight) columns: a head-sized weight normalises each head on its own (QK norm).
        """
        ...

    def layer_norm(self, x: Tensor, weight: Vector_contra, bias: Vector_contra, eps: float) -> Tensor:
        """Each row to mean 0 and variance 1, then times weight plus bias, [columns] each (Ba, Kiros and Hinton, 2016)."""
        ...

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        """Element-wise sum of two [rows, n]."""
        ...

    def split(self, x: Tensor, sizes: Sequence[int]) -> tuple[Tensor, ...]:
        """Views of consecutive column ranges; nothing is copied."""
        ...

    def rope(self, x: Tensor, rope: RopeConfig, head_dim: int) -> Tensor:
        """Rotate each head of x [rows, heads * head_dim] by the row's position (half-split pairs); ops/rope_table.py has the
        angles."""
        ...

    def kv_write(self, k: Tensor, v: Tensor, spec: AttentionSpec) -> None:
        """Store keys and values [rows, num_kv_heads * head_dim] at the step's slots. Precedes the layer's paged_attention."""
        ...

    def paged_attention(self, q: Tensor, spec: AttentionSpec) -> Tensor:
        """Attention of q [rows, num_heads * head_dim] over each sequence's blocks (Kwon et al., 2023) -> same shape."""
        ...

    def silu_mul(self, gate_up: Tensor) -> Tensor:
        """silu(left half) * right half: [rows, 2 n] -> [rows, n]."""
        ...

    def gelu_mul(self, gate_up: Tensor) -> Tensor:
        """gelu(left half) * right half, the tanh form: [rows, 2 n] -> [rows, n]."""
        ...

    def gelu(self, x: Tensor) -> Tensor:
        """x / 2 * (1 + erf(x / sqrt(2))), element-wise (Hendrycks and Gimpel, 2016)."""
        ...

    def gate_rows(self, x: Tensor, gate: Tensor) -> Tensor:
        """x [rows, n] times sigmoid(gate [rows, 1])."""
        ...

    def route(self, logits: Tensor, top_k: int, renormalise: bool) -> Tensor:
        """Routes of a mixture of experts: logits [num_tokens, experts] -> [num_tokens, 2 * top_k].

        First the experts that a row goes to, as whole numbers in falling order of their logits (the lower one of equals
        first), then their weights.

        Weights are the softmax over all experts; renormalise divides those of a row by their sum. All layers of a model choose
        equally many of equally many experts.
        """
        ...

    def dispatch(self, x: Tensor, routes: Tensor) -> Tensor:
        """Rows of x once for each expert they go to, sorted by expert, then row -> [num_tokens * top_k, columns].

        `experts` and `combine` work on the latest dispatch.
        """
        ...

    def experts(self, x: Tensor, weights: Sequence[Weight_contra], routes: Tensor) -> Tensor:
        """As `linear`, each dispatched row with the weight of its expert; all weights have one shape and storage."""
        ...

    def combine(self, x: Tensor, routes: Tensor) -> Tensor:
        """Back to one row per token: the sum of its dispatched rows times their weights, in the order of the routes."""
        ...

    def hidden_states(self, x: Tensor) -> Tensor:
        """Mark x [num_tokens, hidden_size] as what `Program.read_hidden` reads; returns it."""
        ...

    def select_rows(self, x: Tensor) -> Tensor:
        """The step's logit_rows of x -> [num_logits, columns]; later ops work on these rows."""
        ...

    def softcap(self, x: Tensor, cap: float) -> Tensor:
        """cap * tanh(x / cap), element-wise."""
        ...

    def scale(self, x: Tensor, factor: float) -> Tensor:
        """factor * x, element-wise; factor rounded to float32."""
        ...


class Model(Protocol[Weight_co, Vector_co]):
    """One architecture with its parameters loaded."""

    def forward(self, ops: Ops[Tensor, Weight_co, Vector_co]) -> Tensor | None:
        """The program of one step: returns logits [num_logits, vocab_size], None without an output head."""
        ...


class BlockMemory(Protocol):
    """The KV cache as blocks of bytes, all layers of a block together, in whatever order a device keeps them."""

    def copy_blocks(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy whole KV blocks (source, destination) in every layer, in the order given."""
        ...

    def blocks_to_host(self, moves: Sequence[tuple[int, int]], host: U8) -> None:
        """Copy (block, row) from the KV cache to rows of host [rows, bytes of a block]; blocks and rows are distinct."""
        ...

    def blocks_from_host(self, moves: Sequence[tuple[int, int]], host: U8) -> None:
        """Copy (block, row) from rows of host to the KV cache; blocks are distinct, rows need not be."""
        ...

    def host_blocks(self) -> U8 | None:
        """The KV cache itself, uint8 [num_blocks, bytes of a block], valid until the cache is replaced; None where blocks do
        not lie in host memory, or not in one piece."""
        ...


class Sampling(Protocol[Logits_contra]):
    """Logits to tokens and logprobs, on the device."""

    def sample(self, logits: Logits_contra, rows: SampleRows) -> SampleResult:
        """Choose a token for each row. The logits stay unchanged; the result is valid until the next call.

        Order: forbidden tokens become -inf; logprobs of these logits; bias; repetition (prompt and output), presence and
        frequency (output) penalties; greedy = largest logit, lowest id on ties; else divide by temperature, keep top_k, then
        top_p, then min_p, and take the first token, in order of falling logit then rising id, whose cumulative probability
        exceeds u(seed, choice, position).
        """
        ...

    def logprobs(self, logits: Logits_contra, rows: I32, token_ids: I32, top: int) -> SampleResult:
        """Raw log-softmax of given tokens at given logit rows, with their rank and the `top` alternatives (prompt logprobs).

        The result is valid until the next call of this or `sample`.
        """
        ...

    def read_logits(self, logits: Logits_contra) -> F32:
        """The numbers, float32 [num_logits, vocab_size], in host memory; valid until the program's next run."""
        ...


class Backend(BlockMemory, Sampling[Logits], Protocol[Weight, Vector, KVCache, Logits]):
    """A device: loads parameters, owns the KV cache, turns a model into a program, samples.

    In this order: parameters are loaded, `available_bytes` tells what is left, the KV cache is allocated, models are compiled.
    """

    @property
    def parameters(self) -> ParameterOps[Weight, Vector]: ...

    def available_bytes(self) -> int:
        """Memory that the device can give now, what is loaded being counted."""
        ...

    def allocate_kv_cache(self, spec: KVCacheSpec) -> None:
        """Reserve the KV cache. Raises ConfigError if the memory cannot be had."""
        ...

    def replace_kv_cache(self, spec: KVCacheSpec) -> KVCache:
        """Reserve another KV cache for the programs compiled from now on; returns the one before, untouched.

        Raises ConfigError if the memory cannot be had; the cache stays then.
        """
        ...

    def restore_kv_cache(self, previous: KVCache) -> None:
        """Undo `replace_kv_cache`."""
        ...

    def move_tokens(self, previous: KVCache, moves: Sequence[TokenRun]) -> None:
        """Copy keys and values of `moves` in every layer from the previous cache into the present one, bit by bit.

        The previous cache, and with it every program compiled for it, is spent.
        """
        ...

    def compile(
        self, model: Model[Weight, Vector], *, max_tokens: int, max_logits: int, max_position: int, eager: bool
    ) -> Program[Logits]:
        """A program for steps of at most these sizes, at positions below max_position; eager runs op by op, same bytes.

        Raises LoadError for a rotation whose angles cannot be computed.
        """
        ...

    def describe(self) -> dict[str, str]:
        """Facts for the start-up lines: isa, threads, weight formats and bytes."""
        ...
