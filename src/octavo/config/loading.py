"""LoadingConfig: which model, from where, and in which numbers its weights are held."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option

DEFAULT_MODEL = "smollm2-135m-instruct"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingConfig:
    model: str = option(
        DEFAULT_MODEL, "Model folder, .gguf file, embedded model name or Hugging Face hub name. Default: the embedded model."
    )
    load_format: str = option(
        "auto",
        "Container of the weights; dummy makes random weights from config.json alone.",
        choices=("auto", "safetensors", "gguf", "dummy"),
    )
    dtype: str = option(
        "auto",
        "Storage type of the weights: auto keeps the checkpoint's own (quantised blocks stay quantised).",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    quantization: str = option(
        "auto",
        "int8 quantises float checkpoints at load (groups of 32); none refuses to; auto keeps what the checkpoint has.",
        choices=("auto", "int8", "none"),
    )
    chat_template: str | None = option(
        None, "Jinja chat template, inline or a file, used instead of the model's own.", metavar="FILE"
    )
    served_model_name: str | None = option(None, "Name the API knows the model by. Default: the model as given.")
