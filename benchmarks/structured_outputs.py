"""Structured output on the real model: validity and cost on a file of schemas, and what a form costs its neighbours.

    python benchmarks/structured_outputs.py SCHEMAS.jsonl [--limit 30]

SCHEMAS.jsonl has a JSON schema on each line, or an object with it under "schema" or "json_schema".
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np

from octavo import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from octavo.grammar.matcher import GrammarMatcher, GrammarVocabulary, mask_words
from octavo.grammar.source import grammar_source
from octavo.grammar.tokens import token_table

NUM_NEIGHBOURS = 16


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("schemas", type=Path)
    parser.add_argument("--limit", type=int, default=None, help="only the first so many")
    parser.add_argument("--max-tokens", type=int, default=200)
    options = parser.parse_args()
    forms = [StructuredOutputsParams(json=schema) for schema in read_schemas(options.schemas)[: options.limit]]
    with LLM(max_model_len=1024, max_num_seqs=32) as llm:
        texts = generate(llm, forms, options.max_tokens)
        mask_costs(llm, texts)
        neighbours(llm, texts[0][0] if texts else StructuredOutputsParams(json_object=True))


def read_schemas(path: Path) -> list[Any]:
    entries = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [entry.get("json_schema", entry.get("schema", entry)) for entry in entries]


def generate(
    llm: LLM, forms: list[StructuredOutputsParams], max_tokens: int
) -> list[tuple[StructuredOutputsParams, list[int]]]:
    """One answer per schema at temperature 1: how many are refused, whole, valid. Returns forms and answers."""
    accepted, num_refused = [], 0
    for form in forms:
        try:
            grammar_source(form)
            accepted.append(form)
        except InvalidRequestError:
            num_refused += 1
    params = [SamplingParams(max_tokens=max_tokens, seed=index, structured_outputs=form) for index, form in enumerate(accepted)]
    outputs = llm.generate(["JSON:\n"] * len(params), params)
    num_whole = num_valid = 0
    for form, output in zip(accepted, outputs, strict=True):
        choice = output.outputs[0]
        if choice.finish_reason == "stop":
            num_whole += 1
            num_valid += is_valid(choice.text, form.json)
    print(f"{len(forms)} schemas: {num_refused} refused, {num_whole} whole answers, {num_valid} of them valid")
    return [(form, output.outputs[0].token_ids) for form, output in zip(accepted, outputs, strict=True)]


def is_valid(text: str, schema: Any) -> bool:
    import jsonschema  # type: ignore[import-untyped]  # of the extra `dev`

    try:
        jsonschema.validate(json.loads(text), json.loads(schema) if isinstance(schema, str) else schema)
    except (ValueError, jsonschema.ValidationError, jsonschema.SchemaError):
        return False
    return True


def mask_costs(llm: LLM, texts: list[tuple[StructuredOutputsParams, list[int]]]) -> None:
    """Time of each mask along the answers."""
    engine = llm.llm_engine
    vocab_size = engine.model_config.vocab_size
    vocabulary = GrammarVocabulary(token_table(engine.tokenizer, engine.tokenizer.eos_token_ids, vocab_size))
    mask, costs = np.zeros(mask_words(vocab_size), np.int32), []
    for form, token_ids in texts:
        matcher = GrammarMatcher(vocabulary, grammar_source(form) or "")
        for token_id in token_ids:
            start_s = time.perf_counter()
            matcher.fill_mask(mask)
            costs.append(1e6 * (time.perf_counter() - start_s))
            matcher.try_accept(token_id)
    if costs:
        print(f"mask: median {statistics.median(costs):.0f} us, p99 {np.percentile(costs, 99):.0f} us, {len(costs)} tokens")


def neighbours(llm: LLM, form: StructuredOutputsParams) -> None:
    """Time of the steps of free requests, alone and beside one with a form."""
    for name, extra in (("without", None), ("with", form)):
        engine, steps = llm.llm_engine, []
        for index in range(NUM_NEIGHBOURS):
            engine.add_request(f"n{index}", "Once upon a time", SamplingParams(max_tokens=100, ignore_eos=True, seed=index))
        params = SamplingParams(max_tokens=100, ignore_eos=True, seed=0, structured_outputs=extra)
        engine.add_request("one", "JSON:\n", params)
        while engine.has_unfinished_requests():
            start_s = time.perf_counter()
            engine.step()
            steps.append(1e3 * (time.perf_counter() - start_s))
        print(f"{name} a form: step median {statistics.median(steps):.1f} ms, p99 {np.percentile(steps, 99):.1f} ms")


if __name__ == "__main__":
    main()
