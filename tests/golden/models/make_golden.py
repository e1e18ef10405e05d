"""Make the golden files of this folder with transformers: what octavo's models are compared with.

Needs torch 2.13.0, transformers and gguf; octavo itself is not used. Run from the repository root:

    PYTHONPATH=tests python tests/golden/models/make_golden.py tiny
    PYTHONPATH=tests python tests/golden/models/make_golden.py families
    PYTHONPATH=tests python tests/golden/models/make_golden.py experts
    PYTHONPATH=tests python tests/golden/models/make_golden.py smollm2 SmolLM2-135M-Instruct.Q4_1.gguf
    PYTHONPATH=tests python tests/golden/models/make_golden.py gemma3 gemma-3-270m-Q4_K_M.gguf

tiny.json, tiny.npz          per variant: parameter shapes, prompts, compared rows, float32 logits of those rows, greedy tokens
families.json, families.npz  the same for the families of tests/tiny_families.py
smollm2.json, smollm2.npz    20 prompts: ids, greedy tokens, and of the last position: logits at fixed random ids, the largest
gemma3.json, gemma3.npz      64 with their ids, the largest magnitude
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
import torch
import transformers
from tests import gguf_to_folder, tiny_experts, tiny_families, tiny_models
from transformers.models.gemma3 import modeling_gemma3

HERE = Path(__file__).parent
PROMPT_LENGTHS = (5, 6, 8, 11, 15, 16, 17, 23, 31, 32, 33, 48, 64, 65, 100, 127, 200, 333, 512, 1000)
NUM_GREEDY = 64
NUM_FIXED_IDS = 512
NUM_TOP = 64


def main() -> None:
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    modeling_gemma3.eager_attention_forward = partial(softcapped_attention, modeling_gemma3.eager_attention_forward)
    if sys.argv[1] == "tiny":
        make_tiny("tiny", tiny_models.VARIANTS)
    elif sys.argv[1] == "families":
        make_tiny("families", tiny_families.VARIANTS)
    elif sys.argv[1] == "experts":
        make_tiny("experts", tiny_experts.VARIANTS)
    else:
        make_real(sys.argv[1], Path(sys.argv[2]))


def softcapped_attention(eager: Any, module: Any, *args: Any, **kwargs: Any) -> Any:
    """transformers' Gemma 3 reads attn_logit_softcapping but never passes it on; its own eager attention knows what to do."""
    return eager(module, *args, softcap=module.attn_logit_softcapping, **kwargs)


def make_tiny(file: str, variants: dict[str, tiny_models.Variant]) -> None:
    facts: dict[str, Any] = {"versions": versions(), "variants": {}}
    arrays: dict[str, np.ndarray] = {}
    for name, variant in variants.items():
        model = build(variant.config)
        architecture = variant.config["architectures"][0]
        state = dict(model.named_parameters())
        for key, parameter in state.items():
            parameter.copy_(torch.from_numpy(tiny_models.weight(key, tuple(parameter.shape), architecture)))
        if file == "experts":
            check_published(model, variant.config, {key: value.numpy() for key, value in state.items()})
        entry: dict[str, Any] = {"shapes": {key: list(value.shape) for key, value in state.items()}, "prompts": []}
        for length in variant.prompts:
            ids = tiny_models.prompt(name, length, variant.config["vocab_size"])
            rows = sorted({0, length // 3, length // 2, *range(length - 4, length)})
            arrays[f"{name}/{length}"] = full_logits(model, ids)[rows]
            greedy: list[int] = []
            while len(greedy) < variant.num_greedy:  # the whole sequence every time: the plainest definition there is
                greedy.append(int(full_logits(model, ids + greedy)[-1].argmax()))
            entry["prompts"].append({"token_ids": ids, "rows": rows, "greedy": greedy})
        facts["variants"][name] = entry
        print(name, flush=True)
    save(file, facts, arrays)


def check_published(model: Any, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> None:
    """tiny_experts.published names and splits as transformers does when it saves."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        saved = safetensors.numpy.load_file(Path(folder) / "model.safetensors")
    expected = tiny_experts.published(config, tensors)
    assert saved.keys() == expected.keys(), saved.keys() ^ expected.keys()
    assert all(np.array_equal(saved[key], expected[key]) for key in saved)


def build(config: dict[str, Any]) -> Any:
    """The transformers model of a config.json, eager attention, float32."""
    keys = {key: value for key, value in config.items() if key not in ("architectures", "torch_dtype")}
    made = transformers.AutoConfig.for_model(keys.pop("model_type"), **keys)
    made._attn_implementation = "eager"
    return transformers.AutoModelForCausalLM.from_config(made, dtype=torch.float32, attn_implementation="eager").eval()


def full_logits(model: Any, ids: list[int]) -> np.ndarray:
    """Logits of every position, float32 [len(ids), vocab]."""
    logits: np.ndarray = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    return logits


def make_real(name: str, path: Path) -> None:
    config, tensors = gguf_to_folder.read(path)
    model = build(config)
    missing = model.load_state_dict({key: torch.from_numpy(value) for key, value in tensors.items()}, strict=False)
    assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
    model.tie_weights()
    tokenizer = transformers.AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
    text = tokenizer.encode((HERE / "text.txt").read_text(), add_special_tokens=False)
    fixed = np.sort(np.random.default_rng(7).choice(config["vocab_size"], NUM_FIXED_IDS, replace=False)).astype(np.int32)
    facts: dict[str, Any] = {"versions": versions(), "file": path.name, "config": config, "prompts": []}
    arrays: dict[str, np.ndarray] = {"fixed_ids": fixed}
    start = 0
    for index, length in enumerate(PROMPT_LENGTHS):
        ids = [config["bos_token_id"], *text[start : start + length - 1]] if name == "gemma3" else text[start : start + length]
        assert len(ids) == length, "text.txt is too short"
        start += length
        greedy, last = decode(model, ids)
        top = np.argsort(-last, kind="stable")[:NUM_TOP].astype(np.int32)
        arrays |= {f"{index}/fixed": last[fixed], f"{index}/top_ids": top, f"{index}/top": last[top]}
        facts["prompts"].append({"token_ids": ids, "greedy": greedy, "max_abs": float(np.abs(last).max())})
        print(name, length, repr(tokenizer.decode(greedy)), flush=True)
    save(name, facts, arrays)


def decode(model: Any, ids: list[int]) -> tuple[list[int], np.ndarray]:
    """Greedy tokens after a prompt, and the logits of its last position, float32 [vocab]."""
    out = model(torch.tensor([ids]), use_cache=True, logits_to_keep=1)
    first = out.logits[0, -1].numpy().copy()
    greedy = [int(first.argmax())]
    while len(greedy) < NUM_GREEDY:
        out = model(torch.tensor([greedy[-1:]]), past_key_values=out.past_key_values, use_cache=True)
        greedy.append(int(out.logits[0, -1].argmax()))
    return greedy, first


def versions() -> dict[str, str]:
    return {"torch": torch.__version__, "transformers": transformers.__version__, "numpy": np.__version__}


def save(name: str, facts: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    (HERE / f"{name}.json").write_text(json.dumps(facts, indent=None, separators=(",", ":")) + "\n")
    np.savez_compressed(HERE / f"{name}.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main()
