"""A process that loads damaged files, one after the other, and prints what came of each: FOLDER KIND FIRST LAST.

A line per seed: seed, "loaded", "refused" (an error of octavo's own) or "fault", and what was raised. The process limits its
own memory and the processor time of a load; who started it watches the clock too, for a load that waits.
"""

from __future__ import annotations

import contextlib
import gc
import os
import resource
import shutil
import sys
import traceback
from pathlib import Path

from tests.fuzz.coded_folders import write_coded_folder
from tests.fuzz.gguf_files import gguf_bytes
from tests.fuzz.mutations import write_folder

from octavo.errors import LoadError, OctavoError
from octavo.loader.checkpoint import open_checkpoint, open_config
from octavo.models.registry import declare, load_model
from octavo.models.source import LoadedParameters
from octavo.ops.registry import AnyBackend, make_backend
from octavo.text.chat_encoding import encode_chat
from octavo.text.chat_template import ChatTemplate
from octavo.text.load import load_tokenizer

MEMORY_BYTES = 1 << 30
ADDRESS_BYTES = 4 << 30
HANG_CPU_S = 20
SPARE_DESCRIPTORS = 2
"""What a library may open once and keep, whatever the number of loads."""
IS_SANITIZED = bool(os.environ.get("FUZZ_SANITIZED"))
"""Under a tool that keeps books on every byte, memory and addresses have no limit."""
TEXT = "ab h\u00e9llo <s> \u2581\U0001f600 \n\x00</s>"


def load(path: Path, backend: AnyBackend) -> str:
    """Everything that serving reads of a file; raises what it raises. "refused" where a part is, with all else read."""
    refused: list[OctavoError] = []
    try:
        open_config(path)
    except LoadError as error:
        refused.append(error)
    try:
        tokenizer = load_tokenizer(path)
        ids = tokenizer.encode(TEXT)
        assert all(token_id >= 0 for token_id in ids)
        tokenizer.decode(ids)
        template = ChatTemplate.for_tokenizer(tokenizer)
        with contextlib.closing(template):
            encode_chat(tokenizer, template, [{"role": "user", "content": "ab h\u00e9llo"}])
    except OctavoError as error:
        refused.append(error)
    try:
        checkpoint = open_checkpoint(path, declare, quiet=True)
        for tensor in checkpoint.tensors.values():
            tensor.check_finite()
            assert tensor.to_float32().shape == tensor.shape
        load_model(checkpoint.config, LoadedParameters(checkpoint.tensors, backend.parameters))
    except LoadError as error:
        refused.append(error)
    for refusal in refused:
        assert "\n" not in refusal.message and len(refusal.message) < 2000, refusal.message
    return "refused" if refused else "loaded"


def most_memory_bytes() -> int:
    """The most that this program has held so far; ru_maxrss would begin with what the process was before it."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def num_descriptors() -> int:
    """Open files of this process, but for those that the next collection of garbage closes."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def main() -> None:
    place, kind, first, last = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    if IS_SANITIZED:
        os.environ.pop("LD_PRELOAD", None)  # the process that renders chat templates has its limit of memory
    else:
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES, ADDRESS_BYTES))
    backend = make_backend("cpu", num_threads=1, isa="auto", dtype="auto", quantization="auto")
    open_before = num_descriptors()
    for seed in range(first, last):
        path = place / f"{kind}-{seed}"
        if kind == "gguf":
            path = path.with_suffix(".gguf")
            path.write_bytes(gguf_bytes(seed))
        else:
            path.mkdir()
            (write_coded_folder if kind == "coded" else write_folder)(path, seed)
        used = resource.getrusage(resource.RUSAGE_SELF)
        spent_s = int(used.ru_utime + used.ru_stime)
        resource.setrlimit(resource.RLIMIT_CPU, (spent_s + HANG_CPU_S, resource.RLIM_INFINITY))
        try:
            outcome = load(path, backend)
        except BaseException as error:
            outcome = "fault " + " ".join(traceback.format_exception_only(error)[-1].split())[:300]
        if not IS_SANITIZED and most_memory_bytes() > MEMORY_BYTES:
            outcome = "fault more memory than the limit"
        print(seed, outcome, flush=True)
        if outcome.startswith("fault more"):
            return
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    if first < last and num_descriptors() > open_before + SPARE_DESCRIPTORS:
        print(last - 1, f"fault {num_descriptors()} open files after {last - first} loads, {open_before} before", flush=True)


if __name__ == "__main__":
    main()
