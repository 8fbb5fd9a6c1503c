"""Images in the requests of each API, on tiny models with vision towers (tests/data/vision). The oracle is transformers:
tokens and logits of the models' goldens.json."""
import http.server
import json
import math
import sys
import threading

import pytest
from conftest import SOURCE, running

sys.path.insert(0, str(SOURCE / "tests/server"))
from drawn import base64_of, data_url, png  # noqa: E402

MODELS = SOURCE / "tests/data/vision"
MODEL = MODELS / "smolvlm"
MARKS = {"gemma3": "<start_of_image>", "gemma4": "<|image|>", "qwen": "<|vision_start|><|image_pad|><|vision_end|>"}
# The parts of the messages, one after another, as the goldens' texts have them.
TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
            "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
CAT = png(40, 30)
LIMITS = ("--image-count", 3, "--image-max-bytes", 20000, "--image-max-pixels", 10000)


@pytest.fixture(scope="module")
def seeing(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images")
    (folder / "inside").mkdir()
    (folder / "inside/cat.png").write_bytes(CAT)
    (folder / "secret.png").write_bytes(CAT)
    (folder / "inside/link.png").symlink_to(folder / "secret.png")
    with running("--chat-template", TEMPLATE, "--image-dir", folder / "inside", *LIMITS, MODEL) as made:
        yield made


def mark_of(name):
    """What the chat templates of the family write for an image."""
    return next((mark for family, mark in MARKS.items() if name.startswith(family)), "<image>")


def parts_of(prompt, mark):
    """The content of a message that is a golden's text with its pictures."""
    texts = prompt["text"].split(mark)
    content = [{"type": "text", "text": texts[0]}] if texts[0] else []
    for i, text in enumerate(texts[1:]):
        content.append({"type": "image_url", "image_url": {"url": data_url(png(*prompt["sizes"][i], i))}})
        content += [{"type": "text", "text": text}] if text else []
    return content


def chat(server, content, **fields):
    return server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 1} | fields)


def image(url, **fields):
    return {"type": "image_url", "image_url": {"url": url} | fields}


@pytest.mark.parametrize("name", sorted(path.name for path in MODELS.iterdir()))
def test_tokens_and_logits_are_those_of_transformers(name):
    prompts = json.loads((MODELS / name / "goldens.json").read_text())["prompts"]
    with running("--chat-template", TEMPLATE.replace("<image>", mark_of(name)), "--kv-type", "f32", MODELS / name) as made:
        for prompt in prompts:
            body = {"messages": [{"role": "user", "content": parts_of(prompt, mark_of(name))}]}
            if name == "gemma3" and prompt["splits"]:  # no API has this setting
                continue
            assert made.post("/tokenize", body).json()["tokens"] == prompt["tokens"]
            assert prompt["logit_rows"][-1] == len(prompt["tokens"]) - 1
            logits = prompt["logits"][-1]
            normal = math.log(sum(math.exp(v) for v in logits))
            body |= {"max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 5}
            reply = made.post("/v1/chat/completions", body)
            assert reply.status == 200, reply.body
            choice = reply.json()["choices"][0]
            best = sorted(logits, reverse=True)[:5]
            for top, expected in zip(choice["logprobs"]["content"][0]["top_logprobs"], best):
                assert top["logprob"] == pytest.approx(expected - normal, abs=0.1)


def test_all_apis_make_the_same_prompt(seeing):
    """Each API's own form of one image and one text. The number of tokens is also what the count says."""
    data = base64_of(CAT)
    both = [image(data_url(CAT)), {"type": "text", "text": "the cat"}]
    usage = chat(seeing, both).json()["usage"]
    n = usage["prompt_tokens"]
    tokens = seeing.post("/tokenize", {"messages": [{"role": "user", "content": both}]}).json()["tokens"]
    assert n == len(tokens) and usage["prompt_tokens_details"]["image_tokens"] == tokens.count(259) > 0
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
    asked = {"messages": [{"role": "user", "content": [block, {"type": "text", "text": "the cat"}]}]}
    assert seeing.post("/v1/messages/count_tokens", asked).json()["input_tokens"] == n
    got = seeing.post("/v1/messages", asked | {"max_tokens": 1}).json()["usage"]
    assert got["input_tokens"] + got["cache_read_input_tokens"] == n and got["cache_read_input_tokens"] > 0
    given = [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(CAT)}, {"type": "input_text", "text": "the cat"}]}]
    assert seeing.post("/v1/responses", {"input": given, "max_output_tokens": 1}).json()["usage"]["input_tokens"] == n
    options = {"stream": False, "options": {"num_predict": 1}}
    assert seeing.post("/api/chat", options | {"messages": [{"role": "user", "content": "the cat", "images": [data]}]}).json()["prompt_eval_count"] == n
    assert seeing.post("/api/generate", options | {"prompt": "the cat", "images": [data]}).json()["prompt_eval_count"] == n
    for given in ({"prompt": "[img-7]the cat", "image_data": [{"data": data, "id": 7}]},
                  {"prompt": {"prompt_string": "<__media__>the cat", "multimodal_data": [data]}}):
        assert seeing.post("/completion", given | {"n_predict": 1}).json()["tokens_evaluated"] == n
    assert chat(seeing, both, stream=True, stream_options={"include_usage": True}).events()[-1]["usage"]["prompt_tokens"] == n


def test_the_second_turn_encodes_nothing_and_finds_its_prefix(seeing):
    content = [image(data_url(png(50, 20, 3))), {"type": "text", "text": "one"}]
    first = chat(seeing, content).json()["usage"]
    again = chat(seeing, content + [{"type": "text", "text": "two"}]).json()["usage"]
    assert again["prompt_tokens_details"]["cached_tokens"] >= first["prompt_tokens"] // 16 * 16 > 0
    # Another picture of the same size has the same tokens, but shares nothing.
    other = chat(seeing, [image(data_url(png(50, 20, 4))), {"type": "text", "text": "one"}]).json()["usage"]
    assert other["prompt_tokens"] == first["prompt_tokens"] and other["prompt_tokens_details"]["cached_tokens"] == 0
    assert seeing.metric("images_encoded_total") >= 2 and seeing.metric("images_cached_total") >= 1


def test_detail(seeing):
    low, high = (chat(seeing, [image(data_url(CAT), detail=detail)]).json()["usage"] for detail in ("low", "high"))
    assert low["prompt_tokens"] < high["prompt_tokens"]
    assert chat(seeing, [image(data_url(CAT), detail="auto")]).json()["usage"]["prompt_tokens"] == high["prompt_tokens"]
    assert "must be low, high or auto" in chat(seeing, [image(data_url(CAT), detail="best")]).error(400)["message"]


def test_results_of_tools_have_images(seeing):
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": base64_of(CAT)}}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    body = {"max_tokens": 1, "messages": [
        {"role": "user", "content": "look"}, {"role": "assistant", "content": [call]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "seen"}, block]}]}]}
    alone = chat(seeing, [image(data_url(CAT))]).json()["usage"]["prompt_tokens"]
    usage = seeing.post("/v1/messages", body).json()["usage"]
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] > alone


@pytest.mark.parametrize("url, words", [
    ("data:image/png;base64,AAAA", "the image is an unknown kind of file"),
    ("data:image/png;base64,%%", "is not Base64"),
    ("data:image/png,raw", "must be a data URL in Base64"),
    ("", "is empty"),
    ("cat.png", "must begin with data:, https:// or http://"),
    ("https://example.com/cat.png", "is a URL, which this server does not fetch"),
    ("file:///etc/passwd", "not below the folder"), ("file:../secret.png", "not below the folder"),
    ("file:link.png", "not below the folder"), ("file:none.png", "not below the folder"), ("file:.", "not below the folder"),
    (data_url(CAT[:-40]), "a truncated PNG file"),
    (data_url(png(101, 100, flat=True)), "the limit is 10000 pixels"),
    (data_url(b"x" * 20001), "the limit"),
    (data_url(b"II*\0" + b"x" * 100), "a TIFF file; this program reads JPEG"),
], ids=lambda text: text[:24])
def test_what_is_refused(seeing, url, words):
    error = chat(seeing, [{"type": "text", "text": "x"}, image(url)]).error(400)
    assert words in error["message"] and error["param"].startswith("messages[0].content[1]"), error
    assert "\n" not in error["message"]


def test_files_below_the_folder(seeing):
    n = chat(seeing, [image(data_url(CAT))]).json()["usage"]["prompt_tokens"]
    assert chat(seeing, [image("file:cat.png")]).json()["usage"]["prompt_tokens"] == n
    # The name of a type says nothing: this is a PNG file.
    assert chat(seeing, [image(data_url(CAT, "image/jpeg"))]).json()["usage"]["prompt_tokens"] == n


def test_limits_say_which(seeing):
    error = chat(seeing, [image(data_url(CAT))] * 4).error(400, "messages[0].content[3]")
    assert error["code"] == "too_many_images" and "more than 3 images" in error["message"]
    error = chat(seeing, [{"type": "text", "text": "x" * 500}, image(data_url(CAT))]).error(400)
    assert error["code"] == "context_length_exceeded" and "for 1 image)" in error["message"], error
    assert "cannot cut" in chat(seeing, [image(data_url(CAT))], truncate_prompt_tokens=5).error(400)["message"]
    error = seeing.post("/v1/chat/completions", {"messages": [{"role": "system", "content": [image(data_url(CAT))]}]}).error(400)
    assert "images belong in messages of the role user or tool" in error["message"]


def test_text_cannot_spell_an_image(seeing):
    """The placeholder in a user's text stays text, also beside a real image."""
    plain = seeing.post("/tokenize", {"messages": [{"role": "user", "content": "a <image> b"}]}).json()["tokens"]
    assert 259 not in plain
    both = [{"type": "text", "text": "a <image> b"}, image(data_url(CAT))]
    assert seeing.post("/tokenize", {"messages": [{"role": "user", "content": both}]}).json()["tokens"].count(259) == \
        chat(seeing, [image(data_url(CAT))]).json()["usage"]["prompt_tokens_details"]["image_tokens"]


def test_models_of_text_refuse_images(server):
    error = chat(server, [image(data_url(CAT))]).error(400, "messages[0].content[0]")
    assert error["message"] == "messages[0].content[0]: images are not supported; this model reads text only"
    given = [{"role": "user", "content": [{"type": "input_image", "image_url": data_url(CAT)}]}]
    server.post("/v1/responses", {"input": given}).error(400, "input[0].content[0]")
    assert server.post("/api/generate", {"model": "demo", "prompt": "x", "images": [base64_of(CAT)]}).status == 400
    server.post("/completion", {"prompt": "[img-1]", "image_data": [{"data": base64_of(CAT), "id": 1}]}).error(400, "image_data")


def test_no_images_turns_the_tower_off():
    with running("--no-images", MODEL) as made:
        chat(made, [image(data_url(CAT))]).error(400, "messages[0].content[0]")
        assert made.get("/props").json()["modalities"] == {"vision": False, "audio": False}


def test_clients_see_that_the_model_reads_images(seeing):
    assert seeing.get("/props").json()["modalities"] == {"vision": True, "audio": False}
    assert "vision" in seeing.post("/api/show", {"model": "smolvlm"}).json()["capabilities"]
    assert seeing.get("/v1/models").json()["data"][0]["architecture"]["input_modalities"] == ["text", "image"]


class Web(http.server.BaseHTTPRequestHandler):
    asked = []

    def do_GET(self):
        Web.asked.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(CAT)

    def log_message(self, *_):
        pass


def test_urls_never_lead_to_this_machine():
    web = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Web)
    thread = threading.Thread(target=web.serve_forever)
    thread.start()
    try:
        with running("--image-urls", MODEL) as made:
            for host in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433"):
                error = chat(made, [image(f"http://{host}:{web.server_port}/cat.png")]).error(400)
                assert "cannot be fetched" in error["message"], error
            assert "not public" in chat(made, [image(f"http://127.0.0.1:{web.server_port}/")]).error(400)["message"]
            block = {"type": "image", "source": {"type": "url", "url": f"http://127.0.0.1:{web.server_port}/"}}
            reply = made.post("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": [block]}]})
            assert reply.status == 400 and "not public" in reply.json()["error"]["message"]
        assert Web.asked == []
    finally:
        web.shutdown()
        thread.join()
        web.server_close()
