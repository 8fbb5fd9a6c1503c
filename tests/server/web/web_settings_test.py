"""What belongs to a conversation and what to all: system prompts, presets, JSON by a schema, thinking, and the defaults of
the chosen model."""
import json
import shutil

from browser import ANSWER, COUNT, DONE, RECORD, answer, browser, change_settings, enter, needs_browser, ready, shot, stored, texts
from conftest import SOURCE

pytestmark = needs_browser

TEMPLATE = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
{% endfor %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}{% if reasoning_effort %}({{ reasoning_effort }}){% endif %}"""


def open_settings(page):
    page.key(",", 188, modifiers=2)
    page.wait("document.getElementById('settings').open")


def close_settings(page):
    page.key("Escape", 27)
    page.wait("!document.getElementById('settings').open")


def ask(page, text):
    n = page.js(COUNT)
    page.ask(text)
    page.wait(f"{COUNT} === {n + 2} && {DONE}")
    return page.js("asked.at(-1)")


def new(page):
    page.key("O", 79, modifiers=2 | 8)
    page.wait(f"{COUNT} === 0")


def test_each_conversation_has_its_system_prompt(server, browser):
    page = ready(browser.page(server.url))
    page.js(RECORD)
    change_settings(page, system="For all.", temperature="0")
    open_settings(page)
    enter(page, "[data-own=system]", "For this one.")
    close_settings(page)
    assert ask(page, "What is 7 + 5?")["messages"][0] == {"role": "system", "content": "For this one."}
    new(page)
    assert ask(page, "What is 1 + 1?")["messages"][0] == {"role": "system", "content": "For all."}
    page.reload()
    ready(page)
    page.js(RECORD)
    page.js("[...document.querySelectorAll('#list .open')].find(b => b.title === 'What is 7 + 5?').click()")
    open_settings(page)
    assert page.js("document.querySelector('[data-own=system]').value") == "For this one."
    enter(page, "[data-own=system]", "")
    assert "For all." in page.js("document.querySelector('[data-own=system]').placeholder")
    close_settings(page)
    assert ask(page, "What is 2 + 2?")["messages"][0] == {"role": "system", "content": "For all."}
    assert page.complaints() == []


def test_presets(server, browser, shot):
    page = ready(browser.page(server.url))
    page.js(RECORD)

    def save(name):
        page.click("#save-preset")
        page.wait("document.querySelector('dialog.ask[open] input')")
        page.js("document.querySelector('dialog.ask input').value = ''")
        page.type(name)
        page.key("Enter", 13)
        page.wait("!document.querySelector('dialog.ask input')")

    open_settings(page)
    enter(page, "[data-own=system]", "You are a pirate.")
    enter(page, "[data-setting=temperature]", "1.25")
    save("Pirate")
    enter(page, "[data-own=system]", "You count.")
    enter(page, "[data-setting=temperature]", "")
    enter(page, "[data-setting=top_k]", "1")
    save("Counter")
    assert texts(page, "#preset option") == ["Choose …", "Counter", "Pirate"] and page.js("document.getElementById('preset').value") == "Counter"
    shot(page, "presets")
    close_settings(page)
    new(page)
    open_settings(page)
    assert page.js("document.querySelector('[data-own=system]').value") == "", "a preset belongs to the conversation"
    enter(page, "#preset", "Pirate")
    assert page.js("document.querySelector('[data-own=system]').value") == "You are a pirate."
    close_settings(page)
    sent = ask(page, "What is 7 + 5?")
    assert sent["messages"][0]["content"] == "You are a pirate." and sent["temperature"] == 1.25 and "top_k" not in sent
    page.reload()
    ready(page)
    open_settings(page)
    assert page.js("document.getElementById('preset').value") == "Pirate"
    save("Pirate")
    page.wait("document.querySelector('dialog.ask[open]')?.innerText.includes('Replace the preset')")
    page.press("dialog.ask button", "Cancel")
    page.wait("!document.querySelector('dialog.ask')")
    page.click("#delete-preset")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.press("dialog.ask button", "Delete")
    page.wait("[...document.querySelectorAll('#preset option')].length === 2")
    assert page.js("import('/settings_store.js').then(s => s.settings.values.presets.map(p => p.name))") == ["Counter"]
    assert page.complaints() == []


def test_an_answer_by_a_schema(server, browser):
    page = ready(browser.page(server.url))
    page.js(RECORD)
    open_settings(page)
    field = "[data-own=schema]"
    assert "is not JSON" in enter(page, field, "{") and "must be a JSON object" in enter(page, field, "[1]")
    schema = {"type": "object", "properties": {"sum": {"type": "integer"}}, "required": ["sum"], "additionalProperties": False}
    assert enter(page, field, json.dumps(schema)) == ""
    close_settings(page)
    sent = ask(page, "What is 7 + 5?")
    assert sent["response_format"] == {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    assert float(json.loads(answer(page))["sum"]).is_integer()
    assert stored(page)[0]["schema"] == json.dumps(schema)
    open_settings(page)
    enter(page, field, '{"type": "object", "properties": {"a": {"type": "nonsense"}}}')
    close_settings(page)
    page.ask("Again?")
    page.wait("document.querySelector('.message .error')")
    message = page.js("document.querySelector('.message .error').innerText")
    assert "nonsense" in message and "properties" in message, "the server says where the schema is wrong"
    new(page)
    assert "response_format" not in ask(page, "What is 1 + 1?"), "the schema belongs to its conversation"


def test_thinking_is_offered_where_the_template_knows_it(server, start, browser, tmp_path):
    page = ready(browser.page(server.url))
    assert page.js("document.getElementById('thinking').parentNode.hidden") is True
    page.js(RECORD)
    change_settings(page, thinking="off")
    assert not {"chat_template_kwargs", "reasoning_effort"} & set(ask(page, "What is 7 + 5?"))
    template = tmp_path / "thinking.jinja"
    template.write_text(TEMPLATE)
    thinker = start("--access-log", "none", "--chat-template-file", template)
    assert thinker.get("/v1/models").json()["data"][0]["thinking"] == {"switch": "enable_thinking", "efforts": ["minimal", "low", "medium", "high"]}
    page = ready(browser.page(thinker.url))
    page.js(RECORD)
    assert texts(page, "#thinking option") == ["default", "off", "on", "minimal", "low", "medium", "high"]
    assert not {"chat_template_kwargs", "reasoning_effort"} & set(ask(page, "What is 7 + 5?"))
    for choice, wanted in (("off", {"chat_template_kwargs": {"enable_thinking": False}}), ("on", {"chat_template_kwargs": {"enable_thinking": True}}),
                           ("low", {"chat_template_kwargs": {"enable_thinking": True}, "reasoning_effort": "low"})):
        enter(page, "#thinking", choice)
        sent = ask(page, "What is 7 + 5?")
        assert {name: sent[name] for name in ("chat_template_kwargs", "reasoning_effort") if name in sent} == wanted
    page.reload()
    ready(page)
    assert page.js("document.getElementById('thinking').value") == "low"
    assert page.complaints() == []


def test_defaults_are_those_of_the_chosen_model(start, browser, tmp_path):
    """The second model's makers recommend another sampling. It is known once the model is loaded."""
    second = tmp_path / "second"
    shutil.copytree(SOURCE / "tests/data/hf/llama", second)
    (second / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.33, "top_k": 7}))
    server = start("--access-log", "none", SOURCE / "models/demo.gguf", second)
    assert server.post("/models/unload", {"model": "second"}).status == 200
    page = ready(browser.page(server.url))
    shown = lambda: [page.js(f"document.querySelector('[data-setting={name}]').placeholder") for name in ("temperature", "top_k", "max_tokens")]
    first = shown()
    assert all(first) and first[:2] != ["0.33", "7"]
    page.js("(s => { s.value = 'second'; s.dispatchEvent(new Event('change')); })(document.getElementById('model'))")
    assert shown() == ["", "", ""], "not known yet, and not those of the first model"
    change_settings(page, max_tokens="4")
    page.ask("x")
    page.wait(f"{DONE} && document.querySelector('[data-setting=temperature]').placeholder === '0.33'")
    assert shown()[1] == "7" and shown() != first and page.js("document.getElementById('model').value") == "second"
    page.js("(s => { s.value = 'demo'; s.dispatchEvent(new Event('change')); })(document.getElementById('model'))")
    assert shown() == first and page.complaints() == []


def test_a_pdf_gets_a_clear_no(server, browser, tmp_path):
    page = ready(browser.page(server.url))
    for name, data, words in (("paper.pdf", b"%PDF-1.7\n%\xe2\xe3", "pdftotext paper.pdf"), ("notes.docx", b"PK\x03\x04rest", "Save it as plain text"), ("cat.png", b"\x89PNG\r\n\x1a\n", "is a picture")):
        path = tmp_path / name
        path.write_bytes(data)
        page.choose_files("#text-files", [path])
        page.wait(f"document.querySelector('.toast')?.innerText.includes({json.dumps(words)})")
        assert name in texts(page, ".toast")[0] and texts(page, "#files li") == []
    assert page.complaints() == []


def test_copying_gives_a_sign(server, browser):
    page = ready(browser.page(server.url))
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    page.js("window.copied = []; Object.defineProperty(navigator, 'clipboard', {value: {writeText: async text => { if (text.includes('5?')) window.copied.push(text); else throw new Error('no'); }}})")
    page.press(".user .tools button", "Copy")
    page.wait("[...document.querySelectorAll('.user .tools button')].some(b => b.innerText === '✓ Copied')")
    assert page.js("window.copied") == ["What is 7 + 5?"] and page.js("document.getElementById('status').innerText") == "Copied."
    page.wait("[...document.querySelectorAll('.user .tools button')].some(b => b.innerText === 'Copy')")
    page.press(".assistant .tools button", "Copy")
    page.wait("document.querySelector('.toast')?.innerText.includes('Ctrl+C') && [...document.querySelectorAll('.assistant .tools button')].some(b => b.innerText === 'Not copied')")
    assert page.complaints() == []
