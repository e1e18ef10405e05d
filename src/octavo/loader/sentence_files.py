"""What the files of sentence-transformers in a model folder say: how hidden states are pooled, and how long a text may be.

modules.json               the steps of the model, in order: Transformer, Pooling, Normalize
1_Pooling/config.json      pooling_mode_cls_token, pooling_mode_mean_tokens, ...; modules.json has the path
sentence_bert_config.json  max_seq_length
"""

from __future__ import annotations

import json
from pathlib import Path

from octavo.config.model import PoolingConfig
from octavo.errors import LoadError
from octavo.loader.fields import MAX_JSON_BYTES, Fields, read_json_object, shown
from octavo.pooling_params import PoolingKind

SENTENCE_FILES = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json")
_KINDS: dict[str, PoolingKind] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "last",
}
_KIND_WORDS: dict[str, PoolingKind] = {"cls": "cls", "mean": "mean", "lasttoken": "last"}


def read_pooling(folder: Path, default: PoolingConfig) -> PoolingConfig:
    """The pooling that the folder's files describe, `default` without such files.

    Raises: LoadError naming the file for one that is damaged, and for a kind of pooling that octavo does not have.
    """
    path = folder / "modules.json"
    if not path.is_file():
        return default
    modules = _read_modules(path)
    pooling = next((where for kind, where in modules if kind == "Pooling"), None)
    if pooling is None:
        return default
    normalizes = any(kind == "Normalize" for kind, _ in modules)
    return PoolingConfig(kind=_kind_of(folder / pooling / "config.json"), normalize=normalizes)


def read_max_length(folder: Path, max_position: int) -> int:
    """Longest text in tokens: what sentence_bert_config.json says, at most max_position."""
    path = folder / "sentence_bert_config.json"
    if not path.is_file():
        return max_position
    asked = Fields(read_json_object(path), str(path)).optional_integer("max_seq_length", low=1)
    return max_position if asked is None else min(asked, max_position)


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """(last word of the type, path) of each step."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise ValueError("it is too large")
        modules = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{path}: cannot be read as JSON ({error}); fetch the file again") from None
    entries = modules if isinstance(modules, list) else [None]
    found: list[tuple[str, str]] = []
    for entry in entries:
        kind, where = (entry.get("type"), entry.get("path", "")) if isinstance(entry, dict) else (None, None)
        if not isinstance(kind, str) or not isinstance(where, str) or where.startswith("/") or ".." in Path(where).parts:
            raise LoadError(f"{path}: must be a list of steps with a type and a path within the folder")
        found.append((kind.rpartition(".")[2], where))
    return found


def _kind_of(path: Path) -> PoolingKind:
    if not path.is_file():
        raise LoadError(f"{path} is missing, although modules.json names it; fetch the file, or remove modules.json")
    fields = Fields(read_json_object(path), str(path))
    if fields.has("pooling_mode"):
        word = fields.text("pooling_mode")
        modes = [word]
        kind = _KIND_WORDS.get(word)
    else:
        modes = [key for key, value in fields.values.items() if key.startswith("pooling_mode_") and value is True]
        kind = _KINDS.get(modes[0]) if len(modes) == 1 else None
    if kind is None:
        raise LoadError(f"{path}: the pooling is {shown(modes)}; octavo has {', '.join(_KINDS)}, one of them at a time")
    return kind
