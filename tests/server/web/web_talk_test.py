"""The saved parts of a conversation on the page: versions, cut-off answers, addresses, names, files, keys and
settings."""
import json

import pytest
from browser import ANSWER, COUNT, DONE, RECORD, SLOW_FETCH, answer, browser, change_settings, needs_browser, ready, stored, take, texts

pytestmark = needs_browser


def test_versions_of_a_question_and_of_an_answer(server, browser):
    page = ready(browser.page(server.url))
    change_settings(page, temperature="0")
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    page.ask("What is 1 + 1?")
    page.wait(f"{DONE} && {COUNT} === 4")
    # Editing the first question starts another branch.
    page.press(".message:nth-child(1) .tools button", "Edit")
    page.js("document.querySelector('.edit textarea').value = 'What is 2 + 2?'")
    page.js("document.querySelector('.edit').requestSubmit()")
    page.wait(f"{DONE} && {COUNT} === 2")
    assert answer(page) == "2 + 2 = 4." and texts(page, ".versions") == ["‹2/2›"]
    page.press(".tools button", "Regenerate")
    page.wait(f"{DONE} && document.querySelectorAll('.versions').length === 2")
    page.js(RECORD)
    page.click(".message.user .versions button")
    page.wait(f"{COUNT} === 4")
    assert texts(page, ".body") == ["What is 7 + 5?", "7 + 5 = 12.", "What is 1 + 1?", "1 + 1 = 2."]
    page.ask("What is 3 + 3?")
    page.wait(f"{DONE} && {COUNT} === 6")
    assert [m["content"] for m in page.js("asked[0].messages")] == ["What is 7 + 5?", "7 + 5 = 12.", "What is 1 + 1?", "1 + 1 = 2.", "What is 3 + 3?"]
    # The whole conversation is still there after a reload, and in an exported file.
    page.reload()
    page.wait(f"{COUNT} === 6")
    page.press(".message:nth-child(1) .versions button", "›")
    page.wait(f"{COUNT} === 2")
    assert texts(page, ".body") == ["What is 2 + 2?", "2 + 2 = 4."]
    whole = stored(page)[0]
    whole["id"] = "elsewhere"
    assert take(page, whole) == {"taken": 1, "known": 0}
    page.js("location.hash = '#elsewhere'")
    page.wait(f"{COUNT} === 2 && document.querySelectorAll('.versions').length === 2")
    for wrong in ({"head": 99}, {"head": -2}, {"head": 0.5}, {"messages": [{"role": "user", "content": "x", "parent": 0}]}):
        assert take(page, whole | {"id": "wrong"} | wrong) == {"taken": 0, "known": 0}, wrong
    assert page.complaints() == []


def test_a_reload_in_the_middle_of_an_answer(server, browser):
    page = ready(browser.page(server.url))
    page.js(SLOW_FETCH)
    page.ask("Count.")
    page.wait("document.querySelector('.assistant .body')?.innerText.startsWith('word word word')")
    page.reload()
    ready(page)
    page.wait("!document.querySelector('.busy')")
    kept = answer(page)
    assert kept.startswith("word word word") and "not finished" in texts(page, ".stats")[-1]
    page.js(RECORD)
    change_settings(page, max_tokens="8", temperature="0")
    page.press(".tools button", "Continue")
    page.wait(f"asked.length === 1 && {DONE}")
    sent = page.js("asked[0]")
    assert sent["continue_final_message"] is True and sent["add_generation_prompt"] is False
    assert sent["messages"][-1]["role"] == "assistant" and sent["messages"][-1]["content"].strip() == kept.strip()
    assert answer(page).startswith(kept.strip()) and len(answer(page)) > len(kept), "the answer goes on in its place"
    assert all("/answers/" in complaint["url"] for complaint in page.complaints()), "the server knows nothing of the answer"


def test_an_answer_that_was_cut_goes_on(server, browser):
    """The two halves equal the answer without a cut."""
    page = ready(browser.page(server.url))
    change_settings(page, temperature="0")
    page.ask("Tell me a story about a fox.")
    page.wait(DONE)
    whole = answer(page)
    assert "Continue" not in texts(page, ".tools button"), "it is complete"
    change_settings(page, max_tokens="10")
    page.press(".tools button", "Regenerate")
    page.wait(f"{DONE} && {ANSWER}.innerText.includes('cut at the token limit')")
    assert whole.startswith(answer(page)) and answer(page) != whole
    change_settings(page, max_tokens="")
    page.press(".tools button", "Continue")
    page.wait(f"{DONE} && !{ANSWER}.innerText.includes('cut at the token limit')")
    assert answer(page) == whole


def test_each_conversation_has_an_address(server, browser):
    page = ready(browser.page(server.url))
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    first = page.js("location.hash")
    page.key("O", 79, modifiers=2 | 8)
    page.wait(f"{COUNT} === 0 && location.hash === ''")
    page.ask("What is 1 + 1?")
    page.wait(DONE)
    assert len(first) > 4 and page.js("location.hash") not in ("", first)
    page.js("history.back()")
    page.wait(f"location.hash === {json.dumps(first)} && document.querySelector('.user .body')?.innerText === 'What is 7 + 5?'")
    page.reload()
    page.wait("document.querySelector('.user .body')?.innerText === 'What is 7 + 5?'")
    assert texts(page, ".user .body") == ["What is 7 + 5?"]
    page.click(".skip")
    assert page.js("location.hash") == first and page.js("document.activeElement.id") == "prompt"
    page.js("location.hash = '#nowhere'")
    page.wait(f"{COUNT} === 0 && document.querySelector('.toast')?.innerText.includes('no such conversation')")
    page.js("history.back()")
    page.wait(f"location.hash === {json.dumps(first)} && {COUNT} === 2")
    assert page.complaints() == []


def test_rename_and_delete_ask_in_the_page(server, browser):
    page = ready(browser.page(server.url))
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    page.click("#list .rename")
    page.wait("document.querySelector('dialog.ask[open] input')?.value === 'What is 7 + 5?'")
    page.type("A sum")
    page.key("Enter", 13)
    page.wait("document.getElementById('title').innerText === 'A sum' && document.querySelector('#list .open').innerText === 'A sum'")
    assert [c["title"] for c in stored(page)] == ["A sum"] and not page.js("!!document.querySelector('dialog.ask')")
    page.click("#list .delete")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.key("Escape", 27)
    page.wait("!document.querySelector('dialog.ask')")
    assert len(stored(page)) == 1
    page.click("#list .delete")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.press("dialog.ask button", "Delete")
    page.wait(f"document.querySelectorAll('#list li').length === 0 && {COUNT} === 0")
    page.ask("What is 1 + 1?")
    page.wait(DONE)
    page.key(",", 188, modifiers=2)
    page.click("#clear")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.press("dialog.ask button", "Delete all")
    page.wait("document.querySelectorAll('#list li').length === 0 && !document.querySelector('dialog[open]')")
    assert stored(page) == [] and page.events("Page.javascriptDialogOpening") == [] and page.complaints() == []


def test_an_import_overwrites_nothing(server, browser, tmp_path):
    page = ready(browser.page(server.url))
    talk = lambda word: {"id": "same", "title": word, "messages": [{"role": "user", "content": word}]}
    assert take(page, talk("mine")) == {"taken": 1, "known": 0}
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps({"conversations": [talk("theirs"), talk("mine")]}))
    page.choose_files("#file", [path])
    page.wait("document.querySelectorAll('#list li').length === 2 && document.querySelector('.toast')")
    assert texts(page, ".toast") == ["1 conversation imported, 1 already here."]
    assert sorted((c["title"], c["messages"][0]["content"]) for c in stored(page)) == [("mine", "mine"), ("theirs", "theirs")]
    assert [c["id"] for c in stored(page) if c["title"] == "mine"] == ["same"]
    # What another program may have written is refused, or has no effect: no figure is a text, and no answer is asked for.
    odd = talk("odd") | {"id": "odd"}
    assert take(page, odd | {"messages": [{"role": "assistant", "content": "x", "reasoning": 5}]}) == {"taken": 0, "known": 0}
    wrong = ({"stats": {"usage": {"prompt_tokens": "1", "completion_tokens": 2}}}, {"stats": {"usage": {"prompt_tokens": 1}}}, {"stats": {"timings": {"predicted_per_second": {}}}}, {"omitted": "all"})
    for i, message in enumerate(wrong):
        assert take(page, odd | {"id": f"odd{i}", "messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"} | message]})["taken"] == 1
        assert next(c for c in stored(page) if c["id"] == f"odd{i}")["messages"][1] == {"role": "assistant", "content": "x"}
        page.js(f"location.hash = '#odd{i}'")
        page.wait("document.querySelector('.message.assistant .body')?.innerText === 'x'")
    assert take(page, odd | {"id": "run", "messages": [{"role": "assistant", "content": "x", "partial": True, "run": {"name": "../v1/models", "content": "y"}}]})["taken"] == 1
    page.reload()
    ready(page)
    assert not [url for url in page.requests() if "/answers/" in url]
    path.write_text("[{")
    page.choose_files("#file", [path])
    page.wait("document.querySelector('.toast')?.innerText.startsWith('The import failed')")
    assert page.events("Page.javascriptDialogOpening") == [] and page.complaints() == []


def test_text_files(server, browser, tmp_path):
    page = ready(browser.page(server.url))
    page.js(RECORD)
    names = {"a.md": b"Some ```code``` here\n", "b.txt": "ä\nö".encode(), "c.bin": b"\xff\xfe\0", "d.txt": b"x" * (1 << 20) + b"y"}
    paths = {}
    for name, data in names.items():
        paths[name] = tmp_path / name
        paths[name].write_bytes(data)
    for name, why in (("c.bin", "not a text file"), ("d.txt", "larger than 1 MiB")):
        page.choose_files("#text-files", [paths[name]])
        page.wait(f"document.querySelector('.toast')?.innerText.includes('{why}')")
        assert texts(page, "#files li") == []
    page.choose_files("#text-files", [paths["a.md"], paths["b.txt"]])
    page.wait("document.querySelectorAll('#files li').length === 2")
    page.click("#files button[aria-label='Remove a.md']")
    page.choose_files("#text-files", [paths["a.md"]])
    page.wait("[...document.querySelectorAll('#files li')].map(l => l.firstChild.textContent).join() === 'b.txt,a.md'")
    page.ask("What is this?")
    page.wait(DONE)
    wanted = "What is this?\n\nb.txt:\n```\nä\nö\n```\n\na.md:\n````\nSome ```code``` here\n````"
    assert page.js("asked[0].messages") == [{"role": "user", "content": wanted}]
    assert texts(page, "#files li") == [] and texts(page, ".user .body") == ["What is this?"] and texts(page, ".file summary") == ["b.txt", "a.md"]
    page.reload()
    page.wait("document.querySelectorAll('.file').length === 2")
    assert page.complaints() == []


def test_arrow_keys_bring_back_questions(server, browser):
    page = ready(browser.page(server.url))
    for question in ("What is 7 + 5?", "first\nsecond"):
        page.ask(question)
        page.wait(DONE)
        page.wait("!document.querySelector('.busy')")
    value = lambda: page.js("document.getElementById('prompt').value")
    up, down = (lambda: page.key("ArrowUp", 38)), (lambda: page.key("ArrowDown", 40))
    page.js("document.getElementById('prompt').focus()")
    up()
    assert value() == "first\nsecond"
    up()
    assert value() == "What is 7 + 5?"
    up()
    assert value() == "What is 7 + 5?", "there is none before it"
    down()
    down()
    assert value() == ""
    page.type("a draft\nof two lines")
    up()
    assert value() == "a draft\nof two lines", "the caret moves, the text stays"
    page.key("O", 79, modifiers=2 | 8)
    page.wait(f"{COUNT} === 0")
    up()
    assert value() == "first\nsecond", "a new conversation has those of the others"
    page.key("Enter", 13, modifiers=8)
    assert value() == "first\nsecond\n", "Shift+Enter begins a new line"


def test_settings_show_the_defaults(server, browser):
    page = ready(browser.page(server.url))
    params = server.get("/props").json()["default_generation_settings"]["params"]
    page.key(",", 188, modifiers=2)
    page.wait("document.getElementById('settings').open && document.querySelector('[data-setting=temperature]').placeholder")
    shown = lambda name: page.js(f"document.querySelector('[data-setting={name}]').placeholder")
    for name, theirs in {"temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repeat_penalty"}.items():
        assert float(shown(name)) == pytest.approx(params[theirs], rel=1e-5) and len(shown(name)) < 8
        assert page.js(f"document.querySelector('[data-setting={name}]').value") == ""
    assert shown("seed") == "random" and shown("max_tokens").startswith("up to ")


def test_a_server_with_a_key_asks_for_it(start, browser):
    server = start("--access-log", "none", "--api-key", "right")
    page = browser.page(server.url)
    field = "document.querySelector('dialog.ask[open] input')"
    page.wait(f"{field} && document.querySelector('dialog.ask').innerText.includes('requires an API key')")
    assert page.js(f"{field}.type") == "password"
    page.type("wrong")
    page.key("Enter", 13)
    page.wait(f"{field} && document.querySelector('dialog.ask').innerText.includes('refuses this API key')")
    page.key("Escape", 27)
    page.wait("!document.querySelector('dialog.ask') && document.getElementById('model').innerText === 'not available'")
    page.ask("What is 7 + 5?")  # this needs a key too
    page.wait(field)
    page.type("right")
    page.key("Enter", 13)
    page.wait(f"{DONE} && document.getElementById('model').value !== ''")
    assert "demo" in page.js("document.getElementById('model').value") and not page.js("!!document.querySelector('.message .error')")
    status = browser.page(server.url + "/status")
    status.wait(field)
    status.type("right")
    status.key("Enter", 13)
    status.wait("document.getElementById('state').innerText === 'ready'")
    assert page.events("Page.javascriptDialogOpening") == []
