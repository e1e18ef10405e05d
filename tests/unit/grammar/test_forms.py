"""Forms are checked in another process, kept by content, and a form that takes too long is cut."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from octavo.errors import BusyError, InvalidRequestError
from octavo.grammar.forms import Forms
from octavo.grammar.source import grammar_source
from octavo.structured_outputs import StructuredOutputsParams


@pytest.fixture
def forms() -> Iterator[Forms]:
    made = Forms()
    yield made
    made.close()


def test_the_grammar_is_that_of_checking_here_and_is_kept(forms: Forms) -> None:
    for form in (
        StructuredOutputsParams(json_object=True),
        StructuredOutputsParams(regex="a+"),
        StructuredOutputsParams(choice=["a"]),
    ):
        assert not forms.is_known(form)
        assert forms.grammar(form) == grammar_source(form)
        assert forms.is_known(form)
    forms.close()
    assert forms.grammar(StructuredOutputsParams(regex="a+")) == grammar_source(StructuredOutputsParams(regex="a+"))


def test_nothing_asked_for_is_known(forms: Forms) -> None:
    assert forms.is_known(StructuredOutputsParams()) and forms.grammar(StructuredOutputsParams()) == ""


def test_a_refusal_comes_back_as_it_was_and_is_kept(forms: Forms) -> None:
    form = StructuredOutputsParams(json={"properties": {"a": {"not": {"pattern": "a"}}}})
    with pytest.raises(InvalidRequestError) as here:
        grammar_source(form)
    for _ in range(2):
        with pytest.raises(InvalidRequestError) as there:
            forms.grammar(form)
        error = there.value
        assert (error.message, error.param, error.code) == (here.value.message, here.value.param, here.value.code)
    assert forms.is_known(form)


def test_the_order_of_properties_is_part_of_a_form(forms: Forms) -> None:
    one = StructuredOutputsParams(json={"properties": {"a": {}, "b": {}}})
    other = StructuredOutputsParams(json={"properties": {"b": {}, "a": {}}})
    assert forms.grammar(one) != forms.grammar(other)


def test_a_form_that_takes_too_long_is_cut_and_not_kept() -> None:
    forms = Forms(check_s=0.0)
    form = StructuredOutputsParams(choice=["a"] * 4000)
    with pytest.raises(InvalidRequestError, match="longer than 0 s") as cut:
        forms.grammar(form)
    assert (cut.value.param, cut.value.code) == ("structured_outputs.choice", "structured_output_too_complex")
    assert not forms.is_known(form)
    forms.close()


def test_closed_forms_say_so(forms: Forms) -> None:
    forms.close()
    with pytest.raises(BusyError, match="shut down"):
        forms.grammar(StructuredOutputsParams(regex="b+"))
