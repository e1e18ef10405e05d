"""Write golden.json: what transformers does where two files, or two keys of one file, disagree. Needs transformers.

    python tests/golden/sources/make_golden.py

tokenizers  name -> tokenizer.json of a few words
flags       {tokenizer, tokenizer_config, ids}: ids of TEXT with flags beside a post-processor that may say otherwise
decoding    {tokenizer, ids, text}: text of ids, with and without special tokens, for tokenizers without a decoder
ropes       {config, rope_parameters}: what is left of rope_scaling beside rope_parameters
The tests read this file and need none of the oracle's packages.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import tokenizers
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import AutoConfig, AutoTokenizer

HERE = Path(__file__).parent
TEXT = "hello world"
SPECIAL = ["<s>", "</s>"]
WORDS = [*SPECIAL, "<unk>", "hello", "world", "this", "is", "a", "test", "\u2581hello", " spaced", ""]
TEMPLATES = {
    "plain": None,
    "adds_bos": ("<s> $A", ["<s>"]),
    "adds_eos": ("$A </s>", ["</s>"]),
    "adds_both": ("<s> $A </s>", SPECIAL),
}
FLAGS: list[dict[str, bool]] = [
    {},
    {"add_bos_token": False},
    {"add_bos_token": True},
    {"add_eos_token": False},
    {"add_eos_token": True},
    {"add_bos_token": True, "add_eos_token": True},
    {"add_bos_token": False, "add_eos_token": False},
]
CLASSES = ["PreTrainedTokenizerFast", "LlamaTokenizer", "GemmaTokenizer", "Qwen2Tokenizer"]
SEQUENCES = [[3, 4, 5, 6, 7, 8], [0, 3, 4, 1], [3], [9, 4], [10, 10], [11, 3], [3, 11, 4], [0, 1], []]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LINEAR = {"rope_type": "linear", "factor": 2.0}
PLAIN = {"rope_type": "default", "rope_theta": 123.0}
ROPES: list[dict[str, Any]] = [
    {"rope_parameters": PLAIN, "rope_scaling": YARN},
    {"rope_theta": 77.0, "rope_parameters": PLAIN, "rope_scaling": YARN},
    {"rope_parameters": PLAIN, "rope_scaling": {**YARN, "rope_theta": 55.0}},
    {"rope_parameters": PLAIN, "rope_scaling": None},
    {"rope_parameters": PLAIN, "rope_scaling": {}},
    {"rope_theta": 77.0, "rope_parameters": PLAIN},
    {"rope_theta": 77.0, "rope_parameters": {**YARN, "rope_theta": 55.0}, "rope_scaling": LINEAR},
    {"rope_theta": 77.0, "rope_parameters": {**YARN, "rope_theta": 55.0}, "rope_scaling": {"rope_type": "default"}},
    {"rope_theta": 77.0, "rope_scaling": {"type": "linear", **YARN}},
    {"rope_theta": 77.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"rope_theta": 77.0, "rope_scaling": {"factor": 2.0}},
    {"rope_theta": 77.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
]
LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 48,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 256,
}


def main() -> None:
    transformers.logging.set_verbosity_error()
    built = {name: word_level(template) for name, template in TEMPLATES.items()}
    golden = {
        "versions": {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__},
        "tokenizers": {name: json.loads(tokenizer.to_str()) for name, tokenizer in built.items()},
        "flags": [
            flags_case(name, built[name], {"tokenizer_class": kind, **flags})
            for name in built
            for kind in CLASSES
            for flags in FLAGS
        ],
        "decoding": [decoding_case(built["plain"], ids) for ids in SEQUENCES],
        "ropes": [rope_case(config) for config in ROPES],
    }
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=True, indent=1) + "\n")


def word_level(template: tuple[str, list[str]] | None) -> Tokenizer:
    """A tokenizer of whole words, with no decoder."""
    tokenizer = Tokenizer(models.WordLevel({word: index for index, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(SPECIAL)
    if template is not None:
        single, special = template
        ids = [(token, WORDS.index(token)) for token in special]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ids)
    return tokenizer


def flags_case(name: str, tokenizer: Tokenizer, config: dict[str, Any]) -> dict[str, Any]:
    config = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", **config}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer.save(f"{folder}/tokenizer.json")
        (Path(folder) / "tokenizer_config.json").write_text(json.dumps(config))
        ids = AutoTokenizer.from_pretrained(folder)(TEXT).input_ids
    return {"tokenizer": name, "tokenizer_config": config, "ids": ids}


def decoding_case(tokenizer: Tokenizer, ids: list[int]) -> dict[str, Any]:
    texts = {str(skips).lower(): tokenizer.decode(ids, skip_special_tokens=skips) for skips in (True, False)}
    return {"ids": ids, "text": texts}


def rope_case(config: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps({**LLAMA, **config}))
        found = AutoConfig.from_pretrained(folder).rope_parameters
    return {"config": config, "rope_parameters": found}


if __name__ == "__main__":
    main()
