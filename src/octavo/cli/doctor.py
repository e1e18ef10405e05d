"""octavo doctor: would `octavo serve` with these options start?"""

from __future__ import annotations

from typing import Any

import click

from octavo.cli.doctor_checks import check_all
from octavo.cli.engine_options import engine_config, engine_options, model_argument
from octavo.cli.help import CONTEXT_SETTINGS, SectionedCommand
from octavo.config.flags import config_options, make_section
from octavo.config.server import ServerConfig

EXAMPLES = """
octavo doctor                                   the embedded model on port 8000
octavo doctor model.gguf --port 9000            the options of `octavo serve`
"""


@click.command(cls=SectionedCommand, context_settings=CONTEXT_SETTINGS, examples=EXAMPLES)
@model_argument
@config_options([ServerConfig])
@engine_options
def doctor(model_argument: str | None, **values: Any) -> int:
    """Check what makes a start of `octavo serve` fail, with the same options, and say how to mend it.

    The port and who has it, certificates, limits of files and threads, the CPU, the model's files, memory for weights and
    KV cache, and, where there is one, the CUDA driver. Exit code 1 if a start would fail.
    """
    engine, server = engine_config(model_argument, values), make_section(ServerConfig, values)
    failed = 0
    for finding in check_all(engine, server):
        failed += finding.level == "fail"
        print(f"{finding.level:<5} {finding.name}: {finding.text}" + (f"\n      fix: {finding.fix}" if finding.fix else ""))
    print("a start would fail" if failed else "nothing keeps the server from starting")
    return 1 if failed else 0
