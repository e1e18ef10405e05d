"""Structured output: from the form that a request asks for to the tokens that may come next."""
