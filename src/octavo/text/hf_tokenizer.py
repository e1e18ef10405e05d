"""A tokenizer from a Hugging Face folder: tokenizer.json, and beside it the small files that say how it is used.

tokenizer.json           required: vocabulary, merges, normaliser, pre-tokenizer, decoder, added tokens
tokenizer_config.json    names of special tokens, add_bos_token / add_eos_token, chat template, further added tokens
special_tokens_map.json  names of special tokens (wins over tokenizer_config.json where both exist)
added_tokens.json        text -> id of further added tokens (older folders)
chat_template.jinja      the chat template (wins over tokenizer_config.json); chat_templates/NAME.jinja further ones
generation_config.json, config.json   end-of-sequence ids, the first that has them
"""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from octavo.errors import LoadError
from octavo.text.tokenizer import Tokenizer, TokenizerSpec

_SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_UNPICKABLE_SCORE = -1e6


def tokenizer_from_folder(folder: Path) -> Tokenizer:
    """Build the tokenizer of a model folder; LoadError names the file that is missing or damaged, and what to do."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise LoadError(
            f"{path}: file not found; octavo reads tokenizer.json. Copy it from the model's repository, or write it with "
            "transformers: AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )
    backend = _read_backend(path)
    config = _read_json(folder / "tokenizer_config.json")
    names = _special_tokens(folder, config)
    _add_missing_tokens(backend, _declared_tokens(folder, config), names, path)
    bos, eos = (_id_of(backend, names.get(name), path) for name in ("bos_token", "eos_token"))
    prefix, suffix = _surrounding_ids(backend, config, bos, eos)
    spec = TokenizerSpec(
        source=str(folder),
        bos_token_id=bos,
        eos_token_ids=_end_ids(folder, eos),
        prefix_ids=prefix,
        suffix_ids=suffix,
        special_tokens=names,
        chat_templates=read_chat_templates(folder, config),
    )
    return Tokenizer(backend, spec)


def read_chat_templates(folder: Path, config: dict[str, object] | None = None) -> dict[str, str]:
    """Template name -> source, from chat_template.jinja, chat_templates/*.jinja and tokenizer_config.json."""
    path = folder / "tokenizer_config.json"
    declared = (_read_json(path) if config is None else config).get("chat_template")
    templates: dict[str, str] = {}
    if isinstance(declared, str):
        templates["default"] = declared
    elif isinstance(declared, list):
        for index, entry in enumerate(declared):
            if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("name", "template")):
                raise LoadError(f"{path}: chat_template, entry {index} needs the strings 'name' and 'template'")
            templates[entry["name"]] = entry["template"]
    elif declared is not None:
        raise LoadError(f"{path}: chat_template must be a string or a list of named templates, not {type(declared).__name__}")
    files = {"default": folder / "chat_template.jinja"}
    files.update({file.stem: file for file in sorted((folder / "chat_templates").glob("*.jinja"))})
    for name, file in files.items():
        if file.is_file():
            templates[name] = _read_text(file)
    return templates


def _read_backend(path: Path) -> Backend:
    """Load tokenizer.json without truncation and padding, which a file may carry from training."""
    text = _read_text(path)
    try:
        if '"Unigram"' in text:
            text = _unpickable_specials(text)
        backend: Backend = Backend.from_str(text)
    except Exception as error:
        raise LoadError(f"{path}: not a valid tokenizer.json ({error}); fetch the file again") from None
    backend.no_truncation()
    backend.no_padding()
    return backend


def _unpickable_specials(text: str) -> str:
    """Lower the unigram score of special tokens so far that plain text is never segmented into one.

    The library scores unknown characters below the lowest piece, so those sink too; a segmentation with fewer of them is then
    always preferred, which for text inside the vocabulary changes nothing.
    """
    data = json.loads(text)
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type") != "Unigram":
        return text
    special = {token["content"] for token in data.get("added_tokens") or [] if token.get("special")}
    for piece in model["vocab"]:
        if piece[0] in special:
            piece[1] = min(piece[1], _UNPICKABLE_SCORE)
    return json.dumps(data, ensure_ascii=False)


def _special_tokens(folder: Path, config: dict[str, object]) -> dict[str, str]:
    """Name -> text of the special tokens the folder names."""
    names: dict[str, str] = {}
    for data in (config, _read_json(folder / "special_tokens_map.json")):
        for name in _SPECIAL_NAMES:
            value = data.get(name)
            content = value.get("content") if isinstance(value, dict) else value
            if isinstance(content, str) and content:
                names[name] = content
    return names


def _declared_tokens(folder: Path, config: dict[str, object]) -> dict[int, AddedToken]:
    """Id -> added token of tokenizer_config.json and added_tokens.json."""
    path = folder / "added_tokens.json"
    tokens: dict[int, AddedToken] = {}
    for content, token_id in _read_json(path).items():
        if not isinstance(token_id, int):
            raise LoadError(f"{path}: the id of {content!r} is {token_id!r}; expected a number")
        tokens[token_id] = AddedToken(content, normalized=False)
    path = folder / "tokenizer_config.json"
    declared = config.get("added_tokens_decoder")
    for key, entry in declared.items() if isinstance(declared, dict) else ():
        if not (str(key).isdecimal() and isinstance(entry, dict) and isinstance(entry.get("content"), str)):
            raise LoadError(f"{path}: added_tokens_decoder, entry {key!r} is damaged; expected an id and a token object")
        flags = {name: bool(entry.get(name, False)) for name in ("single_word", "lstrip", "rstrip", "normalized", "special")}
        tokens[int(key)] = AddedToken(entry["content"], **flags)
    return tokens


def _add_missing_tokens(backend: Backend, declared: dict[int, AddedToken], names: dict[str, str], path: Path) -> None:
    """Add what the small files declare and tokenizer.json lacks, in id order; ids must come out as declared."""
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for token_id, token in sorted(declared.items()):
        if token.content in known:
            continue
        (backend.add_special_tokens if token.special else backend.add_tokens)([token])
        known[token.content] = token
        if backend.token_to_id(token.content) != token_id:
            raise LoadError(
                f"{path}: the added token {token.content!r} is declared as id {token_id} but the vocabulary gives it "
                f"{backend.token_to_id(token.content)}; tokenizer.json does not belong to the other tokenizer files"
            )
    unmarked = [text for text in names.values() if not (text in known and known[text].special)]
    unmarked = [text for text in dict.fromkeys(unmarked) if backend.token_to_id(text) is not None]
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in unmarked])


def _surrounding_ids(
    backend: Backend, config: dict[str, object], bos: int | None, eos: int | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids put before and after a text: from add_bos_token / add_eos_token if set, else what the post-processor does."""
    flags = (config.get("add_bos_token"), config.get("add_eos_token"))
    if any(isinstance(flag, bool) for flag in flags):
        prefix = (bos,) if flags[0] is True and bos is not None else ()
        return prefix, (eos,) if flags[1] is True and eos is not None else ()
    plain = backend.encode("a", add_special_tokens=False).ids
    whole = backend.encode("a", add_special_tokens=True).ids
    extra = len(whole) - len(plain)
    start = next((i for i in range(extra + 1) if whole[i : i + len(plain)] == plain), 0)
    return tuple(whole[:start]), tuple(whole[start + len(plain) :])


def _end_ids(folder: Path, eos: int | None) -> tuple[int, ...]:
    """End-of-sequence ids: generation_config.json, else config.json, else the tokenizer's eos_token."""
    for name in ("generation_config.json", "config.json"):
        value = _read_json(folder / name).get("eos_token_id")
        ids = value if isinstance(value, list) else [value]
        if value is not None:
            if not ids or not all(isinstance(i, int) and not isinstance(i, bool) and i >= 0 for i in ids):
                raise LoadError(f"{folder / name}: eos_token_id is {value!r}; expected an id or a list of ids")
            return tuple(dict.fromkeys(ids))
    return () if eos is None else (eos,)


def _id_of(backend: Backend, text: str | None, path: Path) -> int | None:
    if text is None:
        return None
    token_id: int | None = backend.token_to_id(text)
    if token_id is None:
        raise LoadError(f"{path}: the special token {text!r} named by tokenizer_config.json is not in the vocabulary")
    return token_id


def _read_json(path: Path) -> dict[str, object]:
    """A JSON object, {} if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path}: not valid JSON ({error}); fetch the file again") from None
    if not isinstance(data, dict):
        raise LoadError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path}: cannot be read ({error})") from None
