"""An offline batch on OpenVINO GenAI. Runs in a Python that has openvino-genai and nothing of octavo; compare.py starts it.

stdin:   {"model": GGUF path, "threads": n, "concurrency": n, "cache_gib": n, "prompts": [text], "output_lens": [tokens]}
stdout:  one line of JSON: {"version", "load_s", "seconds", "input_tokens", "output_tokens", "peak_rss_mib"}
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import import_module
from typing import Any


def greedy(genai: Any, max_new_tokens: int) -> Any:
    config = genai.GenerationConfig()
    config.max_new_tokens = max_new_tokens
    config.ignore_eos = True
    config.do_sample = False
    config.apply_chat_template = False
    return config


def main() -> None:
    genai = import_module("openvino_genai")
    job = json.load(sys.stdin)
    scheduler = genai.SchedulerConfig()
    scheduler.cache_size = job["cache_gib"]
    scheduler.max_num_seqs = job["concurrency"]
    scheduler.enable_prefix_caching = False
    start = time.perf_counter()
    properties = {"INFERENCE_NUM_THREADS": job["threads"]}
    pipeline = genai.ContinuousBatchingPipeline(job["model"], scheduler, "CPU", properties)
    load_s = time.perf_counter() - start
    pipeline.generate(["Hello there, this is a warm-up prompt"] * 2, [greedy(genai, 4), greedy(genai, 4)])
    tokenizer = pipeline.get_tokenizer()
    num_input = sum(tokenizer.encode(prompt).input_ids.get_shape()[1] for prompt in job["prompts"])
    configs = [greedy(genai, length) for length in job["output_lens"]]
    start = time.perf_counter()
    pipeline.generate(job["prompts"], configs)
    seconds = time.perf_counter() - start
    print(
        json.dumps(
            {
                "version": genai.get_version(),
                "load_s": load_s,
                "seconds": seconds,
                "input_tokens": num_input,
                "output_tokens": sum(job["output_lens"]),
                "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
            }
        )
    )


if __name__ == "__main__":
    main()
