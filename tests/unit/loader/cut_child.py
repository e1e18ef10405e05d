"""Octavo commands that have a model file cut short while they read the weights. Argument: JSON, a list of cases
[file, size, when, [command ...]]; prints the exit code of each on standard output.

size   bytes that are left; "again": the file is empty for one weight, then whole, with its old time of change
when   how many weights are loaded before
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from octavo.cli import main as cli
from octavo.models.source import LoadedParameters

_LINEAR = LoadedParameters.linear


def run_cut(path: Path, size: int | str, when: int, command: list[str]) -> int:
    """The exit code; the file is whole again afterwards."""
    content, status, loaded = path.read_bytes(), path.stat(), 0

    def restore() -> None:
        path.write_bytes(content)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    def linear(*arguments: Any, **options: Any) -> Any:
        nonlocal loaded
        if loaded == when:
            os.truncate(path, size if isinstance(size, int) else 0)
        weight: object = _LINEAR(*arguments, **options)
        if loaded == when and size == "again":
            restore()
        loaded += 1
        return weight

    LoadedParameters.linear = linear  # type: ignore[method-assign]
    code = cli.run(command)
    restore()
    return code


def main() -> None:
    for path, size, when, command in json.loads(sys.argv[1]):
        print(run_cut(Path(path), size, when, command), flush=True)


if __name__ == "__main__":
    main()
