"""A tokenizer from a Hugging Face folder: tokenizer.json, and beside it the small files that say how it is used.

tokenizer.json           required: vocabulary, merges, normaliser, pre-tokenizer, decoder, post-processor, added tokens
tokenizer_config.json    names of special tokens, chat template, further added tokens; its add_bos_token and add_eos_token
                         count for nothing beside a tokenizer.json, whose post-processor says what is added (transformers 5)
special_tokens_map.json  names of special tokens (wins over tokenizer_config.json where both exist)
added_tokens.json        text -> id of further added tokens (older folders)
chat_template.jinja      the chat template (wins over tokenizer_config.json); chat_templates/NAME.jinja further ones
generation_config.json, config.json   end-of-sequence ids, the first that has them; the tokenizer's own eos_token ends a text
                         too (vLLM), since chat templates write it
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from octavo.errors import LoadError
from octavo.loader.fields import MAX_JSON_BYTES, Fields, shown
from octavo.log import get_logger
from octavo.text.library_faults import is_fault, quiet_panics, reason
from octavo.text.tokenizer import Tokenizer, TokenizerSpec
from octavo.text.vocabulary_limits import check_charsmap, check_merges, check_pieces, check_scores

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
_MAX_ID_DIGITS = 10
_MAX_TRIED = 64
_SUBWORD_PREFIX = re.compile(r'"continuing_subword_prefix"\s*:\s*"[^"]')
MAX_STRING_CHARACTERS = 1 << 20
"""A longer string in tokenizer.json is refused; charsmaps, the longest in use, have less than half of it."""
MAX_ADDED_CHARACTERS = 1 << 20
"""Of all added tokens together: the library builds an automaton of them, at some 50 bytes a character."""

_logger = get_logger(__name__)


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
    try:
        with quiet_panics():
            _add_missing_tokens(backend, _declared_tokens(folder, config), names, path)
            prefix, suffix = _surrounding_ids(backend)
    except BaseException as error:
        if isinstance(error, LoadError) or not is_fault(error):
            raise
        raise LoadError(f"{path}: the tokenizers library cannot use it ({reason(error)}); fetch the file again") from None
    bos, eos = (_id_of(backend, name, names.get(name), folder) for name in ("bos_token", "eos_token"))
    _warn_of_flags(folder, config, prefix, suffix, bos, eos)
    spec = TokenizerSpec(
        source=str(folder),
        bos_token_id=bos,
        eos_token_ids=_end_ids(folder, eos, backend.get_vocab_size(with_added_tokens=True)),
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
            if isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("name", "template")):
                templates[entry["name"]] = entry["template"]
            else:
                _logger.warning("%s: chat_template, entry %d lacks the strings name and template; it is ignored", path, index)
    elif declared is not None:
        _logger.warning("%s: chat_template is neither a string nor a list of named templates; it is ignored", path)
    files = {"default": folder / "chat_template.jinja"}
    files.update({file.stem: file for file in sorted((folder / "chat_templates").glob("*.jinja"))})
    for name, file in files.items():
        if file.is_file():
            templates[name] = _read_text(file)
    return templates


def _read_backend(path: Path) -> Backend:
    """Load tokenizer.json without truncation and padding, which a file may carry from training."""
    text = _read_text(path)
    _require_bounded(text, path)
    try:
        if '"Unigram"' in text:
            text = _usable_unigram(text, path)
        if _SUBWORD_PREFIX.search(text):
            model = json.loads(text)["model"]
            check_merges(model.get("merges") or [], str(model["continuing_subword_prefix"]), str(path))
        with quiet_panics():
            backend: Backend = Backend.from_str(text)
        backend.no_truncation()
        backend.no_padding()
    except BaseException as error:
        if isinstance(error, LoadError) or not is_fault(error):
            raise
        raise LoadError(f"{path}: not a valid tokenizer.json ({reason(error)}); fetch the file again") from None
    return backend


def _require_bounded(text: str, path: Path) -> None:
    """Refuse what the library would turn into many times its size.

    A string of twice MAX_STRING_CHARACTERS covers one whole window of that length, wherever it begins.
    """
    for start in range(0, len(text) - MAX_STRING_CHARACTERS, MAX_STRING_CHARACTERS):
        if text.find('"', start, start + MAX_STRING_CHARACTERS) < 0:
            raise LoadError(f"{path}: a string of more than {MAX_STRING_CHARACTERS} characters; no tokenizer has one")
    at = text.find('"added_tokens"')
    try:
        added = json.JSONDecoder().raw_decode(text, text.index("[", at))[0] if at >= 0 else []
    except (ValueError, RecursionError):
        return  # the library says what is wrong
    size = sum(len(str(token.get("content"))) for token in added if isinstance(token, dict))
    if size > MAX_ADDED_CHARACTERS:
        raise LoadError(f"{path}: the added tokens have {size} characters, more than the limit of {MAX_ADDED_CHARACTERS}")


def _usable_unigram(text: str, path: Path) -> str:
    """Check the pieces, and lower the unigram score of special tokens so far that plain text is never segmented into one.

    The library scores unknown characters below the lowest piece, so those sink too; a segmentation with fewer of them is then
    always preferred, which for text inside the vocabulary changes nothing.
    """
    data = json.loads(text)
    model = data.get("model")
    if not isinstance(model, dict) or model.get("type") != "Unigram":
        return text
    check_pieces([piece[0] for piece in model["vocab"]], str(path))
    check_scores([piece[1] for piece in model["vocab"]], str(path))
    for charsmap in _charsmaps(data.get("normalizer")):
        check_charsmap(charsmap, str(path))
    special = {token["content"] for token in data.get("added_tokens") or [] if token.get("special")}
    for piece in model["vocab"]:
        if piece[0] in special:
            piece[1] = min(piece[1], _UNPICKABLE_SCORE)
    return json.dumps(data, ensure_ascii=False)


def _charsmaps(normalizer: object) -> list[bytes]:
    """The charsmaps of a normaliser or of the steps of a sequence."""
    steps = normalizer.get("normalizers", [normalizer]) if isinstance(normalizer, dict) else []
    texts = [step.get("precompiled_charsmap") for step in steps if isinstance(step, dict)]
    return [base64.b64decode(text) for text in texts if isinstance(text, str)]


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
            raise LoadError(f"{path}: the id of {shown(content)} is {shown(token_id)}; expected a number")
        tokens[token_id] = AddedToken(content, normalized=False)
    path = folder / "tokenizer_config.json"
    declared = config.get("added_tokens_decoder")
    for key, entry in declared.items() if isinstance(declared, dict) else ():
        is_id = str(key).isdecimal() and len(key) <= _MAX_ID_DIGITS
        if not (is_id and isinstance(entry, dict) and isinstance(entry.get("content"), str)):
            raise LoadError(f"{path}: added_tokens_decoder, entry {shown(key)} is damaged; expected an id and a token object")
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
                f"{path}: the added token {shown(token.content)} is declared as id {shown(token_id)}, but the vocabulary gives "
                f"it {backend.token_to_id(token.content)}; tokenizer.json does not belong to the other tokenizer files"
            )
    unmarked = [text for text in names.values() if not (text in known and known[text].special)]
    unmarked = [text for text in dict.fromkeys(unmarked) if backend.token_to_id(text) is not None]
    backend.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in unmarked])


def _surrounding_ids(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that the post-processor puts before and after a text."""
    plain, whole = _encode_any(backend)
    extra = len(whole) - len(plain)
    start = next((i for i in range(extra + 1) if whole[i : i + len(plain)] == plain), 0)
    return tuple(whole[:start]), tuple(whole[start + len(plain) :])


def _encode_any(backend: Backend) -> tuple[list[int], list[int]]:
    """Ids of some text without and with what is added. A vocabulary without an unknown token may not have all letters."""
    for text in ("a", *(backend.id_to_token(i) or "" for i in range(_MAX_TRIED))):
        try:
            plain = backend.encode(text, add_special_tokens=False).ids
        except Exception:
            continue
        if plain:
            return plain, backend.encode(text, add_special_tokens=True).ids
    return [], backend.encode("", add_special_tokens=True).ids


def _warn_of_flags(
    folder: Path, config: dict[str, object], prefix: tuple[int, ...], suffix: tuple[int, ...], bos: int | None, eos: int | None
) -> None:
    """Say so where a flag of tokenizer_config.json wants something else than the post-processor of tokenizer.json does."""
    for flag, token_id, added in (("add_bos_token", bos, prefix), ("add_eos_token", eos, suffix)):
        wanted = config.get(flag)
        if isinstance(wanted, bool) and token_id is not None and wanted != (token_id in added):
            _logger.warning(
                "%s: %s is %s, but the post-processor of tokenizer.json says otherwise and is followed, as in transformers",
                folder / "tokenizer_config.json",
                flag,
                str(wanted).lower(),
            )


def _end_ids(folder: Path, eos: int | None, vocab_size: int) -> tuple[int, ...]:
    """End-of-sequence ids: of generation_config.json, else of config.json; and the tokenizer's eos_token."""
    ids: tuple[int, ...] = ()
    for name in ("generation_config.json", "config.json"):
        # The same keys are read for the model's configuration, which logs what is wrong with them.
        ids = ids or Fields(_read_lenient(folder / name), str(folder / name), quiet=True).token_ids("eos_token_id", vocab_size)
    if ids and eos is not None and eos not in ids:
        _logger.warning(
            "%s: eos_token_id is %s without %d, the eos_token of the tokenizer, which ends a text too",
            folder / "generation_config.json",
            shown(list(ids)),
            eos,
        )
    return ids if eos is None else tuple(dict.fromkeys((*ids, eos)))


def _id_of(backend: Backend, name: str, text: str | None, folder: Path) -> int | None:
    """Id of a special token; one that the vocabulary lacks is none, with a warning: no model could give it."""
    token_id: int | None = None if text is None else backend.token_to_id(text)
    if text is not None and token_id is None:
        _logger.warning("%s: %s is %s, which is not in the vocabulary; it is ignored", folder, name, shown(text))
    return token_id


def _read_lenient(path: Path) -> dict[str, object]:
    """A JSON object, {} where there is none."""
    try:
        return _read_json(path)
    except LoadError:
        return {}


def _read_json(path: Path) -> dict[str, object]:
    """A JSON object, {} if the file does not exist."""
    if not path.is_file():
        return {}
    try:
        data = json.loads(_read_text(path))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{path}: not valid JSON ({reason(error)}); fetch the file again") from None
    if not isinstance(data, dict):
        raise LoadError(f"{path}: expected a JSON object, found {type(data).__name__}")
    return data


def _read_text(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise LoadError(f"{path}: {path.stat().st_size} bytes, more than the limit of {MAX_JSON_BYTES}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LoadError(f"{path}: cannot be read ({error})") from None
