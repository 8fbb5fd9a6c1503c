"""The C API from Python, through ctypes. Compares the shared library in INGOT_LIBRARY with the program's output."""
import ctypes as c
import json
import os
import pathlib
import subprocess
import threading

import pytest

SOURCE = pathlib.Path(os.environ["INGOT_SOURCE"])
MODEL = str(SOURCE / "models" / "demo.gguf").encode()
OK, INVALID, FULL, TIMEOUT, END = 0, 1, 2, 4, 5


class ModelOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char_p)] + [
        (name, c.c_int) for name in "n_threads n_ctx max_seqs max_batch_tokens n_kv_tokens max_queue deterministic".split()] + [
        (name, c.c_char_p) for name in "kv_type speculate draft".split()]


class EmbedderOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("device", c.c_char_p), ("n_threads", c.c_int), ("n_ctx", c.c_int), ("max_batch_tokens", c.c_int),
                ("pooling", c.c_char_p), ("normalize", c.c_int)]


class RequestOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("max_tokens", c.c_int), ("temperature", c.c_float), ("top_k", c.c_int), ("top_p", c.c_float),
                ("min_p", c.c_float), ("repetition_penalty", c.c_float), ("presence_penalty", c.c_float), ("frequency_penalty", c.c_float),
                ("seed", c.c_uint64), ("logprobs", c.c_int), ("ignore_eos", c.c_int), ("stop_tokens", c.POINTER(c.c_int32)),
                ("n_stop_tokens", c.c_size_t), ("priority", c.c_int), ("cache_salt", c.c_char_p), ("timeout_s", c.c_double),
                ("json_schema", c.c_char_p), ("regex", c.c_char_p), ("grammar", c.c_char_p), ("typical_p", c.c_float),
                ("penalty_window", c.c_int), ("top_logprobs", c.c_int), ("bias_tokens", c.POINTER(c.c_int32)),
                ("biases", c.POINTER(c.c_float)), ("n_biases", c.c_size_t), ("images", c.c_void_p), ("n_images", c.c_size_t),
                ("n_beams", c.c_int), ("length_penalty", c.c_float), ("early_stopping", c.c_int)]


class ChatOptions(c.Structure):
    _fields_ = [("struct_size", c.c_size_t), ("tools", c.c_char_p), ("variables", c.c_char_p), ("images", c.c_void_p), ("n_images", c.c_size_t)]


class Event(c.Structure):
    _fields_ = [("kind", c.c_int), ("token", c.c_int32), ("logprob", c.c_float), ("text", c.POINTER(c.c_char)), ("n_bytes", c.c_size_t),
                ("finish", c.c_int), ("prompt_tokens", c.c_int), ("cached_tokens", c.c_int), ("output_tokens", c.c_int)]

    def bytes(self):
        return c.string_at(self.text, self.n_bytes)


@pytest.fixture(scope="module")
def lib():
    lib = c.CDLL(os.environ["INGOT_LIBRARY"])
    for name in ["ingot_version", "ingot_last_error"]:
        getattr(lib, name).restype = c.c_char_p
    return lib


@pytest.fixture(scope="module")
def model(lib):
    options, handle = ModelOptions(), c.c_void_p()
    lib.ingot_model_options_init_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
    assert options.struct_size == c.sizeof(options) and options.max_seqs == 8
    options.n_ctx, options.max_queue, options.n_threads = 256, 4, 2
    assert lib.ingot_load(MODEL, c.byref(options), c.byref(handle)) == OK, lib.ingot_last_error()
    yield handle
    assert lib.ingot_free(handle) == OK


def chat_tokens(lib, model, text):
    messages = json.dumps([{"role": "user", "content": text}]).encode()
    n = c.c_size_t()
    assert lib.ingot_tokenize_chat(model, messages, None, c.c_size_t(0), c.byref(n)) == OK
    tokens = (c.c_int32 * n.value)()
    assert lib.ingot_tokenize_chat(model, messages, tokens, n, c.byref(n)) == OK
    return tokens


def request_options(lib, **fields):
    options = RequestOptions()
    lib.ingot_request_options_init_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
    assert options.struct_size == c.sizeof(options)
    for name, value in fields.items():
        setattr(options, name, value)
    return options


def read(lib, request):
    text, tokens, event = b"", [], Event()
    while True:
        assert lib.ingot_poll(request, -1, c.byref(event)) == OK
        text += event.bytes()
        if event.kind == 1:
            break
        tokens.append(event.token)
    assert lib.ingot_poll(request, 0, c.byref(Event())) == END
    return text, tokens, event


def test_an_answer_is_that_of_the_program(lib, model):
    prompt = "Tell me a story about a fox."
    tokens = chat_tokens(lib, model, prompt)
    options, request = request_options(lib, temperature=0, max_tokens=30), c.c_void_p()
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == OK
    event = Event()
    text, ids = b"", []
    while True:
        assert lib.ingot_poll(request, -1, c.byref(event)) == OK
        text += event.bytes()
        if event.kind == 1:
            break
        ids.append(event.token)
    assert event.prompt_tokens == len(tokens) and event.output_tokens in (len(ids), len(ids) + 1)
    lib.ingot_request_free(request)
    said = json.loads(subprocess.run([os.environ["INGOT"], "run", "-p", prompt, "-n", "30", "--temp", "0", "--json", "-t", "2"],
                                     capture_output=True, check=True).stdout)
    assert ids == said["token_ids"] and text.decode() == said["text"]


SCHEMA = {"type": "object", "properties": {"name_of_the_animal": {"type": "string", "maxLength": 12}, "is_it_awake": {"type": "boolean"},
                                           "count": {"type": "integer", "minimum": 1, "maximum": 99}},
          "required": ["name_of_the_animal", "is_it_awake", "count"], "additionalProperties": False}


def test_answers_follow_a_schema(lib, model):
    """Several requests at once. The model may write an integer with a fraction of zero."""
    tokens, requests = chat_tokens(lib, model, "Tell me about an animal."), []
    for seed in range(4):
        options, request = request_options(lib, temperature=1, seed=seed, max_tokens=120, json_schema=json.dumps(SCHEMA).encode()), c.c_void_p()
        assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == OK
        requests.append(request)
    for request in requests:
        text, ids, event = read(lib, request)
        assert event.finish == 0, lib.ingot_last_error()
        answer = json.loads(text)
        assert list(answer) == SCHEMA["required"] and len(answer["name_of_the_animal"]) <= 12 and answer["is_it_awake"] in (True, False)
        assert answer["count"] == int(answer["count"]) and 1 <= answer["count"] <= 99
        lib.ingot_request_free(request)


def test_a_grammar_without_texts_is_refused(lib, model):
    tokens, request = chat_tokens(lib, model, "Hello"), c.c_void_p()
    for fields in [{"regex": rb"[^\s\S]"}, {"json_schema": b"false"}, {"grammar": b'root ::= "a" root'}]:
        options = request_options(lib, **fields)
        assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == INVALID, fields
        assert lib.ingot_last_error() and not request


def chat_with(lib, model, messages, tools, variables=None):
    options, n, data = ChatOptions(), c.c_size_t(), json.dumps(messages).encode()
    lib.ingot_chat_options_init_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
    assert options.struct_size == c.sizeof(options)
    options.tools, options.variables = json.dumps(tools).encode(), variables
    assert lib.ingot_tokenize_chat_with(model, data, c.byref(options), None, c.c_size_t(0), c.byref(n)) == OK, lib.ingot_last_error()
    tokens = (c.c_int32 * n.value)()
    assert lib.ingot_tokenize_chat_with(model, data, c.byref(options), tokens, n, c.byref(n)) == OK
    return tokens


def read_answer(lib, model, prompt, tools, tokens):
    ids, n = (c.c_int32 * len(tokens))(*tokens), c.c_size_t()
    said = json.dumps(tools).encode() if tools is not None else None
    args = [model, prompt, c.c_size_t(len(prompt)), said, ids, c.c_size_t(len(ids))]
    assert lib.ingot_read_answer(*args, None, c.c_size_t(0), c.byref(n)) == OK, lib.ingot_last_error()
    text = c.create_string_buffer(n.value)
    assert lib.ingot_read_answer(*args, text, n, c.byref(n)) == OK
    return json.loads(text.raw)


def test_a_conversation_with_tools(lib, model):
    """A grammar makes the model call a tool. The parsed message goes back to the model, followed by the tool's
    result."""
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
    messages = [{"role": "user", "content": "Is it cold in Oslo?"}]
    prompt = chat_with(lib, model, messages, tools)
    call = rb"""<tool_call>\n\{"name": "weather", "arguments": \{"city": "[A-Z][a-z]{2,5}"\}\}\n</tool_call>"""
    options, request = request_options(lib, temperature=1, seed=3, max_tokens=90, regex=call), c.c_void_p()
    assert lib.ingot_submit(model, prompt, c.c_size_t(len(prompt)), c.byref(options), None, None, c.byref(request)) == OK, lib.ingot_last_error()
    text, ids, event = read(lib, request)
    assert event.finish == 0
    lib.ingot_request_free(request)
    message = read_answer(lib, model, prompt, tools, ids)
    [one] = message["tool_calls"]
    assert message["role"] == "assistant" and message["content"] == "" and one["type"] == "function"
    assert one["function"]["name"] == "weather" and json.loads(one["function"]["arguments"])["city"] in text.decode()
    assert read_answer(lib, model, prompt, tools, ids)["tool_calls"][0]["id"] == one["id"]
    assert read_answer(lib, model, prompt, None, ids) == {"role": "assistant", "content": text.decode()}
    for end in range(len(ids)):  # an incomplete answer
        assert read_answer(lib, model, prompt, tools, ids[:end]).get("tool_calls", [one])[0]["id"] == one["id"]
    city = json.loads(one["function"]["arguments"])["city"]
    result = {"role": "tool", "tool_call_id": one["id"], "content": "It is 7 degrees."}
    again = chat_with(lib, model, messages + [message, result], tools)
    n, shown = c.c_size_t(), c.create_string_buffer(4096)
    assert lib.ingot_detokenize(model, again, c.c_size_t(len(again)), shown, c.c_size_t(4096), c.byref(n)) == OK
    assert city.encode() in shown.raw[: n.value] and b"7 degrees" in shown.raw[: n.value]


def test_a_callback_hears_every_event_in_order(lib, model):
    tokens, heard = chat_tokens(lib, model, "What is your name?"), []
    callback = c.CFUNCTYPE(None, c.POINTER(Event), c.c_void_p)(lambda e, user: heard.append((e[0].kind, e[0].token, e[0].bytes(), user)))
    options, request = request_options(lib, temperature=1, seed=7, max_tokens=12), c.c_void_p()
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), callback, c.c_void_p(99), c.byref(request)) == OK
    again = c.c_void_p()
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(again)) == OK
    text, ids = b"", []
    event = Event()
    while True:
        assert lib.ingot_poll(again, -1, c.byref(event)) == OK
        text += event.bytes()
        if event.kind == 1:
            break
        ids.append(event.token)
    while not heard or heard[-1][0] != 1:
        assert lib.ingot_poll(request, 0, c.byref(event)) == END
    assert [h[1] for h in heard if h[0] == 0] == ids and b"".join(h[2] for h in heard) == text
    assert all(h[3] == 99 for h in heard) and [h[0] for h in heard].count(1) == 1
    for r in (request, again):
        lib.ingot_request_free(r)


def test_the_queue_fills_and_empties(lib, model):
    tokens, options, requests = chat_tokens(lib, model, "Tell me a story."), request_options(lib, ignore_eos=1, max_tokens=100), []
    for _ in range(200):
        request = c.c_void_p()
        status = lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request))
        if status != OK:
            break
        requests.append(request)
    assert status == FULL and b"full" in lib.ingot_last_error() and not request
    assert len(requests) >= 4
    for request in requests:
        lib.ingot_cancel(request)
    for request in requests:
        assert read(lib, request)[2].finish in (1, 2)
        lib.ingot_request_free(request)


def test_deadlines_and_errors(lib, model):
    tokens, request = chat_tokens(lib, model, "Hello"), c.c_void_p()
    options = request_options(lib, ignore_eos=1, timeout_s=1e-6)
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == OK
    assert read(lib, request)[2].finish == 4
    lib.ingot_request_free(request)
    options = request_options(lib, max_tokens=1000)
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == INVALID
    assert b"the context holds 256" in lib.ingot_last_error()
    handle = c.c_void_p()
    assert lib.ingot_load(b"/no/such/model", None, c.byref(handle)) == INVALID and b"/no/such/model" in lib.ingot_last_error()


def test_only_a_new_event_changes_the_event(lib, model):
    """Neither a timeout nor a later poll changes the event. A callback blocks the library's thread, so the wait times
    out."""
    tokens, go_on, began = chat_tokens(lib, model, "Hello"), threading.Event(), threading.Event()
    held, request = c.c_void_p(), c.c_void_p()
    options, event = request_options(lib, temperature=0, max_tokens=3, ignore_eos=1), Event(finish=77, token=99)
    callback = c.CFUNCTYPE(None, c.POINTER(Event), c.c_void_p)(lambda e, user: began.set() or go_on.wait(60))
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), callback, None, c.byref(held)) == OK
    assert began.wait(60)
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == OK
    assert lib.ingot_poll(request, 10, c.byref(event)) == TIMEOUT and (event.finish, event.token) == (77, 99)
    go_on.set()
    while event.kind != 1:
        assert lib.ingot_poll(request, -1, c.byref(event)) == OK
    for _ in range(2):
        assert lib.ingot_poll(request, 0, c.byref(event)) == END
        assert (event.kind, event.finish, event.output_tokens, event.prompt_tokens) == (1, 1, 3, len(tokens))
    for one in (held, request):
        lib.ingot_request_free(one)


def test_numbers_have_bounds(lib):
    """Each numeric option at its extremes gives an error that names the option, or a model, but never thousands of
    threads."""
    for kind, init, path, load in [(ModelOptions, lib.ingot_model_options_init_sized, MODEL, lib.ingot_load),
                                   (EmbedderOptions, lib.ingot_embedder_options_init_sized,
                                    str(SOURCE / "tests" / "data" / "encoders" / "bert.gguf").encode(), lib.ingot_embedder_load)]:
        for name, of in kind._fields_:
            if of is not c.c_int or name in ("deterministic", "normalize", "max_queue"):
                continue
            for value in (-1, -(1 << 31), (1 << 31) - 1):
                options, handle = kind(), c.c_void_p()
                init(c.byref(options), c.c_size_t(c.sizeof(options)))
                setattr(options, name, value)
                assert load(path, c.byref(options), c.byref(handle)) == INVALID and not handle, (name, value)
                assert f"{name} is {value}: it must be from".encode() in lib.ingot_last_error()


def load_embedder(lib, path, **fields):
    options, handle = EmbedderOptions(), c.c_void_p()
    lib.ingot_embedder_options_init_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
    assert options.struct_size == c.sizeof(options) and options.normalize == 1 and options.max_batch_tokens == 2048
    for name, value in fields.items():
        setattr(options, name, value)
    return lib.ingot_embedder_load(str(path).encode(), c.byref(options), c.byref(handle)), handle


def embed(lib, embedder, texts, truncate=0, lengths=True, capacity=None):
    dim = lib.ingot_embedder_dim(embedder)
    data = [text.encode() for text in texts]
    vectors = (c.c_float * (len(texts) * dim))()
    sizes = (c.c_size_t * len(texts))(*map(len, data)) if lengths else None
    status = lib.ingot_embed(embedder, (c.c_char_p * len(texts))(*data), sizes, c.c_size_t(len(texts)), truncate, vectors,
                             c.c_size_t(len(vectors) if capacity is None else capacity))
    return status, [list(vectors[i * dim : (i + 1) * dim]) for i in range(len(texts))]


def test_vectors_are_those_of_sentence_transformers(lib):
    for name in ["bert", "nomic_bert", "qwen3_embed"]:
        golden = json.loads((SOURCE / "tests" / "data" / "encoders" / f"{name}.json").read_text())
        texts, expected = golden["texts"], golden["embeddings"]["plain"]
        status, embedder = load_embedder(lib, SOURCE / "tests" / "data" / "encoders" / name, n_threads=2)
        assert status == OK, lib.ingot_last_error()
        assert lib.ingot_embedder_dim(embedder) == len(expected[0])
        status, vectors = embed(lib, embedder, texts)
        assert status == OK, lib.ingot_last_error()
        for got, want in zip(vectors, expected, strict=True):
            assert sum(v * v for v in got) == pytest.approx(1, abs=1e-5)
            assert sum(a * b for a, b in zip(got, want, strict=True)) > 0.9999
        assert vectors[0] != vectors[1]
        assert embed(lib, embedder, texts, lengths=False) == (OK, vectors)
        lib.ingot_embedder_free(embedder)


def test_embeddings_refuse_what_they_cannot_do(lib):
    path = SOURCE / "tests" / "data" / "encoders" / "bert.gguf"
    status, embedder = load_embedder(lib, path, n_threads=1, n_ctx=16)
    assert status == OK
    long = "snow " * 100
    status, _ = embed(lib, embedder, ["short", long])
    assert status == INVALID and b"16" in lib.ingot_last_error()
    status, vectors = embed(lib, embedder, ["short", long], truncate=1)
    assert status == OK and any(vectors[1])
    status, _ = embed(lib, embedder, ["a", "b"], capacity=2 * lib.ingot_embedder_dim(embedder) - 1)
    assert status == INVALID and b"2 texts" in lib.ingot_last_error()
    assert lib.ingot_embed(embedder, None, None, c.c_size_t(1), 0, None, c.c_size_t(0)) == INVALID
    assert lib.ingot_embed(embedder, None, None, c.c_size_t(0), 0, None, c.c_size_t(0)) == OK
    lib.ingot_embedder_free(embedder)
    lib.ingot_embedder_free(None)
    for fields in [{"pooling": b"none"}, {"pooling": b"most"}, {"max_batch_tokens": 0}, {"device": b"abacus"}]:
        status, embedder = load_embedder(lib, path, **fields)
        assert status == INVALID and not embedder, fields
    # A model without a pooling is refused. If the caller chooses a pooling, its last hidden states become vectors.
    status, embedder = load_embedder(lib, MODEL.decode())
    assert status == INVALID and b"pooling" in lib.ingot_last_error()
    status, embedder = load_embedder(lib, MODEL.decode(), pooling=b"mean", normalize=0)
    assert status == OK, lib.ingot_last_error()
    status, [a, b] = embed(lib, embedder, ["a red fox", "a blue fox"])
    assert status == OK and a != b
    lib.ingot_embedder_free(embedder)


def test_kv_types(lib):
    for kv_type, status in [(b"q8_0", OK), (b"bf16", OK), (b"q3", INVALID)]:
        options, handle = ModelOptions(), c.c_void_p()
        lib.ingot_model_options_init_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.n_ctx, options.n_threads, options.kv_type = 128, 1, kv_type
        assert lib.ingot_load(MODEL, c.byref(options), c.byref(handle)) == status
        if status == OK:
            tokens, request = chat_tokens(lib, handle, "Tell me a story about a fox."), c.c_void_p()
            asked = request_options(lib, temperature=0, max_tokens=8)
            assert lib.ingot_submit(handle, tokens, c.c_size_t(len(tokens)), c.byref(asked), None, None, c.byref(request)) == OK
            assert len(read(lib, request)[1]) > 0
            lib.ingot_request_free(request)
            assert lib.ingot_free(handle) == OK
        else:
            assert b"q3" in lib.ingot_last_error()


def test_speculation(lib):
    """Every kind of speculation gives the same text, also with the model as its own draft. Kinds that cannot guess are
    refused."""
    def answer(speculate, draft=None):
        options, handle, request = ModelOptions(), c.c_void_p(), c.c_void_p()
        lib.ingot_model_options_init_sized(c.byref(options), c.c_size_t(c.sizeof(options)))
        options.n_ctx, options.n_threads, options.speculate, options.draft = 256, 1, speculate, draft
        status = lib.ingot_load(MODEL, c.byref(options), c.byref(handle))
        if status != OK:
            return status
        tokens = chat_tokens(lib, handle, "Tell me a story about a fox.")
        asked = request_options(lib, temperature=0, max_tokens=40)
        assert lib.ingot_submit(handle, tokens, c.c_size_t(len(tokens)), c.byref(asked), None, None, c.byref(request)) == OK
        text = read(lib, request)[1]
        lib.ingot_request_free(request)
        assert lib.ingot_free(handle) == OK
        return text

    plain = answer(None)
    assert len(plain) > 0
    for speculate, draft in ((b"off", None), (b"auto", None), (b"ngram", None), (b"draft", MODEL), (b"auto", MODEL)):
        assert answer(speculate, draft) == plain, speculate
    for speculate, draft, why in ((b"much", None, b"expected auto, off, ngram"), (b"draft", None, b"set draft to its path"),
                                  (b"eagle3", MODEL, b"it is not an EAGLE-3 head"),
                                  (b"draft", str(SOURCE / "tests/data/models/qwen2.gguf").encode(), b"needs the same tokens")):
        assert answer(speculate, draft) == INVALID and why in lib.ingot_last_error(), lib.ingot_last_error()


def test_structs_may_grow(lib, model):
    """An older header has shorter structs; the library must not write beyond their end. A newer header has longer
    structs with fields that the library does not know."""
    class Newer(c.Structure):
        _fields_ = [("known", RequestOptions), ("unknown", c.c_int64)]

    older, newer, known = RequestOptions.typical_p.offset, c.sizeof(Newer), c.sizeof(RequestOptions)
    buffer = (c.c_ubyte * 256)(*[0xA5] * 256)
    lib.ingot_request_options_init_sized(buffer, c.c_size_t(older))
    assert bytes(buffer[older:]) == b"\xa5" * (256 - older)
    options = RequestOptions.from_buffer(buffer)
    assert options.struct_size == older and options.top_k == 40
    options.max_tokens, options.temperature = 5, 0
    tokens, request = chat_tokens(lib, model, "Hello"), c.c_void_p()
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), buffer, None, None, c.byref(request)) == OK, lib.ingot_last_error()
    assert len(read(lib, request)[1]) <= 5
    lib.ingot_request_free(request)
    options = Newer(unknown=7)
    lib.ingot_request_options_init_sized(c.byref(options), c.c_size_t(newer))
    assert (options.known.struct_size, options.unknown) == (newer, 0) and newer > known
    options.known.max_tokens = 2
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == OK
    read(lib, request)
    lib.ingot_request_free(request)
    options.unknown = 1
    assert lib.ingot_submit(model, tokens, c.c_size_t(len(tokens)), c.byref(options), None, None, c.byref(request)) == INVALID
    assert b"older than the program's header" in lib.ingot_last_error()
