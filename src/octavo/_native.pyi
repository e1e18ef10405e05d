"""octavo's native core: thread pool, packed weights, tape, sampler."""

from collections.abc import Sequence
import enum
from typing import Annotated

import numpy
from numpy.typing import NDArray


def usable_isas() -> list[str]:
    """Kernel variants this CPU can run, best first."""

class FileGuard:
    """
    While it lives, a map reads zeros where its file was cut short, instead of SIGBUS.
    """

    def __init__(self, map: Annotated[NDArray[numpy.uint8], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """The guard keeps the address alone: it must not outlive the map."""

    @property
    def was_cut(self) -> bool: ...

class ThreadPool:
    """A fixed team of compute threads."""

    def __init__(self, size: int) -> None: ...

    @property
    def size(self) -> int: ...

class Limits:
    """What this machine can do at most, all threads together."""

    @property
    def read_bytes_per_s(self) -> float: ...

    @property
    def fma_macs_per_s(self) -> float: ...

    @property
    def int8_macs_per_s(self) -> float: ...

def measure_limits(pool: ThreadPool, isa: str) -> Limits:
    """Measure memory and arithmetic; takes about half a second."""

class WeightKind(enum.Enum):
    f32 = 0

    f16 = 1

    bf16 = 2

    q8 = 3

    q4 = 4

    w8a8 = 5

class FloatType(enum.Enum):
    f32 = 0

    f16 = 1

    bf16 = 2

class BlockFormat(enum.Enum):
    q8_0 = 0

    q4_0 = 1

    q4_1 = 2

    q5_0 = 3

    q5_1 = 4

    q4_k = 5

    q5_k = 6

    q6_k = 7

class Linear:
    """
    A linear weight in panels; its outputs are those of its parts one after the other.
    """

    def __init__(self) -> None: ...

    @property
    def rows(self) -> int: ...

    @property
    def cols(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    def append_float(self, pool: ThreadPool, data: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], row_order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, cols: int, type: FloatType, kind: WeightKind, codes: WeightKind | None = None, group: int = 32) -> bool:
        """
        Append rows of float32, float16 or bfloat16, rounded to kind and then, if given, to codes: q8 or q4 in groups of columns, or w8a8; False if a value is not finite.
        """

    def append_blocks(self, pool: ThreadPool, data: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], row_order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)] | None, cols: int, format: BlockFormat, as_kind: WeightKind | None, codes: WeightKind | None = None, group: int = 32) -> bool:
        """
        Append rows of GGUF blocks, kept to the bit, or widened to a float kind and held as append_float does; False if a scale is not finite.
        """

    def append_codes(self, pool: ThreadPool, codes: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], scales: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], mins: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)] | None, bits: int, group: int, zero_point: int, scale_f16: bool) -> bool:
        """
        Append unpacked codes with group scales; False if a scale is not finite.
        """

    def set_column_order(self, order: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """
        Column i of the codes of all parts belongs to column order[i] of the input.
        """

    def set_bias(self, bias: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> None:
        """Give the last part a bias."""

class Vector:
    @property
    def size(self) -> int: ...

class RopeTable:
    pass

def make_vector(values: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> Vector: ...

def make_rope_table(cos: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)], sin: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> RopeTable:
    """cos, sin: float32 [positions, rotary_dim / 2]."""

class KvKind(enum.Enum):
    f32 = 0

    f16 = 1

    bf16 = 2

    i8 = 3

class KvCache:
    """Memory of keys and values, by block and layer."""

    def __init__(self, kind: KvKind, num_layers: int, num_blocks: int, num_kv_heads: int, block_size: int, head_dim: int) -> None: ...

    @property
    def bytes(self) -> int: ...

    def copy_blocks(self, pairs: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)]) -> None: ...

    def take_tokens(self, source: KvCache, runs: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], pool: ThreadPool) -> None:
        """
        Moves tokens here from a cache that differs in its blocks alone, and spends that one.
        """

    def to_host(self, moves: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], host: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu')], pool: ThreadPool) -> None:
        """
        Copy blocks to rows of host [rows, bytes of a block]; moves int32 [n, 2] of (block, row).
        """

    def from_host(self, moves: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], host: Annotated[NDArray[numpy.uint8], dict(shape=(None, None), order='C', device='cpu', writable=False)], pool: ThreadPool) -> None:
        """Copy rows to blocks; as to_host."""

    def blocks(self) -> Annotated[NDArray[numpy.uint8], dict(shape=(None, None))]:
        """uint8 [num_blocks, bytes of a block], a view of the cache's memory."""

class View:
    @property
    def cols(self) -> int: ...

    def slice(self, first: int, cols: int) -> View: ...

class IndexKind(enum.Enum):
    """What an embedding looks its rows up by."""

    token = 0

    position = 1

    zero = 2

class AttentionLayer:
    pass

def attention_layer(layer: int, num_heads: int, num_kv_heads: int, head_dim: int, scale: float, window: int, softcap: float, causal: bool) -> AttentionLayer: ...

class StepArrays:
    pass

def step_arrays(cache: KvCache, max_position: int, token_ids: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], positions: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], slots: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], query_start: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], first_position: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], block_tables: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], logit_rows: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)]) -> StepArrays:
    """Check a step's arrays; the result points into them."""

class PhaseProfile:
    """What the phases of one label cost since profiling was switched on."""

    @property
    def label(self) -> str: ...

    @property
    def runs(self) -> int: ...

    @property
    def seconds(self) -> float: ...

    @property
    def macs(self) -> float: ...

    @property
    def bytes(self) -> float: ...

class Recording:
    """A forward pass as instructions, for steps of any size."""

    @property
    def num_instructions(self) -> int: ...

    @property
    def num_phases(self) -> int: ...

class Recorder:
    """Turns model operations into instructions."""

    @staticmethod
    def create(cache: KvCache) -> Recorder: ...

    def embedding(self, table: Linear, scale: float, index: IndexKind) -> View: ...

    def linear(self, x: View, weight: Linear) -> View: ...

    def rms_norm(self, x: View, weight: Vector, eps: float) -> View: ...

    def layer_norm(self, x: View, weight: Vector, bias: Vector, eps: float) -> View: ...

    def add(self, a: View, b: View) -> View: ...

    def rope(self, x: View, table: RopeTable, head_dim: int) -> View: ...

    def kv_write(self, k: View, v: View, layer: AttentionLayer) -> None: ...

    def attention(self, q: View, layer: AttentionLayer) -> View: ...

    def silu_mul(self, gate_up: View) -> View: ...

    def gelu_mul(self, gate_up: View) -> View: ...

    def gelu(self, x: View) -> View: ...

    def select_rows(self, x: View) -> View: ...

    def softcap(self, x: View, cap: float) -> View: ...

    def scale(self, x: View, factor: float) -> View: ...

    def gate_rows(self, x: View, gate: View) -> View: ...

    def route(self, logits: View, top_k: int, renormalise: bool) -> View: ...

    def dispatch(self, x: View, routes: View) -> View: ...

    def experts(self, x: View, weights: Sequence[Linear]) -> View: ...

    def combine(self, x: View, routes: View) -> View: ...

    def seal(self, logits: View | None, hidden: View | None) -> Recording:
        """End the recording; the two can be read from its executor."""

class Executor:
    """The memory of a recording, and its way through steps."""

    @staticmethod
    def create(pool: ThreadPool, isa: str, cache: KvCache, recording: Recording, max_tokens: int, max_logits: int) -> Executor: ...

    def run(self, step: StepArrays) -> None: ...

    def read_logits(self, rows: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        float32 [rows, vocabulary], a view of the executor's memory until the next step.
        """

    def read_hidden(self, rows: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """
        float32 [rows, hidden size], a view of the executor's memory until the next step.
        """

    def set_profiling(self, on: bool) -> None:
        """Start counting afresh, or stop."""

    def profile(self) -> list[PhaseProfile]: ...

    @property
    def buffer_bytes(self) -> int: ...

class Immediate:
    """Runs each instruction when it is emitted."""

    @staticmethod
    def create(pool: ThreadPool, isa: str, cache: KvCache, max_tokens: int, max_logits: int) -> Immediate: ...

    @property
    def recorder(self) -> Recorder: ...

    def begin(self, step: StepArrays) -> None: ...

    def read(self, view: View, rows: int) -> Annotated[NDArray[numpy.float32], dict(shape=(None, None))]:
        """float32 [rows, view.cols], memory of the view until the next step."""

class Sampler:
    """Chooses tokens and computes logprobs, one row at a time on the pool."""

    @staticmethod
    def create(pool: ThreadPool, isa: str) -> Sampler: ...

    def sample(self, arg0: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg4: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg5: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg6: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg7: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg8: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg9: Annotated[NDArray[numpy.uint64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg10: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg11: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg12: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg13: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg14: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg15: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg16: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg17: Annotated[NDArray[numpy.int64], dict(shape=(None,), order='C', device='cpu', writable=False)], arg18: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg19: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg20: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu', writable=False)], arg21: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg22: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu')], arg23: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], arg24: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg25: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], arg26: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], /) -> None: ...

    def given(self, arg0: Annotated[NDArray[numpy.float32], dict(shape=(None, None), device='cpu', writable=False)], arg1: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg2: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu', writable=False)], arg3: int, arg4: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg5: Annotated[NDArray[numpy.bool_], dict(shape=(None,), order='C', device='cpu')], arg6: Annotated[NDArray[numpy.float32], dict(shape=(None,), order='C', device='cpu')], arg7: Annotated[NDArray[numpy.int32], dict(shape=(None,), order='C', device='cpu')], arg8: Annotated[NDArray[numpy.int32], dict(shape=(None, None), order='C', device='cpu')], arg9: Annotated[NDArray[numpy.float32], dict(shape=(None, None), order='C', device='cpu')], /) -> None: ...
