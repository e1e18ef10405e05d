"""lm-evaluation-harness on a local task: loglikelihoods as octavo's own LLM gives them; generation by chat.

The tokens come from the server's own tokenizer (`--enable-tokenizer-info-endpoint`), which the harness finds by itself.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from lm_eval import simple_evaluate
from lm_eval.tasks import TaskManager
from tests.served import Served

QUESTIONS: list[dict[str, Any]] = [
    {"question": "The capital of France is", "choices": ["Paris", "Berlin", "a tree"], "answer": 0},
    {"question": "Water freezes at", "choices": ["fifty degrees", "zero degrees"], "answer": 1},
    {"question": "서울은 한국의", "choices": ["수도", "바다", "🌧️"], "answer": 0},
    {"question": "Two plus two is", "choices": ["five", "four", "seven", "a hundred"], "answer": 1},
]
CHOICES_TASK = """
task: local_choices
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}"
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc}]
"""
ANSWERS_TASK = """
task: local_answers
dataset_path: json
dataset_kwargs: {data_files: {test: %s}}
test_split: test
output_type: generate_until
doc_to_text: "{{question}}"
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["."], max_gen_toks: 8, do_sample: false}
metric_list: [{metric: exact_match}]
"""
WHOLE = """
import json, sys
from octavo import LLM, SamplingParams
pairs = json.load(sys.stdin)
found = []
with LLM(sys.argv[1], max_model_len=1024, kv_cache_memory=0.125) as llm:
    tokenizer = llm.get_tokenizer()
    params = SamplingParams(max_tokens=1, temperature=0, prompt_logprobs=0)
    for context, continuation in pairs:
        whole, start = tokenizer.encode(context + continuation), len(tokenizer.encode(context))
        (output,) = llm.generate([{"prompt_token_ids": whole}], params)
        found.append(sum(output.prompt_logprobs[i][whole[i]].logprob for i in range(start, len(whole))))
print(json.dumps(found))
"""


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TaskManager:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    data = tmp_path / "questions.jsonl"
    data.write_text("".join(f"{json.dumps(question)}\n" for question in QUESTIONS))
    for name, task in (("choices", CHOICES_TASK), ("answers", ANSWERS_TASK)):
        (tmp_path / f"{name}.yaml").write_text(task % data)
    return TaskManager(include_path=str(tmp_path), include_defaults=False)


def evaluate(task: str, tasks: TaskManager, model: str, url: str, **options: Any) -> Any:
    arguments = f"model=m,base_url={url},num_concurrent=2,max_retries=1,max_length=1024"
    return simple_evaluate(model=model, model_args=arguments, tasks=[task], task_manager=tasks, bootstrap_iters=0, **options)


def test_loglikelihoods_are_those_of_the_llm(served: Served, tasks: TaskManager, model_path: Path, octavo_python: str) -> None:
    results = evaluate("local_choices", tasks, "local-completions", f"{served.url}/v1/completions")
    samples = results["samples"]["local_choices"]
    pairs = [pair for sample in samples for pair in sample["arguments"]]
    found = [float(answer[0][0]) for sample in samples for answer in sample["resps"]]
    assert len(found) == sum(len(question["choices"]) for question in QUESTIONS)
    command = [octavo_python, "-c", WHOLE, str(model_path)]
    own = subprocess.run(command, input=json.dumps(pairs), capture_output=True, text=True, check=True)
    assert found == pytest.approx(json.loads(own.stdout.splitlines()[-1]), abs=1e-9)


def test_answers_by_chat(served: Served, tasks: TaskManager) -> None:
    url = f"{served.url}/v1/chat/completions"
    results = evaluate("local_answers", tasks, "local-chat-completions", url, apply_chat_template=True)
    samples = results["samples"]["local_answers"]
    assert len(samples) == len(QUESTIONS) and all(sample["resps"][0][0] for sample in samples)
