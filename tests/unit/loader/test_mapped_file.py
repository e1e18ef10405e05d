"""A file that is cut short while its map is read: zeros and a flag, and in the end one line; never a signal."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import gguf
import pytest

ROOT = Path(__file__).parents[3]
BENCH = ("bench", "latency", "--batch-size", "1", "--input-len", "4", "--output-len", "1", "--max-model-len", "64")

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]


Case = tuple[Path, int | str, int, tuple[str, ...]]
"""File, size, when, options: as in cut_child."""


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)


def load_while_cut(model: Path, *cases: Case) -> None:
    """Each ends with exit code 2 and one line that names the file."""
    commands = [[str(file), size, when, [*BENCH, *options, str(model)]] for file, size, when, options in cases]
    done = run("-m", "tests.unit.loader.cut_child", json.dumps(commands))
    assert (done.returncode, done.stdout.split()) == (0, ["2"] * len(cases)), (done.returncode, done.stderr)
    for (file, *_), line in zip(cases, done.stderr.splitlines(), strict=True):
        assert f"{file} was " in line and " were read" in line, line


def test_a_gguf_file_cut_short_while_it_is_packed_is_one_line(write_gguf: WriteGguf) -> None:
    path = write_gguf()
    last = path.stat().st_size - 1  # within a page that is still there: no signal tells of it
    load_while_cut(path, *((path, size, when, ()) for size in (0, 10_000, 50_000, last, "again") for when in (0, 4)))


@pytest.mark.parametrize("options", [("--device", "reference"), ("--dtype", "float16"), ("--quantization", "int4")])
def test_so_is_one_that_is_read_in_another_way(write_gguf: WriteGguf, options: tuple[str, ...]) -> None:
    path = write_gguf(quantised=gguf.GGMLQuantizationType.Q8_0 if "int4" not in options else gguf.GGMLQuantizationType.F16)
    load_while_cut(path, (path, 0, 1, options), (path, 30_000, 0, options), (path, "again", 2, options))


def test_so_is_a_folder(write_folder: WriteFolder, write_gguf: WriteGguf) -> None:
    folder, options = write_folder(), ("--tokenizer", str(write_gguf()))
    file = folder / "model.safetensors"
    load_while_cut(folder, (file, 0, 0, options), (file, 4096, 1, options), (file, "again", 2, options))


def test_so_is_any_shard(write_folder: WriteFolder, write_gguf: WriteGguf) -> None:
    folder, options = write_folder(shards=3), ("--tokenizer", str(write_gguf()))
    shards = [folder / f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    load_while_cut(folder, *((shard, 0, when, options) for shard in shards for when in (0, 3)))


_READ = """
import os, sys
from pathlib import Path
from octavo.loader.mapped_file import map_file, open_file
path = Path(sys.argv[1])
path.write_bytes(b"x" * 100_000)
with open_file(path) as file:
    mapped = map_file(file)
part = mapped.data[60_000:]
print(mapped.was_cut, int(part[0]))
os.truncate(path, 50_000)
print(int(part[0]), int(part[-1]), mapped.was_cut, int(mapped.data[0]))
"""


def test_what_is_gone_reads_as_zero_and_what_is_there_as_it_was(tmp_path: Path) -> None:
    done = run("-c", _READ, str(tmp_path / "file"))
    assert (done.returncode, done.stdout) == (0, "False 120\n0 0 True 120\n"), done.stderr


_FOREIGN = """
import mmap, os, sys
from pathlib import Path
from octavo.loader.mapped_file import map_file, open_file
path = Path(sys.argv[1])
path.write_bytes(b"x" * 100_000)
with open_file(path) as file:
    mapped = map_file(file)
"""
_FAULT = """
with path.open("rb") as file:
    own = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
os.truncate(path, 0)
own[90_000]
"""
_AFTERWARDS = "import gc; data = mapped.data; del mapped, data; gc.collect()\n" + _FAULT


@pytest.mark.parametrize("end", ["import signal; os.kill(os.getpid(), signal.SIGBUS)", _FAULT, _AFTERWARDS])
def test_a_bus_error_of_somebody_else_ends_the_process_as_ever(tmp_path: Path, end: str) -> None:
    assert run("-c", _FOREIGN + end, str(tmp_path / "file")).returncode == -signal.SIGBUS
