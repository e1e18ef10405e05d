"""A core process around the fake worker, for tests of supervision: its prompts can make it slow or busy, hang or die."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.fakes import FakeWorker, make_fake_core

from octavo.config.engine import EngineConfig
from octavo.engine.core import process
from octavo.engine.core.build import BuiltCore
from octavo.step import StepPlan

SLOW_STEP_S = 0.02
BUSY_STEP_S = 5.0


def make_core(config: EngineConfig) -> BuiltCore:
    def before_step(plan: StepPlan) -> None:
        for share in plan.sequences:
            new, token_ids = worker.known[share.seq_id]
            prompt = bytes(new.token_ids[: new.num_prompt]).decode()
            if prompt.startswith("slow"):
                time.sleep(SLOW_STEP_S)
            elif prompt.startswith("hang"):
                time.sleep(600)
            elif prompt.startswith("busy") and len(token_ids) == new.num_prompt + 1:
                end_s = time.monotonic() + BUSY_STEP_S
                while time.monotonic() < end_s:
                    pass  # computes
            elif prompt.startswith("die") and len(token_ids) > new.num_prompt:
                os._exit(3)

    worker = FakeWorker(before_step=before_step)
    return make_fake_core(config, worker)


if __name__ == "__main__":
    sys.exit(process.main(make_core))
