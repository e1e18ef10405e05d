"""Checkpoint: a model on disk, opened: configuration, named tensors, identity. `open_checkpoint` and `open_config`."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, cast, get_args

from octavo.config.model import ModelConfig, QuantisedFolder
from octavo.errors import ConfigError, LoadError
from octavo.loader.bind import Declare, bind
from octavo.loader.dummy import DummyTensors
from octavo.loader.gguf import GgufFile, open_gguf
from octavo.loader.gguf_config import read_gguf_config
from octavo.loader.gguf_tensors import bind_gguf
from octavo.loader.hf_config import read_hf_config
from octavo.loader.hf_quantisation import OWN_FILES
from octavo.loader.identity import FileIdentity, changed_file, identify
from octavo.loader.mapped_file import MappedFile
from octavo.loader.parameter import Parameter
from octavo.loader.quantised_folder import find_quantised
from octavo.loader.safetensors import FORMATS, SafetensorsFile, have_equal_bytes, open_folder
from octavo.loader.sampling_advice import SamplingAdvice
from octavo.loader.sentence_files import SENTENCE_FILES
from octavo.loader.stored import StoredTensor

log = logging.getLogger(__name__)

SETTINGS_NAMES = ("config.json", "generation_config.json", "model.safetensors.index.json", *OWN_FILES, *SENTENCE_FILES)

LoadFormat = Literal["auto", "safetensors", "gguf", "dummy"]
_DTYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}
_WEIGHT_PREFIXES = ("", "language_model.", "model.language_model.", "bert.")
"""Where the text model's parameters hang in a checkpoint of a larger model; "model.language_model." replaces "model."."""


@dataclass(frozen=True, slots=True, eq=False)
class Checkpoint:
    """An opened model; tensors point into memory maps and cost nothing until they are read.

    path                 the .gguf file (first shard) or the folder
    parameters           what the model declares
    tensors              parameter name -> StoredTensor, in the declared shape
    weights_version      sha256 over names, sizes, change times and headers of the weight files: changes when a file is replaced
    files                every file that was read, so that a later change can be noticed (identity.changed_file)
    generation_defaults  sampling settings that the model's makers recommend
    gguf                 the first GGUF file, whose metadata holds tokenizer and chat template; None for a folder
    maps                 the weight files
    """

    path: Path
    config: ModelConfig
    parameters: Sequence[Parameter]
    tensors: Mapping[str, StoredTensor]
    weights_version: bytes
    files: tuple[FileIdentity, ...]
    generation_defaults: SamplingAdvice
    gguf: GgufFile | None
    maps: tuple[MappedFile, ...]

    @property
    def weight_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        if isinstance(self.tensors, DummyTensors):
            return self.tensors.nbytes  # looking at a dummy tensor would generate it
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def check_unchanged(self) -> None:
        """To be called when the weights have been read: they are those of the files only if these have stayed what they were.

        Raises: LoadError naming the file that was cut short or replaced, or that its disk could not give whole.
        """
        cut = next((mapped.path for mapped in self.maps if mapped.was_cut), None)
        if cut is not None:
            raise LoadError(f"{cut} was cut short while its weights were read, or its disk failed; load it when it is whole")
        changed = changed_file(self.files)
        if changed is not None:
            raise LoadError(f"{changed} while the weights were read; load the model again when its files no longer change")


def open_checkpoint(path: Path, declare: Declare, load_format: str = "auto", *, quiet: bool = False) -> Checkpoint:
    """Open a model folder or GGUF file and check that all parameters are there; no weight is read, except to compare an
    output head with the embedding that the configuration ties it to.

    declare   a configuration to the parameters of its model: models.registry.declare
    quiet     do not repeat the warnings of `open_config`
    Raises: LoadError naming file and key or tensor; ConfigError for an unknown load_format.
    """
    kind, path = _resolve_format(path, load_format)
    if kind == "gguf":
        return _open_gguf(path, declare, quiet)
    settings = _identify_settings(path)
    config, defaults = read_hf_config(path, quiet=quiet)
    if kind == "dummy":
        declared = declare(config)
        version = hashlib.sha256(b"dummy" + (path / "config.json").read_bytes()).digest()
        return Checkpoint(path, config, declared, DummyTensors(declared, config.dtype), version, settings, defaults, None, ())
    files = open_folder(path)
    config = _untied(files, config, path)
    declared = declare(config)
    tensors = _bind_folder(files, declared, path, config.quantised)
    embedding = next(parameter for parameter in declared if parameter.role == "embedding")
    config = replace(config, dtype=_DTYPES.get(tensors[embedding.name].format, config.dtype))
    weights = list(dict.fromkeys(files.values()))
    maps = tuple(file.mapped for file in weights)
    opened = (*settings, *(mapped.identity for mapped in maps))
    return Checkpoint(path, config, declared, tensors, _weights_version(weights, config), opened, defaults, None, maps)


def open_config(path: Path, load_format: str = "auto") -> tuple[ModelConfig, SamplingAdvice]:
    """Configuration and sampling defaults alone. A GGUF file's header is parsed; a folder's weight files are not opened.

    Raises: as open_checkpoint.
    """
    kind, path = _resolve_format(path, load_format)
    return read_gguf_config(open_gguf(path)) if kind == "gguf" else read_hf_config(path)


def _open_gguf(path: Path, declare: Declare, quiet: bool) -> Checkpoint:
    files = open_gguf(path)
    config, defaults = read_gguf_config(files, quiet=quiet)
    declared = declare(config)
    tensors = bind_gguf(files, declared)
    maps = tuple(file.mapped for file in files)
    opened = tuple(mapped.identity for mapped in maps)
    return Checkpoint(path, config, declared, tensors, _weights_version(files, config), opened, defaults, files[0], maps)


def _identify_settings(folder: Path) -> tuple[FileIdentity, ...]:
    return tuple(identify(folder / name) for name in SETTINGS_NAMES if (folder / name).is_file())


def _stored_name(name: str, files: Mapping[str, SafetensorsFile]) -> str | None:
    """Under which name the files hold a parameter; None if they do not."""
    candidates = [
        prefix + (name.removeprefix("model.") if prefix.startswith("model.") else name) for prefix in _WEIGHT_PREFIXES
    ]
    candidates.append(name.removeprefix("model."))  # of a model that was saved without what stands around it
    return next((candidate for candidate in candidates if candidate in files), None)


def _stored_stem(name: str, files: Mapping[str, SafetensorsFile]) -> str | None:
    """Under which name the files hold the arrays of a quantised matrix, ".weight" at its end; None if they do not."""
    for end in (".qweight", ".weight_packed", ".weight"):
        stored = _stored_name(name.removesuffix(".weight") + end, files)
        if stored is not None:
            return stored.removesuffix(end) + ".weight"
    return None


def _untied(files: Mapping[str, SafetensorsFile], config: ModelConfig, folder: Path) -> ModelConfig:
    """config, with an output head of its own if the files hold one that differs from the embedding it should be tied to.

    Fine-tuning often trains the head alone and leaves the flag as it was; transformers takes the head then.
    """
    if not config.tie_embeddings or config.quantised is not None and _has_coded_head(files):
        return replace(config, tie_embeddings=False)
    head, embedding = (_stored_name(name, files) for name in ("lm_head.weight", "model.embed_tokens.weight"))
    if head is None or embedding is None:
        return config
    own, tied = (files[stored].tensor(stored, stored) for stored in (head, embedding))
    if own.shape == tied.shape and own.format == tied.format and have_equal_bytes(own, tied):
        return config
    log.warning(
        "%s: tie_word_embeddings is true, but %s differs from %s; the model's own head is used. "
        "Set tie_word_embeddings to false to silence this",
        folder / "config.json",
        head,
        embedding,
    )
    return replace(config, tie_embeddings=False)


def _has_coded_head(files: Mapping[str, SafetensorsFile]) -> bool:
    """Whether the output head is held as codes or 8-bit floats, so that it cannot be the embedding."""
    plain = _stored_name("lm_head.weight", files)
    if plain is not None and files[plain].entries[plain].dtype not in FORMATS:
        return True
    return any(_stored_name(f"lm_head.{end}", files) is not None for end in ("qweight", "weight_packed"))


def _bind_folder(
    files: dict[str, SafetensorsFile], declared: Sequence[Parameter], folder: Path, quantised: QuantisedFolder | None
) -> dict[str, StoredTensor]:
    """Pick the declared parameters; everything else in the files is left alone."""
    used: set[str] = set()

    def find(name: str, parameter: str) -> StoredTensor | None:
        if quantised is not None and name.endswith(".weight"):
            stem = _stored_stem(name, files)
            tensor = None if stem is None else find_quantised(files, stem, parameter, quantised)
            if tensor is not None:
                return tensor
        stored_name = _stored_name(name, files)
        if stored_name is None:
            return None
        used.add(stored_name)
        return files[stored_name].tensor(stored_name, parameter)

    tensors = bind(declared, lambda parameter: parameter.folder, find, str(folder))
    if len(used) < len(files):
        log.debug("%s: %d tensors are not used by the model", folder, len(files) - len(used))
    return tensors


def _weights_version(files: Sequence[GgufFile] | Sequence[SafetensorsFile], config: ModelConfig) -> bytes:
    """Identity of the weights, 32 bytes: cheap, yet another one whenever a file was written again."""
    digest = hashlib.sha256(repr(config).encode())
    for file in files:
        identity = file.mapped.identity
        digest.update(f"\0{file.path.name}\0{identity.size_bytes}\0{identity.mtime_ns}\0".encode())
        digest.update(identity.digest)
        digest.update(file.header_sha256)
    return digest.digest()


def _resolve_format(path: Path, load_format: str) -> tuple[LoadFormat, Path]:
    """The container to open and its path: "auto" looks at the file name, then at what the folder holds."""
    if load_format not in get_args(LoadFormat):
        known = ", ".join(get_args(LoadFormat))
        raise ConfigError(f"load_format is {load_format!r}; known: {known}", param="load_format")
    if not path.exists():
        raise LoadError(f"{path}: no such file or folder")
    if not (path.is_file() or path.is_dir()):
        raise LoadError(f"{path}: neither a regular file nor a folder")
    if path.is_file():
        if load_format in ("auto", "gguf"):
            return "gguf", path
        raise LoadError(f"{path}: load_format {load_format} needs a model folder, this is a file")
    if load_format == "gguf" or (load_format == "auto" and not (path / "config.json").is_file() and any(path.glob("*.gguf"))):
        return "gguf", _only_gguf(path)
    return cast(LoadFormat, "safetensors" if load_format == "auto" else load_format), path


def _only_gguf(folder: Path) -> Path:
    """The one GGUF model of a folder: a single file, or the first shard of a single set."""
    found = sorted(folder.glob("*.gguf"))
    firsts = [path for path in found if "-of-" not in path.stem or "-00001-of-" in path.stem] or found[:1]
    if not firsts:
        raise LoadError(f"{folder}: no .gguf file")
    if len(firsts) > 1:
        raise LoadError(f"{folder}: {len(firsts)} GGUF models ({firsts[0].name}, {firsts[1].name} ...); name one of them")
    return firsts[0]
