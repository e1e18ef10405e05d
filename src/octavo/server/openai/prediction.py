"""prediction: the text that the answer is likely to be, with OpenAI's shape."""

from __future__ import annotations

from typing import Literal

from octavo.server.body import Body


class PredictedPart(Body):
    type: Literal["text"]
    text: str


class Prediction(Body):
    """content: a text, or its parts."""

    type: Literal["content"]
    content: str | list[PredictedPart] = ""


def predicted_text(prediction: Prediction | None) -> str:
    """The text; "" for none."""
    if prediction is None:
        return ""
    content = prediction.content
    return content if isinstance(content, str) else "".join(part.text for part in content)
