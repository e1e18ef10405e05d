"""Structured output on the embedded models: validity on a file of schemas, cost of masks, and what forced tokens save.

    python benchmarks/structured_outputs.py campaign SCHEMAS.jsonl   every schema through a real server at temperature 1
    python benchmarks/structured_outputs.py masks SCHEMAS.jsonl      time of a mask, vocabularies of 49k and 262k tokens
    python benchmarks/structured_outputs.py forced                   steps with and without forced tokens, and their time

SCHEMAS.jsonl has a JSON schema on each line, or an object with it under "schema" or "json_schema". `campaign` ends with another
exit code than 0 if a whole answer is not valid, or a request fails in another way than by a 400 with a code of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import jsonschema  # type: ignore[import-untyped]
import numpy as np
from comparison.processes import free_port, running_server, wait_until_ready

from octavo import LLM, InvalidRequestError, SamplingParams, StructuredOutputsParams
from octavo.engine.args import EngineArgs
from octavo.engine.core.build import build_core
from octavo.engine.llm_engine import LLMEngine
from octavo.grammar.matcher import GrammarMatcher, GrammarVocabulary, mask_words
from octavo.grammar.source import grammar_source
from octavo.grammar.tokens import token_table

NUM_CLIENTS = 16
REFUSALS = ("unsupported_schema", "structured_output_too_complex", "invalid_value")
RECORD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "record_type": {"const": "customer_support_conversation_summary"},
        "schema_version": {"const": "2026-11-30"},
        "customer_sentiment": {"enum": ["positive", "neutral", "negative"]},
        "number_of_messages": {"type": "integer", "minimum": 0, "maximum": 99},
        "requires_follow_up": {"type": "boolean"},
        "short_description": {"type": "string", "maxLength": 40},
        "responsible_department": {"enum": ["billing", "shipping", "technical support"]},
    },
    "additionalProperties": False,
}
RECORD["required"] = list(RECORD["properties"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("campaign", "masks", "forced"))
    parser.add_argument("schemas", type=Path, nargs="?")
    parser.add_argument("--limit", type=int, default=None, help="only the first so many schemas")
    parser.add_argument("--max-tokens", type=int, default=256)
    options = parser.parse_args()
    if options.what == "forced":
        forced()
        return
    if options.schemas is None:
        parser.error(f"{options.what} needs a file of schemas")
    schemas = read_schemas(options.schemas)[: options.limit]
    if options.what == "masks":
        for model in ("smollm2-135m-instruct", "gemma3-270m"):
            masks(model, schemas)
    else:
        sys.exit(campaign(schemas, options.max_tokens))


def read_schemas(path: Path) -> list[Any]:
    entries = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return [entry.get("json_schema", entry.get("schema", entry)) for entry in entries]


def campaign(schemas: list[Any], max_tokens: int) -> int:
    """Number of outcomes that must not be."""
    port = free_port()
    command = [sys.executable, "-m", "octavo", "serve", "--port", str(port), "--max-num-seqs", str(NUM_CLIENTS)]
    with running_server("octavo", [*command, "--max-model-len", "2048"], port) as server:
        wait_until_ready("octavo", server, 120)
        outcomes = asyncio.run(ask_all(f"http://127.0.0.1:{port}", schemas, max_tokens))
    counts = Counter(name for name, _ in outcomes)
    for name, count in sorted(counts.items()):
        print(f"{name}: {count}")
    for index, (name, detail) in enumerate(outcomes):
        if name not in ("valid", "cut by max_tokens"):
            print(f"schema {index}: {name}: {detail[:200]}")
    return sum(count for name, count in counts.items() if name.startswith("WRONG"))


async def ask_all(url: str, schemas: list[Any], max_tokens: int) -> list[tuple[str, str]]:
    """Outcome and detail for each schema."""
    seats = asyncio.Semaphore(NUM_CLIENTS)
    async with httpx.AsyncClient(base_url=url, timeout=600) as client:

        async def ask(index: int, schema: Any) -> tuple[str, str]:
            body = {
                "messages": [{"role": "user", "content": "Write a small, realistic example as JSON."}],
                "response_format": {"type": "json_schema", "json_schema": {"name": "example", "schema": schema}},
                "temperature": 1.0,
                "seed": index,
                "max_tokens": max_tokens,
            }
            async with seats:
                answer = await client.post("/v1/chat/completions", json=body)
            return outcome(answer, schema)

        return list(await asyncio.gather(*(ask(index, schema) for index, schema in enumerate(schemas))))


def outcome(answer: httpx.Response, schema: Any) -> tuple[str, str]:
    content = answer.json()
    if answer.status_code == 400 and content["error"]["code"] in REFUSALS:
        return "refused", content["error"]["message"]
    if answer.status_code != 200:
        return "WRONG: failed", answer.text
    choice = content["choices"][0]
    if choice["finish_reason"] == "length":
        return "cut by max_tokens", ""
    if choice["finish_reason"] != "stop":
        return "WRONG: ended", choice["finish_reason"]
    try:
        jsonschema.validators.validator_for(schema)(schema).validate(json.loads(choice["message"]["content"]))
    except (ValueError, jsonschema.ValidationError) as error:
        return "WRONG: invalid", f"{str(error)[:120]} in {choice['message']['content']}"
    return "valid", ""


def masks(model: str, schemas: list[Any]) -> None:
    """Processor time of each mask along answers of the model, and of making the vocabulary."""
    forms = [StructuredOutputsParams(json=schema) for schema in schemas if is_accepted(schema)]
    params = [SamplingParams(max_tokens=60, seed=index, structured_outputs=form) for index, form in enumerate(forms)]
    with LLM(model, max_model_len=512, max_num_seqs=32) as llm:
        outputs = llm.generate(["JSON:\n"] * len(params), params, use_tqdm=False)
        engine = llm.llm_engine
        table = token_table(engine.tokenizer, engine.tokenizer.eos_token_ids, engine.model_config.vocab_size)
    start_s = time.thread_time()
    vocabulary = GrammarVocabulary(table)
    made_s = time.thread_time() - start_s
    mask, costs = np.zeros(mask_words(vocabulary.vocab_size), np.int32), []
    for form, output in zip(forms, outputs, strict=True):
        matcher = GrammarMatcher(vocabulary, grammar_source(form) or "")
        for token_id in output.outputs[0].token_ids:
            start_s = time.thread_time()
            matcher.fill_mask(mask)
            costs.append(1e6 * (time.thread_time() - start_s))
            matcher.try_accept(token_id)
    median, p99, worst = statistics.median(costs), np.percentile(costs, 99), max(costs)
    print(
        f"{model}: {vocabulary.vocab_size} tokens, vocabulary made in {made_s:.2f} s; {len(costs)} masks: "
        f"median {median:.0f} us, p99 {p99:.0f} us, worst {worst:.0f} us"
    )


def is_accepted(schema: Any) -> bool:
    try:
        grammar_source(StructuredOutputsParams(json=schema))
    except InvalidRequestError:
        return False
    return True


def forced() -> None:
    """One client after the other on a schema with long forced parts."""
    config = EngineArgs(max_model_len=1024, max_num_seqs=4).create_engine_config()
    for blanks in (True, False):
        form = StructuredOutputsParams(json=RECORD, disable_any_whitespace=not blanks)
        texts = []
        for forces_tokens in (False, True):
            engine = LLMEngine(config, make_core=partial(build_core, forces_tokens=forces_tokens))
            run(engine, form, range(1, 2))
            steps, start_s = engine.stats().num_steps, time.perf_counter()
            num_tokens, text = run(engine, form, range(10, 20))
            took_s, num_steps = time.perf_counter() - start_s, engine.stats().num_steps - steps
            texts.append(text)
            name = f"{'free' if blanks else 'no'} white space, {'forced' if forces_tokens else 'computed'}"
            print(f"{name}: {num_tokens} tokens in {num_steps} steps, {num_tokens / took_s:.0f} tok/s")
            engine.shutdown()
        assert texts[0] == texts[1]


def run(engine: LLMEngine, form: StructuredOutputsParams, seeds: range) -> tuple[int, list[str]]:
    """Tokens and texts of one answer per seed."""
    num_tokens, texts = 0, []
    for seed in seeds:
        params = SamplingParams(max_tokens=400, seed=seed, structured_outputs=form)
        engine.add_request(str(seed), "A summary of the conversation as JSON:\n", params)
        while engine.has_unfinished_requests():
            for output in engine.step():
                if output.finished:
                    num_tokens += len(output.outputs[0].token_ids)
                    texts.append(output.outputs[0].text)
    return num_tokens, texts


if __name__ == "__main__":
    main()
