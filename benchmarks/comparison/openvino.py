"""OpenVINO GenAI as a contestant: its continuous-batching pipeline reads the GGUF and gets the whole load as one offline batch.

It has no server of its own, so its figures lack HTTP, tokenised streaming and latencies: they flatter it a little.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from comparison.processes import PeerError, run_tool
from comparison.settings import Settings
from octavo.loadgen.workload import Job

NAME = "openvino (offline)"
SCRIPT = Path(__file__).parents[1] / "peers" / "openvino_batch.py"
CACHE_GIB = 2


def measure_batch(settings: Settings, jobs: Sequence[Job], concurrency: int) -> dict[str, float]:
    """Tokens per second of completing all jobs with `concurrency` sequences at once; loading is not counted."""
    result = run_batch(settings, jobs, concurrency)
    try:
        seconds, num_output = result["seconds"], result["output_tokens"]
        return {"total_tok_s": (result["input_tokens"] + num_output) / seconds, "output_tok_s": num_output / seconds}
    except (KeyError, ZeroDivisionError) as error:
        raise PeerError(f"openvino: the result lacks {error}") from None


def run_batch(settings: Settings, jobs: Sequence[Job], concurrency: int) -> dict[str, float]:
    """What openvino_batch.py printed."""
    request = {
        "model": str(settings.llama_model),
        "threads": settings.threads,
        "concurrency": concurrency,
        "cache_gib": CACHE_GIB,
        "prompts": [job.prompt for job in jobs],
        "output_lens": [job.output_len for job in jobs],
    }
    command = [str(settings.openvino_python), "-I", str(SCRIPT)]
    output, _ = run_tool("openvino", command, settings.run_timeout_s, json.dumps(request))
    return parse(output)


def parse(output: str) -> dict[str, float]:
    """The numbers of the last line. Raises PeerError if it is not JSON."""
    line = (output.strip().splitlines() or [""])[-1]
    try:
        return {key: float(value) for key, value in json.loads(line).items() if isinstance(value, int | float)}
    except (ValueError, AttributeError):
        raise PeerError(f"openvino: the last line is not JSON: {line[:200]!r}") from None


def version(python: Path) -> str:
    command = [str(python), "-I", "-c", "import openvino_genai; print(openvino_genai.get_version())"]
    return run_tool("openvino", command, 120.0)[0].strip()
