"""TokenizerFace: a Tokenizer with the methods and defaults of a transformers tokenizer, for scripts written against one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo.text.chat_encoding import encode_chat
from octavo.text.chat_template import ChatTemplate
from octavo.text.tokenizer import Tokenizer


class TokenizerFace:
    """Names, arguments and defaults as in transformers; token ids as in octavo's own Tokenizer, which `tokenizer` holds.

    bos_token_id, eos_token_id, pad_token_id, unk_token_id   None where the model has none; the tokens themselves beside them
    vocab_size       highest id + 1
    chat_template    Jinja source, or None
    """

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate) -> None:
        self.tokenizer = tokenizer
        self._template = template
        spec = tokenizer.spec
        self.name_or_path = spec.source
        self.vocab_size = tokenizer.vocab_size
        self.chat_template = spec.chat_templates.get("default")
        self.bos_token_id = tokenizer.bos_token_id
        self.eos_token_id = next(iter(tokenizer.eos_token_ids), None)
        self.bos_token = self._token(self.bos_token_id)
        self.eos_token = self._token(self.eos_token_id)
        self.pad_token = spec.special_tokens.get("pad_token")
        self.unk_token = spec.special_tokens.get("unk_token")
        self.pad_token_id = None if self.pad_token is None else tokenizer.token_to_id(self.pad_token)
        self.unk_token_id = None if self.unk_token is None else tokenizer.token_to_id(self.unk_token)
        self.all_special_ids = sorted(tokenizer.special_token_ids)
        self.all_special_tokens = [tokenizer.added_tokens[token_id] for token_id in self.all_special_ids]

    def __len__(self) -> int:
        return self.vocab_size

    def __call__(self, text: str | Sequence[str], *, add_special_tokens: bool = True) -> dict[str, Any]:
        """{"input_ids", "attention_mask"} of one text, or of each of several; nothing is padded or cut."""
        if isinstance(text, str):
            ids = self.encode(text, add_special_tokens=add_special_tokens)
            return {"input_ids": ids, "attention_mask": [1] * len(ids)}
        rows = [self.encode(one, add_special_tokens=add_special_tokens) for one in text]
        return {"input_ids": rows, "attention_mask": [[1] * len(row) for row in rows]}

    def encode(self, text: str, *, add_special_tokens: bool = True) -> list[int]:
        """Token ids; text of a control token becomes that token."""
        return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)

    def decode(self, token_ids: int | Sequence[int], skip_special_tokens: bool = False) -> str:
        """Text of one id or of several."""
        ids = [token_ids] if isinstance(token_ids, int) else list(token_ids)
        return self.tokenizer.decode(ids, skip_special_tokens=skip_special_tokens)

    def batch_decode(self, sequences: Sequence[Sequence[int]], skip_special_tokens: bool = False) -> list[str]:
        return [self.decode(sequence, skip_special_tokens) for sequence in sequences]

    def tokenize(self, text: str) -> list[str | None]:
        """The tokens of a text as the vocabulary spells them."""
        return [self._token(token_id) for token_id in self.encode(text, add_special_tokens=False)]

    def convert_ids_to_tokens(self, ids: int | Sequence[int], skip_special_tokens: bool = False) -> Any:
        """The token, or list of tokens, as the vocabulary spells them; None for an id beyond it."""
        if isinstance(ids, int):
            return self._token(ids)
        skipped = self.tokenizer.special_token_ids if skip_special_tokens else frozenset()
        return [self._token(token_id) for token_id in ids if token_id not in skipped]

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id, or list of ids, of tokens as the vocabulary spells them; the unknown token's for one that is not in it."""
        if isinstance(tokens, str):
            token_id = self.tokenizer.token_to_id(tokens)
            return self.unk_token_id if token_id is None else token_id
        return [self.convert_tokens_to_ids(token) for token in tokens]

    def get_vocab(self) -> dict[str, int]:
        """Token as the vocabulary spells it -> id."""
        return self.tokenizer.vocabulary()

    def apply_chat_template(
        self,
        conversation: Sequence[Mapping[str, Any]] | Sequence[Sequence[Mapping[str, Any]]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        add_generation_prompt: bool = False,
        continue_final_message: bool = False,
        tokenize: bool = True,
        **kwargs: Any,
    ) -> Any:
        """Token ids of a conversation, or its text with tokenize=False; of several, a list of such.

        kwargs are variables of the template. In the ids, control-token text that a message carries is plain text.
        Raises InvalidRequestError if the template refuses the messages.
        """
        if conversation and not isinstance(conversation[0], Mapping):
            options = (tools, documents, chat_template, add_generation_prompt, continue_final_message, tokenize)
            return [self.apply_chat_template(one, *options, **kwargs) for one in conversation]  # type: ignore[arg-type]
        template = self._template if chat_template is None else ChatTemplate.for_tokenizer(self.tokenizer, chat_template)
        messages: Any = conversation
        if tokenize:
            return encode_chat(
                self.tokenizer,
                template,
                messages,
                tools=tools,
                documents=documents,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
                template_kwargs=kwargs,
            )
        return template.render(
            messages,
            tools=tools,
            documents=documents,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            **kwargs,
        )

    def _token(self, token_id: int | None) -> str | None:
        return None if token_id is None else self.tokenizer.id_to_token(token_id)
