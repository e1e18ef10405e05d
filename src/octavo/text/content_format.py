"""Messages as templates want them: content as a string or as a list of parts, only plain JSON values, no nulls.

Which of the two a template wants is read from its syntax tree: a loop over `message.content` (or over a variable that holds it)
means parts. Source: the idea is vLLM's content format detection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from jinja2 import nodes

from octavo.errors import InvalidRequestError

ContentFormat = Literal["string", "parts"]
CONTENT_FORMATS: dict[str, ContentFormat | None] = {"auto": None, "string": "string", "openai": "parts"}
"""The names that vLLM has for them; auto leaves it to the template."""
Message = dict[str, Any]

MAX_DEPTH = 64
_TEXT_PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal", "thinking": "thinking"}
_REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def content_format(name: str) -> ContentFormat | None:
    """The format that a name of CONTENT_FORMATS means. Raises InvalidRequestError for any other."""
    if not isinstance(name, str) or name not in CONTENT_FORMATS:
        raise InvalidRequestError(
            f"chat_template_content_format is {str(name)[:100]!r}; it must be one of {', '.join(CONTENT_FORMATS)}",
            param="chat_template_content_format",
        )
    return CONTENT_FORMATS[name]


def detect_content_format(template: nodes.Template) -> ContentFormat:
    """ "parts" if the template iterates over a message's content."""
    names = {"content"}
    for assign in template.find_all(nodes.Assign):
        if isinstance(assign.target, nodes.Name) and _is_content(assign.node, names):
            names.add(assign.target.name)
    loops = template.find_all(nodes.For)
    return "parts" if any(_is_content(loop.iter, names) for loop in loops) else "string"


def accepts_string_content(template: nodes.Template) -> bool:
    """Whether the template asks somewhere if a value is a string: then it takes string content although it knows parts."""
    return any(test.name in ("string", "iterable", "sequence", "mapping") for test in template.find_all(nodes.Test))


def prepare_messages(messages: Sequence[Mapping[str, Any]], wants: ContentFormat, takes_strings: bool) -> list[Message]:
    """Fresh copies of the messages, checked and in the form the template wants.

    String templates get the text parts joined by a newline; parts templates get lists as they are, and strings as one text part
    if they could not handle a string. Keys whose value is null are dropped, and reasoning is offered under every name in use.
    Raises InvalidRequestError naming the message and field.
    """
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence) or not messages:
        raise InvalidRequestError("messages must be a non-empty list of messages", param="messages")
    return [_prepare(message, f"messages.{index}", wants, takes_strings) for index, message in enumerate(messages)]


def plain_data(value: Any, where: str, depth: int = 0) -> Any:
    """A copy made of JSON types only; anything else, or nesting beyond MAX_DEPTH, is an InvalidRequestError."""
    if depth > MAX_DEPTH:
        raise InvalidRequestError(f"{where} is nested more than {MAX_DEPTH} levels deep", param=where.split(".", 1)[0])
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {_key(key, where): plain_data(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain_data(item, where, depth + 1) for item in value]
    raise InvalidRequestError(
        f"{where} holds a {type(value).__name__}; only JSON values are allowed", param=where.split(".", 1)[0]
    )


def _is_content(node: nodes.Node, names: set[str]) -> bool:
    """Whether node is x.content, x['content'] or one of names, possibly behind filters, slices or conditions."""
    if isinstance(node, nodes.Filter) and node.node is not None:
        return _is_content(node.node, names)
    if isinstance(node, nodes.Getattr):
        return node.attr == "content"
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Const):
            return bool(node.arg.value == "content")
        return isinstance(node.arg, nodes.Slice) and _is_content(node.node, names)
    if isinstance(node, nodes.CondExpr):
        return _is_content(node.expr1, names) or (node.expr2 is not None and _is_content(node.expr2, names))
    return isinstance(node, nodes.Name) and node.name in names


def _prepare(message: Any, where: str, wants: ContentFormat, takes_strings: bool) -> Message:
    if not isinstance(message, Mapping):
        raise InvalidRequestError(f"{where} must be an object, not {type(message).__name__}", param="messages")
    plain: Message = {key: value for key, value in plain_data(message, where).items() if value is not None}
    role = plain.get("role")
    if not isinstance(role, str) or not role.replace("-", "_").isidentifier():
        raise InvalidRequestError(
            f"{where}.role is {role!r}; expected a name such as 'system', 'user' or 'assistant'", param="messages"
        )
    content = plain.get("content")
    if isinstance(content, list):
        texts = [_part_text(part, f"{where}.content.{index}") for index, part in enumerate(content)]
        plain["content"] = [{"type": "text", "text": text} for text in texts] if wants == "parts" else "\n".join(texts)
    elif isinstance(content, str):
        if wants == "parts" and not takes_strings:
            plain["content"] = [{"type": "text", "text": content}]
    elif content is not None:
        raise InvalidRequestError(
            f"{where}.content is of type {type(content).__name__}; expected a string or a list of parts", param="messages"
        )
    reasoning = next((plain[name] for name in _REASONING_FIELDS if name in plain), None)
    return plain if reasoning is None else {"thinking": reasoning, **plain, "reasoning_content": reasoning}


def _part_text(part: Any, where: str) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type", "text") if isinstance(part, dict) else None
    field = _TEXT_PARTS.get(kind) if isinstance(kind, str) else None
    if field is None:
        raise InvalidRequestError(
            f"{where} is of type {kind!r}; this model reads text only, known types: {', '.join(sorted(_TEXT_PARTS))}",
            param="messages",
        )
    text = part.get(field)
    if not isinstance(text, str):
        raise InvalidRequestError(f"{where}.{field} must be a string, not {type(text).__name__}", param="messages")
    return text


def _key(key: Any, where: str) -> str:
    if isinstance(key, str):
        return key
    raise InvalidRequestError(f"{where} has the key {key!r}; keys must be strings", param=where.split(".", 1)[0])
