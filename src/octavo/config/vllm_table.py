"""The options of vLLM that its documentation uses most, and what each does here: data alone, read by config/vllm.py.

`same` is a field of octavo's own; `sets` sets one under another name; `warns` passes and is named once, where its value means
something elsewhere; `refuses` passes only with a value that asks for nothing. None and empty values always pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from octavo.config.cache import GIB
from octavo.config.human_int import human_int


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOption:
    """One option of vLLM.

    name     as in Python; on the command line with dashes; short: the other spelling there ("-tp")
    answer   "same", "sets", "warns" or "refuses"
    text     what becomes of it, or what to do instead: the end of a sentence
    neutral  values that ask for nothing, besides None and empty ones
    field    octavo's field that it is, or sets
    convert  its value to the field's; None leaves the field alone
    switch   on the command line it takes no value
    """

    name: str
    answer: str
    text: str
    neutral: tuple[Any, ...] = ()
    field: str | None = None
    convert: Callable[[Any], Any] = lambda value: value
    switch: bool = False
    short: str | None = None


def same(name: str, text: str = "") -> VllmOption:
    return VllmOption(name=name, answer="same", text=text, field=name)


def sets(name: str, field: str, text: str, convert: Callable[[Any], Any] = lambda value: value, **more: Any) -> VllmOption:
    return VllmOption(name=name, answer="sets", text=text, field=field, convert=convert, **more)


def warns(name: str, text: str, *neutral: Any, **more: Any) -> VllmOption:
    return VllmOption(name=name, answer="warns", text=text, neutral=neutral, **more)


def refuses(name: str, text: str, *neutral: Any, **more: Any) -> VllmOption:
    return VllmOption(name=name, answer="refuses", text=text, neutral=neutral, **more)


def _gib(value: Any) -> float:
    """Bytes, also as 4G, to GiB."""
    return human_int(value) / GIB


_NO_LORA = "there are no adapters: merge it into the weights first (merge_and_unload in PEFT)"
_NO_GPU = "it tunes GPUs, and nothing here needs it"
_TEXT_ONLY = "models read text only, so nothing is limited or cached for images, audio or video"
_ONE_PROCESS = "one process computes with all CPUs (num_threads); for more, start several servers behind a load balancer"
_ONE_GRAMMAR = "forms are kept by llguidance, there is no other backend; see docs/structured_outputs.md"
_NO_PYTHON_SAMPLING = (
    "the sampler is native and calls no Python; use logit_bias, allowed_token_ids, bad_words or structured_outputs"
)
_SPECULATION = 'it belongs into speculative_config: {"method": "ngram", "num_speculative_tokens": 8}'
_TASKS = "a model that generates text makes embeddings too, without being asked to; an encoder makes embeddings alone"
_EDIT_CONFIG = "change config.json in a copy of the model's folder"

TABLE: dict[str, tuple[VllmOption, ...]] = {
    "Model": (
        same("model"),
        refuses("task", _TASKS, "auto", "generate", "embed", "embedding", "score"),
        refuses("runner", _TASKS, "auto", "generate", "pooling"),
        refuses("convert", _TASKS, "auto", "none", "embed"),
        same("pooler_config", "Of its fields pooling_type (or seq_pooling_type) and normalize (or use_activation) are there."),
        same("override_pooler_config", "The older name of pooler_config."),
        same("dtype", "half is float16, float is float32."),
        same(
            "quantization", "gguf is auto; awq, gptq, compressed-tensors, fp8 must be what the folder is; others are not there."
        ),
        same("max_model_len", "2k is 2000, 2K is 2048; auto and -1 are the default."),
        same("load_format"),
        same("revision"),
        refuses("code_revision", "no code of a model is ever run", "main"),
        warns("trust_remote_code", "no code of a model is ever run", False, switch=True),
        same("seed"),
        same("generation_config"),
        same("override_generation_config"),
        same("served_model_name", "Several stand with commas between them, or as a list; answers bear the first."),
        refuses("hf_config_path", "give the folder that holds config.json as the model"),
        refuses("hf_overrides", _EDIT_CONFIG),
        refuses("rope_scaling", _EDIT_CONFIG),
        refuses("rope_theta", _EDIT_CONFIG),
        refuses("config_format", _EDIT_CONFIG, "auto", "hf"),
        refuses("hf_token", "set HF_TOKEN in the environment"),
        refuses("download_dir", "set OCTAVO_CACHE, or HF_HOME for models of the hub"),
        warns("ignore_patterns", "only files that are read are fetched", "original/**/*", ["original/**/*"]),
        refuses("model_loader_extra_config", "no loader here reads it"),
        warns("model_impl", "each model has one implementation", "auto", "vllm", "transformers"),
        warns("max_logprobs", "a request may ask for 20", 20),
        refuses("logprobs_mode", "logprobs are those of the raw logits", "raw_logprobs"),
        refuses("logits_processors", _NO_PYTHON_SAMPLING),
        warns("enable_prompt_embeds", "prompts are text or token ids", False, switch=True),
        warns("use_tqdm_on_load", "a model is mapped, which takes no time worth a bar", True, switch=True),
        warns("disable_sliding_window", "sliding windows are computed exactly", False, switch=True),
        refuses("enable_sleep_mode", "close the LLM and open it again: a start takes a second", False, switch=True),
    ),
    "Tokenizer": (
        same("tokenizer"),
        refuses("tokenizer_mode", "there is one tokenizer, the fast one", "auto", "hf", "fast", "slow"),
        refuses("tokenizer_revision", "give the tokenizer's folder with tokenizer", "main"),
        warns("skip_tokenizer_init", "the tokenizer is always there; detokenize=False saves its work", False, switch=True),
        warns("tokenizer_pool_size", "long texts are tokenised in threads of their own", 0),
    ),
    "Parallel": (
        refuses("tensor_parallel_size", _ONE_PROCESS, 1, short="-tp"),
        refuses("tensor_parallel_degree", "it is tensor_parallel_size, and " + _ONE_PROCESS, 1),
        refuses("pipeline_parallel_size", _ONE_PROCESS, 1, short="-pp"),
        refuses("data_parallel_size", _ONE_PROCESS, 1, short="-dp"),
        refuses("decode_context_parallel_size", _ONE_PROCESS, 1, short="-dcp"),
        refuses("nnodes", _ONE_PROCESS, 1),
        refuses("enable_expert_parallel", "all CPUs share the work of every expert", False, switch=True),
        refuses("enable_eplb", "all CPUs share the work of every expert", False, switch=True),
        warns("distributed_executor_backend", "there is one worker, in the core process", "mp", "uni"),
        warns("max_parallel_loading_workers", "weights are mapped, not loaded"),
        warns("disable_custom_all_reduce", _NO_GPU, False, switch=True),
        warns("ray_workers_use_nsight", _NO_GPU, False, switch=True),
        refuses("worker_cls", "there is one worker", "auto"),
        refuses("worker_extension_cls", "there is one worker"),
    ),
    "Memory": (
        same("gpu_memory_utilization"),
        sets("kv_cache_memory_bytes", "kv_cache_memory", "in bytes, also as 4G", _gib),
        same("block_size"),
        same("swap_space"),
        same("kv_cache_dtype", "int8 is what stands in for fp8."),
        same("num_gpu_blocks_override"),
        same("enable_prefix_caching"),
        warns("prefix_caching_hash_algo", "blocks are known by SHA-256", "sha256", "sha256_cbor", "builtin"),
        warns("cpu_offload_gb", "weights are in the CPU's memory", 0),
        warns("calculate_kv_scales", "int8 scales are computed for every key and value", False, switch=True),
        warns("disable_hybrid_kv_cache_manager", "all layers share one kind of block", False, switch=True),
        refuses("kv_transfer_config", "the KV cache belongs to one engine"),
        refuses("kv_events_config", "GET /admin/memory tells what is cached"),
        warns("max_paddings", "nothing is ever padded: a step computes the tokens that it has, and no more"),
    ),
    "Scheduler": (
        same("max_num_seqs"),
        same("max_num_batched_tokens", "4k is 4000, 4K is 4096."),
        sets("scheduling_policy", "scheduler_policy", "fcfs, priority, and more: see docs/scheduling.md"),
        sets(
            "long_prefill_token_threshold",
            "chunked_prefill_size",
            "0 is the default",
            lambda value: value or None,
        ),
        warns("enable_chunked_prefill", "prompts always take turns with decodes; see chunked_prefill_size", True, switch=True),
        warns("max_num_partial_prefills", "as many prompts as fit a step are computed in it", 1),
        warns("max_long_partial_prefills", "as many prompts as fit a step are computed in it", 1),
        warns("num_scheduler_steps", "every step is scheduled", 1),
        warns("multi_step_stream_outputs", "every step is streamed", True, switch=True),
        warns("num_lookahead_slots", "blocks are granted when they are needed", 0),
        warns("scheduler_delay_factor", "a step starts as soon as there is work", 0),
        warns("stream_interval", "every token is streamed when it is there", 1),
        warns("async_scheduling", "planning a step takes microseconds", False, switch=True),
        warns("use_v2_block_manager", "there is one block manager", True, switch=True),
        same("preemption_mode"),
        refuses("scheduler_cls", "choose a scheduler_policy"),
        same("speculative_config", "Of its methods ngram is there; see docs/speculation.md."),
        refuses("speculative_model", _SPECULATION, "ngram", "[ngram]"),
        refuses("num_speculative_tokens", _SPECULATION, 0),
    ),
    "Compute": (
        same("device", "auto is cpu; there are no GPUs."),
        same("enforce_eager"),
        warns("compilation_config", "the forward pass is recorded as a tape when the model loads", 0, short="-O"),
        warns("max_seq_len_to_capture", "one tape serves every length"),
        warns("cuda_graph_sizes", "one tape serves every batch"),
        warns("disable_cascade_attn", _NO_GPU, False, switch=True),
        warns("disable_async_output_proc", "the API process handles the text while the core computes", False, switch=True),
        refuses("additional_config", "no platform here reads it"),
    ),
    "LoRA and multimodal": (
        refuses("enable_lora", _NO_LORA, False, switch=True),
        refuses("lora_modules", _NO_LORA),
        warns("max_loras", "there are no adapters", 1),
        warns("max_lora_rank", "there are no adapters", 16),
        warns("max_cpu_loras", "there are no adapters"),
        warns("lora_dtype", "there are no adapters", "auto"),
        warns("fully_sharded_loras", "there are no adapters", False, switch=True),
        warns("limit_mm_per_prompt", _TEXT_ONLY),
        warns("mm_processor_kwargs", _TEXT_ONLY),
        warns("mm_processor_cache_gb", _TEXT_ONLY, 4),
        warns("disable_mm_preprocessor_cache", _TEXT_ONLY, False, switch=True),
        warns("skip_mm_profiling", _TEXT_ONLY, False, switch=True),
        warns("allowed_local_media_path", _TEXT_ONLY),
    ),
    "Chat": (
        same("chat_template"),
        same("chat_template_content_format"),
        same("default_chat_template_kwargs"),
        same("response_role"),
        same("trust_request_chat_template"),
        warns("enable_auto_tool_choice", "tools are always there; see docs/tools.md", True, switch=True),
        same("tool_call_parser", "See docs/tools.md."),
        refuses("tool_parser_plugin", "no code of others is loaded; take one of the names that tool_call_parser has"),
        same("reasoning_parser", "See docs/tools.md."),
        refuses("guided_decoding_backend", _ONE_GRAMMAR, "auto", "guidance"),
        refuses("structured_outputs_config", _ONE_GRAMMAR),
    ),
    "Server": (
        same("host"),
        same("port"),
        same("api_key"),
        same("config", "A YAML file of options, such as `max-model-len: 2k`."),
        same("root_path"),
        same("allowed_origins"),
        same("allowed_methods"),
        same("allowed_headers"),
        same("allow_credentials"),
        same("enable_tokenizer_info_endpoint"),
        warns("enable_server_load_tracking", "GET /load always tells it", True, switch=True),
        same("uds"),
        same("ssl_keyfile"),
        same("ssl_certfile"),
        same("ssl_ca_certs"),
        same("ssl_cert_reqs"),
        warns("enable_ssl_refresh", "a certificate that changes is always read again", True, switch=True),
        refuses("middleware", "put a proxy in front"),
        sets(
            "uvicorn_log_level",
            "log_level",
            "of the whole server; trace is debug, critical is error",
            lambda value: {"trace": "debug", "critical": "error"}.get(value, value),
        ),
        sets(
            "enable_log_requests",
            "disable_log_requests",
            "one line per finished request, without its text",
            lambda value: not value,
            switch=True,
        ),
        same("disable_log_requests"),
        sets("disable_uvicorn_access_log", "disable_log_requests", "the two logs are one", switch=True),
        same("disable_log_stats"),
        warns("max_log_len", "no prompt is ever logged"),
        refuses("enable_log_outputs", "no text of a request is ever logged", False, switch=True),
        warns("enable_log_deltas", "no text of a request is ever logged", True, switch=True),
        warns("log_error_stack", "a fault of the server is logged with its stack", False, switch=True),
        warns("h11_max_incomplete_event_size", "request line and headers may have 64 KiB"),
        warns("h11_max_header_count", "request line and headers may have 64 KiB"),
        refuses("log_config_file", "use --log-level; the log goes to stderr"),
        refuses("otlp_traces_endpoint", "read /metrics"),
        same("disable_fastapi_docs"),
        same("return_tokens_as_token_ids"),
        warns("enable_prompt_tokens_details", "cached tokens are always reported", True, switch=True),
        warns("enable_request_id_headers", "X-Request-Id is always sent", True, switch=True),
        same("enable_force_include_usage"),
        warns("disable_frontend_multiprocessing", "the core always has a process of its own", False, switch=True),
        refuses("api_server_count", "one API process carries what a core can compute", 1),
        refuses("headless", "every server answers HTTP", False, switch=True),
    ),
}
"""Section of docs/vllm.md -> its options."""
