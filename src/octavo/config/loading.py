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
        "int8 and int4 round float weights at load, in groups of columns; w8a8 rounds them to int8 per output, and activations "
        "per token. int4 keeps embedding and output head as int8 groups, w8a8 also the q, k, v and down projections. A file "
        "that is quantised in another way is refused, unless --dtype float32 asks to quantise its values anew. auto and none "
        "never quantise.",
        choices=("auto", "int8", "int4", "w8a8", "none"),
    )
    quantization_group_size: int = option(
        32,
        "Columns that share a scale in int8 and int4 weights rounded at load: fewer are more exact, more take less memory.",
        choices=(32, 64, 128),
    )
    chat_template: str | None = option(
        None, "Jinja chat template, inline or a file, used instead of the model's own.", metavar="FILE"
    )
    served_model_name: str | None = option(
        None,
        "Name the API knows the model by. Default: the model as given. Of several names, separated by"
        " commas, answers bear the first.",
    )
