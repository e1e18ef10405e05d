"""Fuzzing the files: damaged GGUF files and model folders, loaded in a process that is watched.

    python tests/fuzz/files.py [--gguf N] [--folders N] [--coded N] [--first SEED]

Whatever the bytes are, a load works or ends with an error of octavo's own, within 20 s of processor time and in bounded memory.
Prints one line per fault, with the seed that makes the file again, and ends with exit code 1 if there was one.
"""

from __future__ import annotations

import argparse
import os
import select
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

HANG_S = 120.0
"""For a load that waits; one that computes is ended by the limit on its processor time (load_child)."""
ROOT = Path(__file__).parents[2]


def campaign(kind: str, first: int, last: int) -> tuple[Counter[str], list[str]]:
    """How many loads ended how, and the faults. A process that dies or hangs is replaced behind the seed that did it."""
    counts: Counter[str] = Counter()
    faults: list[str] = []
    with tempfile.TemporaryDirectory(prefix="octavo-fuzz-") as place:
        while first < last:
            command = [sys.executable, "-W", "ignore", "-m", "tests.fuzz.load_child", place, kind, str(first), str(last)]
            with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
                for line in _lines(child):
                    seed, outcome, *more = line.split(maxsplit=2)
                    first = int(seed) + 1
                    counts[outcome] += 1
                    if outcome == "fault":
                        faults.append(f"{kind} {seed}: {' '.join(more)}")
                child.kill()
            code = child.returncode
            if first < last and code != 0:
                counts["fault"] += 1
                faults.append(f"{kind} {first}: " + ("no answer in time" if code == -9 else f"the process ended with {code}"))
                first += 1
    return counts, faults


def _lines(child: subprocess.Popen[bytes]) -> Iterator[str]:
    """The child's lines until it ends, or prints none for HANG_S (the first one: three times that, for it imports)."""
    assert child.stdout is not None
    descriptor, buffer, patience_s = child.stdout.fileno(), b"", 3 * HANG_S
    while select.select([descriptor], [], [], patience_s)[0]:
        piece = os.read(descriptor, 1 << 16)
        if not piece:
            return
        *lines, buffer = (buffer + piece).split(b"\n")
        if lines:
            patience_s = HANG_S
        yield from (line.decode() for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Load damaged model files.")
    parser.add_argument("--gguf", type=int, default=3000)
    parser.add_argument("--folders", type=int, default=2800)
    parser.add_argument("--coded", type=int, default=1600, help="folders of codes")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    options = parser.parse_args()
    failed = False
    for kind, count in (("gguf", options.gguf), ("folder", options.folders), ("coded", options.coded)):
        counts, faults = campaign(kind, options.first, options.first + count)
        print(f"{kind}: " + ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts.items())))
        print("".join(f"  {fault}\n" for fault in faults), end="", flush=True)
        failed = failed or bool(faults)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
