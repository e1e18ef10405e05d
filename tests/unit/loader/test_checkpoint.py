"""Opening a checkpoint: which format, which identity, what is refused."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.checkpoints import open_checkpoint

from octavo.errors import ConfigError, LoadError
from octavo.loader.checkpoint import open_config
from octavo.loader.sampling_advice import SamplingAdvice

WriteGguf = Callable[..., Path]
WriteFolder = Callable[..., Path]


def test_auto_tells_folders_from_gguf_files(write_folder: WriteFolder, write_gguf: WriteGguf) -> None:
    folder, file = open_checkpoint(write_folder()), open_checkpoint(write_gguf())
    assert folder.gguf is None and folder.config.dtype == "float32"
    assert file.gguf is not None and file.config.dtype == "gguf"
    assert file.gguf.metadata["tokenizer.ggml.bos_token_id"] == 0


def test_a_folder_with_one_gguf_model_is_opened(write_gguf: WriteGguf, tmp_path: Path) -> None:
    write_gguf()
    assert open_checkpoint(tmp_path).path == tmp_path / "tiny.gguf"
    write_gguf(name="other.gguf")
    with pytest.raises(LoadError, match="2 GGUF models"):
        open_checkpoint(tmp_path)


def test_shards_make_one_checkpoint(write_gguf: WriteGguf, tmp_path: Path) -> None:
    whole = open_checkpoint(write_gguf())
    names = [name for name in whole.gguf.tensors if name.startswith("blk.1.")] if whole.gguf else []
    rest = [name for name in whole.gguf.tensors if name not in names] if whole.gguf else []
    write_gguf(name="s-00001-of-00002.gguf", keys={"split.no": 0, "split.count": 2}, arrays=dict.fromkeys(names))
    second = write_gguf(name="s-00002-of-00002.gguf", keys={"split.no": 1, "split.count": 2}, arrays=dict.fromkeys(rest))
    split = open_checkpoint(second)
    assert split.gguf is not None and split.gguf.path.name == "s-00001-of-00002.gguf"
    assert all(np.array_equal(split.tensors[name].to_float32(), tensor.to_float32()) for name, tensor in whole.tensors.items())


def test_open_config_does_not_need_the_weights(write_folder: WriteFolder) -> None:
    folder = write_folder()
    config = open_checkpoint(folder).config
    (folder / "model.safetensors").unlink()
    assert open_config(folder) == (config, SamplingAdvice())


def test_the_stored_dtype_wins_over_the_claimed_one(write_folder: WriteFolder) -> None:
    values = np.zeros((48, 64), dtype=np.float16)
    assert open_checkpoint(write_folder(arrays={"model.embed_tokens.weight": values})).config.dtype == "float16"


def test_weights_version_is_stable_and_changes_with_the_file(write_gguf: WriteGguf, tmp_path: Path) -> None:
    path = write_gguf()
    version = open_checkpoint(path).weights_version
    assert len(version) == 32 and open_checkpoint(path).weights_version == version
    os.utime(path, ns=(1, 1))
    assert open_checkpoint(path).weights_version != version


def test_weights_version_of_a_folder_covers_every_shard(write_folder: WriteFolder) -> None:
    folder = write_folder(shards=2)
    version = open_checkpoint(folder).weights_version
    os.utime(folder / "model-00002-of-00002.safetensors", ns=(1, 1))
    assert open_checkpoint(folder).weights_version != version


def test_unknown_formats_and_missing_paths_are_refused(write_gguf: WriteGguf, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="known: auto, safetensors, gguf, dummy"):
        open_checkpoint(tmp_path, "pickle")
    with pytest.raises(LoadError, match="no such file or folder"):
        open_checkpoint(tmp_path / "absent")
    with pytest.raises(LoadError, match=r"no \.gguf file"):
        open_checkpoint(tmp_path, "gguf")
    with pytest.raises(LoadError, match="needs a model folder"):
        open_checkpoint(write_gguf(), "dummy")


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("hello, this is no model")
    with pytest.raises(LoadError, match=r"notes\.txt: not a GGUF file"):
        open_checkpoint(path)


def test_the_embedded_model_opens_at_once_and_unpacks(smollm2_gguf: Path) -> None:
    durations = []  # CPU seconds: other processes do not count
    for _ in range(3):
        start = time.thread_time()
        checkpoint = open_checkpoint(smollm2_gguf)
        durations.append(time.thread_time() - start)
    assert min(durations) < 0.15
    assert len(checkpoint.tensors) == 272
    tensor = checkpoint.tensors["model.layers.3.mlp.up_proj.weight"]
    blocks = tensor.to_codes()
    assert blocks.bits == 4 and blocks.group == 32 and blocks.minimums is not None


def test_a_copy_of_a_folder_has_the_same_tensors(write_folder: WriteFolder, tmp_path: Path) -> None:
    folder = write_folder()
    copy = shutil.copytree(folder, tmp_path / "copy")
    assert all(
        np.array_equal(open_checkpoint(copy).tensors[name].to_float32(), tensor.to_float32())
        for name, tensor in open_checkpoint(folder).tensors.items()
    )


def test_what_is_neither_file_nor_folder_is_refused_and_not_waited_for(write_folder: WriteFolder, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero")):
        with pytest.raises(LoadError, match="neither a regular file nor a folder"):
            open_checkpoint(path)
    folder = write_folder()
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")
    with pytest.raises(LoadError, match="model.safetensors"):
        open_checkpoint(folder)
