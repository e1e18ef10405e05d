"""load_tokenizer: from a model path to its tokenizer, whatever container it lies in."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import LoadError
from octavo.loader.gguf import GgufFile
from octavo.text.gguf_tokenizer import tokenizer_from_gguf
from octavo.text.hf_tokenizer import tokenizer_from_folder
from octavo.text.tokenizer import Tokenizer


def load_tokenizer(path: Path, gguf: GgufFile | None = None) -> Tokenizer:
    """The tokenizer of a model folder or of a .gguf file. Pass `gguf` if the file is open already (with its large arrays).

    Raises LoadError naming the file, and what is missing or damaged in it.
    """
    if gguf is not None:
        return tokenizer_from_gguf(gguf.metadata, path)
    if path.is_dir():
        return tokenizer_from_folder(path)
    if not path.exists():
        raise LoadError(f"{path}: no such file or folder")
    return tokenizer_from_gguf(GgufFile(path).metadata, path)
