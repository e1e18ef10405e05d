"""octavo serve: the HTTP server."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.cli.lazy_progress import lazy_pull_progress
from octavo.config.flags import config_options, make_section
from octavo.config.server import ServerConfig
from octavo.server.run import run_server

EXAMPLES = """
octavo serve                                    the embedded model on http://127.0.0.1:8000
octavo serve model.gguf --port 9000             a GGUF file
octavo serve ./Qwen3-0.6B --host 0.0.0.0 --api-key "$KEY"
octavo serve --kv-cache-memory 0.5 --max-model-len 2048
curl http://127.0.0.1:8000/v1/chat/completions -H 'content-type: application/json' \\
     -d '{"messages": [{"role": "user", "content": "Hello!"}]}'
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@model_argument
@config_options([ServerConfig])
@engine_options
def serve(model_argument: str | None, **values: Any) -> None:
    """Serve MODEL over HTTP: a Hugging Face folder, a .gguf file, a hub name, or nothing for the embedded model.

    The API is OpenAI's, and Ollama's under /api: /v1/chat/completions, /v1/completions, /v1/models; besides /tokenize,
    /detokenize, /health, /metrics and interactive documentation at /docs. Every option may also be set in the
    environment: --max-num-seqs is OCTAVO_MAX_NUM_SEQS.
    """
    started_s = time.perf_counter() - process_age_s()
    config, server_config = engine_config(model_argument, values), make_section(ServerConfig, values)
    with lazy_pull_progress() as report:
        run_server(config, server_config, started_s=started_s, report=report)


def process_age_s() -> float:
    """Seconds since this process was started, the interpreter's own start included; its CPU time where there is no /proc."""
    try:
        start_ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - start_ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return time.process_time()
