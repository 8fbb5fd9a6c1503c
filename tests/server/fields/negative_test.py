"""Every field of every endpoint with every kind of wrong value: 200 or a 400 that names the field, never 5xx. A
concurrent stream is not disturbed (rows H22-H31 of the fault list)."""
import threading

from conftest import SOURCE

VALUES = ["MISSING", None, True, False, "x", "", 0, -1, 1, 1.5, 1e308, -1e308, [], [None], [[]], ["x"], [-1], {}, {"a": 1}, 2**31, 2**63, -2**63, "\u0000", "a" * 5000]

SAMPLING = ["temperature", "top_p", "top_k", "min_p", "typical_p", "repetition_penalty", "presence_penalty", "frequency_penalty", "repeat_last_n", "seed", "logit_bias", "stop",
            "stop_token_ids", "ignore_eos", "include_stop_str_in_output", "skip_special_tokens", "user", "min_tokens", "best_of", "use_beam_search", "length_penalty", "early_stopping", "response_format", "grammar", "json_schema",
            "structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar"]
SAMPLERS = ["samplers", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "top_n_sigma", "xtc_probability", "xtc_threshold", "dynatemp_range",
            "dynatemp_exponent", "mirostat", "mirostat_tau", "mirostat_eta"]
CHAT_ONLY = ["messages", "n", "stream_options", "logprobs", "top_logprobs", "max_completion_tokens", "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs",
             "reasoning_effort", "documents", "add_generation_prompt", "continue_final_message", "return_token_ids", "chat_template", "model",
             "echo", "prompt_logprobs", "timings_per_token", "return_progress"]
SECRET = "xyzzy of the prompt"  # no error may repeat it
MESSAGES = [{"role": "user", "content": SECRET}]
ENDPOINTS = {
    "/v1/chat/completions": ({"messages": MESSAGES, "max_tokens": 1}, SAMPLING + CHAT_ONLY),
    "/v1/completions": ({"prompt": SECRET, "max_tokens": 1}, SAMPLING + ["prompt", "n", "stream_options", "logprobs", "echo", "suffix", "add_special_tokens", "return_token_ids", "max_tokens",
                                                                               "prompt_logprobs", "timings_per_token", "return_progress"]),
    "/v1/responses": ({"input": SECRET, "max_output_tokens": 1}, ["input", "instructions", "max_output_tokens", "temperature", "top_p", "tools", "tool_choice", "text", "reasoning", "metadata",
                                                                "previous_response_id", "conversation", "background", "truncation", "prompt", "store"]),
    "/v1/messages": ({"messages": MESSAGES, "max_tokens": 1}, ["messages", "max_tokens", "system", "stop_sequences", "temperature", "top_p", "top_k", "tools", "tool_choice", "thinking", "metadata", "output_format",
                                                               "output_config"]),
    "/v1/messages/count_tokens": ({"messages": MESSAGES}, ["messages", "system", "tools", "tool_choice"]),
    "/tokenize": ({"prompt": SECRET}, ["prompt", "content", "messages", "add_special", "add_special_tokens", "parse_special", "with_pieces", "return_token_strs"]),
    "/detokenize": ({"tokens": [1, 2]}, ["tokens"]),
    "/completion": ({"prompt": SECRET, "n_predict": 1}, ["prompt", "n_predict", "n_probs", "return_tokens", "stream", "logit_bias", "stop", "id_slot", "n_keep", "truncate_prompt_tokens", *SAMPLERS]),
    "/infill": ({"input_prefix": SECRET, "input_suffix": SECRET, "n_predict": 1}, ["input_prefix", "input_suffix", "input_extra", "prompt"]),
    "/api/chat": ({"messages": MESSAGES, "options": {"num_predict": 1}}, ["messages", "options", "format", "think", "keep_alive", "tools", "stream", "logprobs", "top_logprobs", "model"]),
    "/api/generate": ({"prompt": SECRET, "options": {"num_predict": 1}}, ["prompt", "suffix", "system", "raw", "images", "context", "template", "think", "format"]),
    "/api/show": ({"model": "demo"}, ["model", "name", "verbose"]),
    "/apply-template": ({"messages": MESSAGES}, ["messages", "tools", "chat_template_kwargs"]),
}
# Values inside a message, a tool or an item, the same for each place.
NESTED = {
    "/v1/chat/completions": [{"messages": [{"role": v, "content": "hi"}]} for v in VALUES] + [{"messages": [{"role": "user", "content": v}]} for v in VALUES] +
                            [{"messages": [v]} for v in VALUES] + [{"tools": [v]} for v in VALUES] + [{"tools": [{"type": "function", "function": v}]} for v in VALUES] +
                            [{"messages": [{"role": "assistant", "content": "x", "tool_calls": v}, *MESSAGES]} for v in VALUES] + [{"logit_bias": {"5": v}} for v in VALUES] +
                            [{"messages": [{"role": "user", "content": [{"type": v, "text": "x"}]}]} for v in VALUES] + [{"stream_options": {"include_usage": v}, "stream": True} for v in VALUES],
    "/v1/responses": [{"input": [v]} for v in VALUES] + [{"input": [{"role": "user", "content": v}]} for v in VALUES] + [{"input": [{"role": v, "content": "x"}]} for v in VALUES] +
                     [{"input": [{"type": "function_call_output", "call_id": "c", "output": v}]} for v in VALUES] + [{"tools": [{"type": "function", "name": v}]} for v in VALUES],
    "/v1/messages": [{"messages": [v]} for v in VALUES] + [{"messages": [{"role": "user", "content": v}]} for v in VALUES] + [{"messages": [{"role": v, "content": "x"}]} for v in VALUES] +
                    [{"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": v}]}]} for v in VALUES] + [{"tools": [{"name": "f", "input_schema": v}]} for v in VALUES],
    "/api/chat": [{"options": {"num_predict": 1, name: v}} for name in ("temperature", "seed", "stop", "num_ctx", "mirostat", "use_mmap", "top_k") for v in VALUES] +
                 [{"messages": [{"role": "user", "content": "hi", name: v}]} for name in ("images", "tool_calls", "thinking", "tool_name") for v in VALUES] + [{"messages": [v]} for v in VALUES] +
                 [{"messages": [{"role": "assistant", "tool_calls": [{"function": v}]}]} for v in VALUES],
    "/v1/completions": [{"prompt": [[v]]} for v in VALUES] + [{"prompt": ["a", v]} for v in VALUES],
}


def without_missing(json_value):
    if isinstance(json_value, dict):
        return {k: without_missing(v) for k, v in json_value.items() if v != "MISSING"}
    return [without_missing(v) for v in json_value] if isinstance(json_value, list) else json_value


def cases():
    for path, (good, fields) in ENDPOINTS.items():
        for field in fields:
            for value in VALUES:
                yield path, field, without_missing(good | {field: value})
        for change in NESTED.get(path, []):
            yield path, next(iter(change)), without_missing(good | change)


def check(path, field, reply, body):
    assert reply.status in (200, 400), (reply.status, path, body, reply.body)
    if reply.status == 200:
        return
    error = reply.json()["error"]
    if path.startswith("/api/"):  # Ollama's errors are strings
        error = {"message": error, "param": "in the text"}
    assert error["message"] and len(error["message"]) < 2500, error
    if path.startswith("/v1/messages"):
        assert reply.json()["type"] == "error" and error["type"] == "invalid_request_error"
    else:
        assert error["param"] or "request body" in error["message"], (body, error)
    assert "0x" not in error["message"] and "/src/" not in error["message"] and "terminate" not in error["message"] and SECRET not in error["message"]


def test_the_matrix(server):
    stop = threading.Event()
    harm = []
    text = server.chat("Tell me a story.", temperature=0, max_tokens=40).json()["choices"][0]["message"]["content"]

    def stream_beside():
        while not stop.is_set():
            reply = server.chat("Tell me a story.", temperature=0, max_tokens=40, stream=True)
            said = "".join(c["delta"].get("content") or "" for e in reply.events() for c in e["choices"])
            if said != text:
                harm.append(said)

    thread = threading.Thread(target=stream_beside)
    thread.start()
    n = refused = 0
    try:
        connection = server.connection()
        for path, field, body in cases():
            reply = server.post(path, body, connection=connection)
            check(path, field, reply, body)
            n += 1
            refused += reply.status == 400
    finally:
        stop.set()
        thread.join()
    print(f"{n} requests, {refused} refused, none 5xx")
    assert n >= 2000 and refused > n / 2 and not harm
    server.wait_idle()
    assert server.get("/health").status == 200 and server.metric("kv_cache_usage_perc") == 0


def test_the_matrix_of_an_encoder(start):
    server = start(SOURCE / "tests" / "data" / "encoders" / "bert.gguf", "--access-log", "none")
    good = {"input": "hi"}
    changes = [{field: v} for field in ("input", "encoding_format", "dimensions", "user", "truncate", "prompt_name", "model") for v in VALUES]
    changes += [{"input": [v]} for v in VALUES] + [{"input": ["a", v]} for v in VALUES] + [{"input": [[v]]} for v in VALUES] + [{"input": [[5], v]} for v in VALUES]
    connection = server.connection()
    vector = server.post("/v1/embeddings", good).json()["data"]
    for change in changes:
        body = without_missing(good | change)
        check("/v1/embeddings", next(iter(change)), server.post("/v1/embeddings", body, connection=connection), body)
    assert server.post("/v1/embeddings", good).json()["data"] == vector
    server.wait_idle()
