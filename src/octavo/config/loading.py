"""LoadingConfig: which model, from where, and in which numbers its weights are held."""

from __future__ import annotations

from dataclasses import dataclass

from octavo.config.option import option
from octavo.config.server import words_of

DEFAULT_MODEL = "smollm2-135m-instruct"


CHECKPOINT_METHODS = ("awq", "gptq", "compressed-tensors", "fp8")
"""Values of --quantization that name how a folder is quantised already."""
ROUNDING_METHODS = ("int8", "int4", "w8a8")
"""Values of --quantization that round weights when they are loaded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadingConfig:
    model: str = option(
        DEFAULT_MODEL, "Model folder, .gguf file, embedded model name or Hugging Face hub name. Default: the embedded model."
    )
    tokenizer: str | None = option(
        None, "Tokenizer of another folder, file or hub name, with its chat template. Default: the model's own."
    )
    revision: str | None = option(None, "Branch, tag or commit of a hub name. Default: the main branch.")
    load_format: str = option(
        "auto",
        "Container of the weights; dummy makes random weights from config.json alone.",
        choices=("auto", "safetensors", "gguf", "dummy"),
        synonyms={"hf": "auto"},
    )
    dtype: str = option(
        "auto",
        "Storage type of the weights: auto keeps the checkpoint's own (quantised blocks stay quantised).",
        choices=("auto", "float32", "bfloat16", "float16"),
        synonyms={"half": "float16", "float": "float32"},
    )
    quantization: str = option(
        "auto",
        "int8 and int4 round float weights at load, in groups of columns; w8a8 rounds them to int8 per output, and activations "
        "per token. int4 keeps embedding and output head as int8 groups, w8a8 also the q, k, v and down projections. A file "
        "that is quantised in another way is refused, unless --dtype float32 asks to quantise its values anew. auto and none "
        "never quantise, nor do awq, gptq, compressed-tensors and fp8, which say what the folder must be.",
        choices=("auto", "int8", "int4", "w8a8", *CHECKPOINT_METHODS, "none"),
        synonyms={"gguf": "auto", "awq_marlin": "awq", "gptq_marlin": "gptq", "compressed_tensors": "compressed-tensors"},
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
        "Name the API knows the model by. Default: the model as given. Of several names, separated by commas, answers bear the "
        "first.",
    )
    generation_config: str = option(
        "auto",
        "Where the sampling settings of requests that bring none come from: the model's files, and its makers' advice where a "
        "GGUF file has none (auto), nowhere (vllm), or the generation_config.json of another folder.",
        metavar="auto|vllm|FOLDER",
    )
    override_generation_config: str | None = option(
        None, 'Sampling settings as JSON, which win over those of --generation-config: {"temperature": 0.5}.', metavar="JSON"
    )
    pooler_config: str | None = option(
        None,
        'How prompts become embeddings, as JSON over what the model\'s files say: {"pooling_type": "MEAN", "normalize": true}.',
        metavar="JSON",
        aliases=("override_pooler_config",),
    )
    seed: int | None = option(
        None,
        "Seed of the seeds of requests that bring none: a script that is run again gets the same answers. Default: drawn anew.",
        low=-(2**63),
        high=2**63 - 1,
    )

    @property
    def served_names(self) -> list[str]:
        """Names the API knows the model by. Where none is given: the model as it was written, commas and all."""
        return words_of(self.served_model_name or "", "served_model_name") or [self.model]
