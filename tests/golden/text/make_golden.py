"""Write the golden files of the text room with transformers as the oracle. Needs transformers, tokenizers and gguf.

    python tests/golden/text/make_golden.py SMOLLM2.gguf GEMMA3.gguf

Writes, next to this file: tokenizers/NAME/ (small tokenizers trained on the corpus), golden_tokens.json (digests of the ids and
texts of every document per tokenizer, in full for the short ones) and golden_chats.json (renderings and ids per template).
The tests read these files and need none of the oracle's packages.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
import transformers
from tests.golden.text import chat_cases, corpus
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

HERE = Path(__file__).parent
SHORT = 64
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace("{1,3}", "")


def main() -> None:
    smollm2, gemma3 = map(Path, sys.argv[1:])
    texts = corpus.documents()
    train_folders(list(texts.values()))
    oracles: dict[str, Any] = {
        folder.name: AutoTokenizer.from_pretrained(folder) for folder in sorted((HERE / "tokenizers").iterdir())
    }
    golden: dict[str, Any] = {"versions": versions(), "corpus": digest("".join(texts.values()).encode()), "tokenizers": {}}
    for name, oracle in {**oracles, "smollm2": smollm2_oracle(smollm2), "gemma3": gemma3_oracle(gemma3)}.items():
        golden["tokenizers"][name] = {title: record(oracle, text) for title, text in texts.items()}
    write(HERE / "golden_tokens.json", golden)
    write(HERE / "golden_chats.json", {"versions": versions(), "chats": render_all(oracles)})


def versions() -> dict[str, str]:
    return {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def record(oracle: Any, text: str) -> dict[str, Any]:
    """Count and digest of the ids (int32 little-endian) and of the decoded text; short ones in full."""
    ids = oracle(text).input_ids
    decoded = oracle.decode(ids, skip_special_tokens=True, clean_up_tokenization_spaces=False)
    entry: dict[str, Any] = {"count": len(ids), "ids": digest(np.array(ids, "<i4").tobytes()), "text": digest(decoded.encode())}
    if len(ids) <= SHORT:
        entry["full"] = ids
    return entry


def write(path: Path, data: object) -> None:
    path.write_text(json.dumps(data, ensure_ascii=True, indent=1) + "\n")


def smollm2_oracle(path: Path) -> Any:
    """The pipeline of SmolLM2's tokenizer.json around the file's vocabulary and merges (the library's own GGUF conversion
    forgets that this model cuts digits one by one)."""
    fields = gguf.GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    merges = [tuple(line.split(" ")) for line in fields["tokenizer.ggml.merges"].contents()]
    tokenizer = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    types = fields["tokenizer.ggml.token_type"].contents()
    control = [
        AddedToken(token, normalized=False, special=True) for token, kind in zip(tokens, types, strict=True) if kind == 3
    ]
    tokenizer.add_special_tokens(control)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer)


def gemma3_oracle(path: Path) -> Any:
    return AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def train_folders(texts: list[str]) -> None:
    shutil.rmtree(HERE / "tokenizers", ignore_errors=True)
    train_byte_level("gpt2_like", texts, None, ["<|endoftext|>"], {"eos_token": "<|endoftext|>"}, None)
    qwen_special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    qwen_plain = ["<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>"]
    names = {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"}
    train_byte_level("qwen2_like", texts, QWEN2_SPLIT, qwen_special, names, None, qwen_plain, normalizers.NFC())
    llama3_special = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
    names = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    train_byte_level("llama3_like", texts, LLAMA3_SPLIT, llama3_special, names, "<|begin_of_text|>")
    prepend = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    phi = ["<|user|>", "<|assistant|>", "<|system|>", "<|end|>", "<|document|>"]
    train_sentencepiece("llama_legacy", texts, prepend, None, phi, ("<s>", "</s>"))
    metaspace = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    train_sentencepiece("llama_metaspace", texts, None, metaspace, ["[INST]", "[/INST]"], ("<s>", "</s>"))
    replace = normalizers.Replace(" ", "\u2581")
    turns = ["<start_of_turn>", "<end_of_turn>"]
    train_sentencepiece(
        "gemma_like", texts, replace, None, turns, ("<bos>", "<eos>"), strips=False, plain=["\n", "\n\n", "\n\n\n"]
    )
    train_unigram("unigram", texts)


def save(tokenizer: Tokenizer, name: str, names: dict[str, str]) -> None:
    folder = HERE / "tokenizers" / name
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "clean_up_tokenization_spaces": False, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def train_byte_level(
    name: str,
    texts: list[str],
    split: str | None,
    special: list[str],
    names: dict[str, str],
    bos: str | None,
    plain: list[str] | None = None,
    normalizer: Any = None,
) -> None:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    if split is None:
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        cut = pre_tokenizers.Split(Regex(split), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=700, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in plain or []])
    if bos is not None:
        data = json.loads(tokenizer.to_str())
        data["model"]["ignore_merges"] = True
        tokenizer = Tokenizer.from_str(json.dumps(data))
        template = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
        tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    save(tokenizer, name, names)


def train_sentencepiece(
    name: str,
    texts: list[str],
    normalizer: Any,
    pre_tokenizer: Any,
    special: list[str],
    ends: tuple[str, str],
    strips: bool = True,
    plain: list[str] | None = None,
) -> None:
    """SentencePiece BPE with byte fallback: train on words, then drop the word borders for use."""
    bos, eos = ends
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\u2581", "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=900, special_tokens=["<unk>", bos, eos, *BYTE_TOKENS], limit_alphabet=300, show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [token for token in data["added_tokens"] if token["content"] not in BYTE_TOKENS]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, pre_tokenizer
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if strips else steps)
    tokenizer.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in plain or []])
    template = processors.TemplateProcessing(single=f"{bos} $A", special_tokens=[(bos, tokenizer.token_to_id(bos))])
    tokenizer.post_processor = template
    save(tokenizer, name, {"bos_token": bos, "eos_token": eos, "unk_token": "<unk>"})


def train_unigram(name: str, texts: list[str]) -> None:
    """Unigram with byte fallback, trained on few characters so that the fallback is used."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=600, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([text[:3000] for text in texts if text.isascii()], trainer)
    data = json.loads(tokenizer.to_str())
    data["model"]["vocab"] += [[token, -20.0] for token in BYTE_TOKENS]
    data["model"]["byte_fallback"] = True
    tokenizer = Tokenizer.from_str(json.dumps(data))
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    eos = ("</s>", tokenizer.token_to_id("</s>"))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[eos])
    save(tokenizer, name, {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"})


def render_all(oracles: dict[str, Any]) -> dict[str, Any]:
    """Template -> case -> {"text", "ids"} or {"refused": true}."""
    chats: dict[str, Any] = {}
    for name, tokenizer_name in chat_cases.TEMPLATE_TOKENIZERS.items():
        source = (HERE / "templates" / f"{name}.jinja").read_text()
        cases = {**chat_cases.CASES, **(chat_cases.PARTS_CASES if name == "gemma3_parts" else {})}
        chats[name] = {title: render(oracles[tokenizer_name], source, case) for title, case in cases.items()}
    return chats


def render(oracle: Any, source: str, case: dict[str, Any]) -> dict[str, Any]:
    case = dict(case)
    arguments = {**case.pop("template_kwargs", {}), **case}
    messages = arguments.pop("messages")
    try:
        text = oracle.apply_chat_template(messages, chat_template=source, tokenize=False, **arguments)
        ids = oracle.apply_chat_template(messages, chat_template=source, return_dict=False, **arguments)
    except Exception as error:  # the template's refusal, or a failure in it
        return {"refused": f"{type(error).__name__}: {error}"[:80]}
    return {"text": text, "ids": list(ids)}


if __name__ == "__main__":
    main()
