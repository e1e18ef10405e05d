"""What the clients ask for: a form as a pydantic model, a function with bounded arguments."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

ASK = "Anna is 31 years old and likes blue. Describe her."
WEATHER = "What is the weather in Seoul?"


class Person(BaseModel):
    """A person."""

    name: Annotated[str, Field(max_length=20)]
    age: Annotated[int, Field(ge=0, le=130)]
    colour: Literal["red", "green", "blue"]


class Forecast(BaseModel):
    """The arguments of get_forecast."""

    city: Annotated[str, Field(max_length=20)]
    unit: Literal["celsius", "fahrenheit"]
    days: Annotated[int, Field(ge=1, le=7)]


def get_forecast(city: str, unit: str, days: int) -> str:
    """The weather of a city."""
    return f"{city}: 맑음 ☀️, {days} days, {unit}"


FORECAST: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "get_forecast",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 20},
                "unit": {"enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city", "unit", "days"],
        },
    },
}


def check_arguments(arguments: Any) -> None:
    """Those of a call that answers WEATHER."""
    assert set(arguments) == {"city", "unit", "days"} and len(arguments["city"]) <= 20
    assert arguments["unit"] in ("celsius", "fahrenheit") and 1 <= arguments["days"] <= 7
