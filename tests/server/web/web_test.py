"""The pages in a headless Chromium: conversations by mouse and by keyboard, and the live plots."""
import json

from browser import ANSWER, DONE, SLOW_FETCH, browser, change_settings, needs_browser, ready, shot, texts
from conftest import SOURCE

pytestmark = needs_browser


def test_a_title_ends_with_a_whole_word(server, browser):
    page = ready(browser.page(server.url))
    title = lambda text: page.js(f"import('/store.js').then(s => s.titleOf({json.dumps(text)}))")
    long = "Write a short poem about the sea, then a list of three items, then a formula"
    assert title(long) == "Write a short poem about the sea, then a list of three…" and title(" Hi\n there ") == "Hi there" and title("x" * 70) == "x" * 60 + "…"
    page.ask(long)
    page.wait("document.getElementById('title').innerText.endsWith('three…')")


def test_a_conversation(server, browser, shot):
    page = browser.page(server.url)
    ready(page)
    shot(page, "hello")
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    change_settings(page, temperature="0")
    page.press(".assistant .tools button", "Regenerate")
    page.wait(DONE)
    assert page.js(f"{ANSWER}.querySelector('.body').innerText") == "7 + 5 = 12."
    stats = page.js(f"{ANSWER}.querySelector('.stats').innerText")
    assert "tok/s" in stats and "tokens" in stats and "prompt" in stats
    # Editing the question generates a new answer.
    page.press(".user .tools button", "Edit")
    page.js("document.querySelector('.edit textarea').value = 'What is 2 + 2?'")
    page.js("document.querySelector('.edit').requestSubmit()")
    page.wait(f"{DONE} && document.querySelector('.message.user .body').innerText === 'What is 2 + 2?'")
    assert page.js(f"{ANSWER}.querySelector('.body').innerText") == "2 + 2 = 4."
    assert page.js("document.querySelectorAll('.message').length") == 2
    gap = page.js("document.querySelector('.assistant .body').getBoundingClientRect().top - document.querySelector('.user .body').getBoundingClientRect().bottom")
    assert 8 < gap < 32, "the answer stands close to its question"
    # The conversation is saved: a reloaded page shows it, and the search finds it by a word.
    page.reload()
    page.wait("document.querySelectorAll('.message').length === 2")
    page.js("(s => { s.value = '= 4'; s.dispatchEvent(new Event('input')); })(document.getElementById('search'))")
    page.wait("document.querySelectorAll('#list li').length === 1")
    page.click("#list .open")
    page.wait("document.querySelectorAll('.message').length === 2")
    page.js("(s => { s.value = 'nowhere'; s.dispatchEvent(new Event('input')); })(document.getElementById('search'))")
    page.wait("document.querySelectorAll('#list li').length === 0")
    assert page.complaints() == []
    assert all(url.startswith((server.url, "data:", "about:")) for url in page.requests())


WEATHER = next(case["tools"] for case in json.loads((SOURCE / "tests/data/demo/expected.json").read_text())["chat"] if case["name"] == "tool call")


def set_up(page, **settings):
    ready(page)
    change_settings(page, **settings)


def test_a_tool_call_and_its_result(server, browser, shot):
    """The demo model calls, the user enters the result, and the model answers with the result."""
    page = browser.page(server.url)
    set_up(page, temperature="0", tools=json.dumps([tool | {"command": ["true"]} for tool in WEATHER]))
    page.ask("What is the weather in Oslo?")
    page.wait(f"{DONE} && document.querySelector('.call form')")
    assert page.js("document.querySelector('.call-head code').innerText") == "get_weather"
    assert page.js("document.querySelector('.call > pre').innerText") == '{\n  "city": "Oslo"\n}'
    shot(page, "call")
    page.js("document.querySelector('.call textarea').value = '{\"temperature\": -4, \"sky\": \"snowy\"}'")
    page.click(".call form button")
    page.wait(f"document.querySelectorAll('.message.assistant').length === 2 && {DONE}")
    assert page.js(f"{ANSWER}.querySelector('.body').innerText") == "It is snowy in Oslo and the temperature is -4 degrees."
    assert page.js("document.querySelector('.call .result pre').innerText") == '{\n  "temperature": -4,\n  "sky": "snowy"\n}'
    shot(page, "call-result")
    # The conversation is saved, and the next question is answered.
    page.reload()
    page.wait("document.querySelectorAll('.message').length === 3 && document.querySelector('.call .result pre')")
    # A call without a result does not block the next question.
    page.ask("Turn on the light in the kitchen.")
    page.wait(f"{DONE} && document.querySelectorAll('.call').length === 2 && document.querySelector('.call form')")
    page.ask("What is 7 + 5?")
    page.wait(f"document.querySelectorAll('.message.assistant').length === 4 && {DONE}")
    assert page.js("document.querySelectorAll('.call form').length") == 0
    assert page.js("document.querySelectorAll('.call .result pre')[1].innerText") == "There is no result."
    assert page.complaints() == []


def test_thoughts_and_calls_stream(server, browser, shot):
    """Each event is shown before the next event arrives."""
    page = browser.page(server.url)
    set_up(page, tools="[]")
    page.js("""(() => {
      const real = window.fetch;
      window.fetch = (url, options) => {
        if (!url.endsWith('/chat/completions')) return real(url, options);
        window.asked = JSON.parse(options.body);
        const body = new ReadableStream({start(c) {
          window.send = (delta, finish_reason = null) => c.enqueue(new TextEncoder().encode('data: ' + JSON.stringify({choices: [{index: 0, delta, finish_reason}]}) + '\\n\\n'));
          window.end = () => c.close();
        }});
        return Promise.resolve(new Response(body, {status: 200}));
      };
    })()""")
    page.ask("Weather?")
    page.wait("typeof send === 'function'")
    page.js("send({role: 'assistant', reasoning_content: 'I look **twice**.'})")
    page.wait("document.querySelector('.thinking summary')?.innerText === 'Thinking …'")
    call = lambda index, **part: page.js(f"send({json.dumps({'tool_calls': [{'index': index} | part]})})")
    call(0, id="a", type="function", function={"name": "weather", "arguments": ""})
    call(0, function={"arguments": '{"place": "Os'})
    page.wait("""document.querySelector('.call > pre')?.innerText === '{"place": "Os'""")
    assert page.js("document.querySelectorAll('.call form').length") == 0, "while it streams, nobody is asked"
    call(0, function={"arguments": 'lo"}'})
    call(1, id="b", type="function", function={"name": "<b>time</b>", "arguments": "{}"})
    page.js("send({content: 'Wait.'})")
    page.wait("document.querySelectorAll('.call').length === 2 && document.querySelector('.call .t-string')")
    page.js("send({}, 'tool_calls'), end()")
    page.wait(f"{DONE} && document.querySelectorAll('.call form').length === 2")
    assert page.js("document.querySelectorAll('.call-head code')[1].innerText") == "<b>time</b>"
    assert page.js("document.querySelector('.thinking summary').innerText") == "Thoughts"
    page.click(".thinking summary")
    shot(page, "calls-open")
    for text in ("rain", "noon"):
        page.js(f"document.querySelector('.call form textarea').value = '{text}', document.querySelector('.call form').requestSubmit()")
    page.wait("window.asked.messages.length === 4")
    sent = page.js("window.asked.messages")
    assert [m["role"] for m in sent] == ["user", "assistant", "tool", "tool"] and [m["content"] for m in sent[1:]] == ["Wait.", "rain", "noon"]
    assert [c["function"]["arguments"] for c in sent[1]["tool_calls"]] == ['{"place": "Oslo"}', "{}"] and sent[1]["reasoning_content"] == "I look **twice**."
    assert [m["tool_call_id"] for m in sent[2:]] == ["a", "b"] and page.js("'tools' in window.asked") is False
    page.key("Escape", 27)
    assert page.complaints() == []


def test_tools_that_are_none_are_not_taken(server, browser):
    page = browser.page(server.url)
    set_up(page)
    page.key(",", 188, modifiers=2)
    page.wait("document.getElementById('settings').open")
    enter = lambda text: page.js(f"(f => {{ f.value = {json.dumps(text)}; f.dispatchEvent(new Event('change')); return f.validationMessage; }})(document.querySelector('[data-setting=tools]'))")
    assert "are not JSON" in enter("[{") and "must be a JSON array" in enter('{"a": 1}') and "must be a JSON array" in enter('[{"function": {}}]')
    assert page.js("import('/settings_store.js').then(s => s.settings.values.tools)") == ""
    assert enter(json.dumps(WEATHER)) == "" and page.js("import('/settings_store.js').then(s => s.settings.values.tools)") == json.dumps(WEATHER)
    bad = {"id": "x", "title": "t", "messages": [{"role": "assistant", "content": "", "tool_calls": [{"function": {"name": 7}}]}]}
    assert page.js(f"import('/store.js').then(s => s.importText({json.dumps(json.dumps([bad]))}))") == {"taken": 0, "known": 0}
    assert page.complaints() == []


def test_a_long_prompt_says_how_far_it_is(server, browser):
    """Real events of the server. Each progress event is held until the page has shown it."""
    page = browser.page(server.url)
    ready(page)
    page.js("""(() => {
      const real = window.fetch;
      window.fetch = async (url, options) => {
        if (!url.endsWith('/chat/completions')) return real(url, options);
        const answer = await (await real(url, options)).text(), body = new TransformStream(), to = body.writable.getWriter();
        options.signal.addEventListener('abort', () => to.abort(new DOMException('', 'AbortError')));
        (async () => {
          for (const event of answer.split(/(?<=\\n\\n)/)) {
            to.write(new TextEncoder().encode(event));
            const {processed, total} = JSON.parse(event.startsWith('data: {') ? event.slice(6) : '{}').prompt_progress || {};
            if (processed < total) await new Promise(seen => window.go_on = seen);
          }
          to.close();
        })();
        return new Response(body.readable, {status: 200});
      };
    })()""")
    page.ask("A long story. " * 400)
    page.wait(f"{ANSWER} && /^reading the prompt, \\d+ %$/.test({ANSWER}.querySelector('.stats').innerText)")
    page.js("window.going = setInterval(() => window.go_on(), 10)")
    page.wait(DONE)
    assert "tok/s" in page.js(f"{ANSWER}.querySelector('.stats').innerText")
    # After a stop, the message shows no progress.
    page.js("clearInterval(window.going)")
    page.key("O", 79, modifiers=2 | 8)  # a new conversation
    page.wait("document.querySelectorAll('.message').length === 0")
    page.ask("Another story. " * 400)
    page.wait(f"{ANSWER} && /^reading the prompt, \\d+ %$/.test({ANSWER}.querySelector('.stats').innerText)")
    page.key("Escape", 27)
    page.wait("!document.querySelector('.busy')")
    assert page.js(f"{ANSWER}.querySelector('.stats').innerText") == "not finished"


def test_stop_and_keyboard(server, browser):
    page = browser.page(server.url)
    ready(page)
    change_settings(page, temperature="1.5")
    page.js(SLOW_FETCH)
    page.ask("Never stop.")
    page.wait("document.querySelector('.busy') && document.querySelector('.message.assistant .body').innerText.startsWith('word word')")
    page.key("Escape", 27)
    page.wait("!document.querySelector('.busy') && window.aborted")
    assert page.js("document.querySelectorAll('.message .error').length") == 0
    page.key("O", 79, modifiers=2 | 8)  # Ctrl+Shift+O
    page.wait("document.querySelectorAll('.message').length === 0")
    assert page.js("document.activeElement.id") == "prompt"
    page.key(",", 188, modifiers=2)
    page.wait("document.getElementById('settings').open")
    assert page.js("document.querySelector('[data-setting=temperature]').value") == "1.5"
    page.key("Escape", 27)
    page.wait("!document.getElementById('settings').open")
    unnamed = page.js("[...document.querySelectorAll('button, input, select, textarea, a')].filter(e => !(e.innerText || e.getAttribute('aria-label') || e.labels?.length || e.hidden || e.title)).map(e => e.outerHTML)")
    assert unnamed == [], "everything that can be used has a name"
    assert page.complaints() == []


def test_dark_and_phone(server, browser, shot):
    page = browser.page(server.url, width=390, height=800, dark=True)
    ready(page)
    page.ask("What is 3 + 4?")
    page.wait(DONE)
    shot(page, "phone-dark")
    assert page.js("document.documentElement.scrollWidth") <= 390, "nothing sticks out"
    dark = page.js("getComputedStyle(document.body).backgroundColor")
    assert max(map(int, dark[4:-1].split(","))) < 64
    assert page.js("getComputedStyle(document.getElementById('side')).visibility") == "hidden"
    page.click("#menu")
    page.wait("document.getElementById('side').getBoundingClientRect().left === 0")
    shot(page, "phone-side")
    change_settings(page, theme="light")
    page.reload()
    assert page.js("document.documentElement.dataset.theme") == "light"
    assert page.complaints() == []


def test_by_keyboard_alone(server, browser):
    """Tab reaches every control, and each control has a name for screen readers."""
    page = browser.page(server.url)
    ready(page)
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    page.js("document.querySelector('.skip').focus()")
    reached = ["skip"]
    for _ in range(60):
        page.key("Tab", 9)
        reached.append(page.js("document.activeElement.id || document.activeElement.className || document.activeElement.innerText || document.activeElement.tagName"))
        if "send" in reached:
            break
    for wanted in ("skip", "new", "search", "open", "rename", "delete", "export", "import", "Status", "model", "open-settings", "Copy", "Edit", "Regenerate", "attach", "prompt", "send"):
        assert wanted in reached, (wanted, reached)
    assert page.js("getComputedStyle(document.querySelector('#send')).outlineStyle") != "none", "one sees where one is"
    # Cancelling an edit restores the focus.
    page.js("[...document.querySelectorAll('.user .tools button')].find(b => b.innerText === 'Edit').focus()")
    page.key("Enter", 13)
    page.wait("document.activeElement.getAttribute('aria-label') === 'Edit the message'")
    page.key("Escape", 27)
    page.wait("document.activeElement.innerText === 'Edit'")
    unnamed, roles = [], set()
    for node in page.call("Accessibility.getFullAXTree")["nodes"]:
        role, name = node.get("role", {}).get("value"), node.get("name", {}).get("value", "")
        roles.add(role)
        if role in ("button", "link", "textbox", "searchbox", "combobox", "spinbutton", "heading", "navigation", "log", "article", "dialog") and not node.get("ignored") and not name.strip():
            unnamed.append(node)
    assert unnamed == [] and roles >= {"navigation", "main", "log", "article", "heading", "textbox", "searchbox", "button", "link", "status"}, (unnamed, roles)
    assert page.js("document.getElementById('status').innerText") == "The answer is complete. 7 + 5 = 12."
    assert page.complaints() == []


def test_the_side_on_a_phone_by_keyboard(server, browser):
    page = browser.page(server.url, width=390, height=800)
    ready(page)
    page.js("document.getElementById('menu').focus()")
    page.key("Enter", 13)
    page.wait("document.activeElement.id === 'new'")
    page.key("Escape", 27)
    page.wait("document.activeElement.id === 'menu' && !document.getElementById('side').classList.contains('open')")


def test_a_server_that_goes_and_comes_back(start, browser):
    """The received text stays, the page reports the failure, and the next question is sent without the lost
    question."""
    server = start("--access-log", "none")
    page = browser.page(server.url)
    ready(page)
    page.js(SLOW_FETCH.replace("const timer", "setTimeout(() => c.error(new TypeError('network error')), 300); const timer"))
    page.ask("Go on.")
    page.wait("document.querySelector('.message .error')")
    assert "broke off" in page.js("document.querySelector('.message .error').innerText") and "word" in page.js(f"{ANSWER}.querySelector('.body').innerText")
    server.stop()
    page.js("window.sent = []; window.fetch = (url, options) => { if (options.body) sent.push(options.body); return Promise.reject(new TypeError('refused')); }")
    page.ask("Are you there?")
    page.wait("document.querySelectorAll('.message .error').length === 2")
    assert "cannot be reached" in page.js(f"{ANSWER}.querySelector('.error').innerText")
    page.ask("And now?")
    page.wait("document.querySelectorAll('.message .error').length === 3")
    sent = [[(m["role"], m["content"]) for m in json.loads(body)["messages"]] for body in page.js("sent")]
    assert [role for role, _ in sent[0]] == ["user", "assistant", "user"] and sent[0][1][1].startswith("word")
    assert [role for role, _ in sent[1]] == ["user", "assistant", "user"] and sent[1][2][1] == "And now?"


def test_copying_without_a_clipboard(server, browser):
    """For pages of another machine without TLS."""
    page = browser.page(server.url)
    ready(page)
    page.ask("What is 7 + 5?")
    page.wait(DONE)
    page.js("Object.defineProperty(navigator, 'clipboard', {value: undefined}); document.addEventListener('copy', () => window.copied = String(document.activeElement.value))")
    page.click(".message.user .tools button")
    page.wait("window.copied === 'What is 7 + 5?' && document.getElementById('status').innerText === 'Copied.'")
    assert page.complaints() == []


def test_a_refusal_is_shown(server, browser):
    page = browser.page(server.url)
    ready(page)
    change_settings(page, temperature="-1")
    page.ask("Hello")
    page.wait("document.querySelector('.message .error')")
    assert "temperature" in page.js("document.querySelector('.message .error').innerText")


def test_the_status_page(server, browser, shot):
    page = browser.page(server.url + "/status", dark=True)
    for _ in range(3):
        server.chat("Tell me a story.", max_tokens=60, ignore_eos=True)
        page.js("new Promise(done => setTimeout(done, 1000))")
    page.wait("document.querySelectorAll('.plot path').length >= 10 && document.getElementById('state').innerText === 'ready'")
    page.wait("[...document.querySelectorAll('.plot path')].filter(p => p.getAttribute('d').length > 40).length >= 5")
    assert "tokens a second" in page.js("document.getElementById('tiles').innerText")
    shot(page, "status-dark")
    assert page.complaints() == []


def test_speculation_is_shown(server, browser):
    page = browser.page(server.url + "/status")
    message = """{stats: {usage: {completion_tokens: 100, prompt_tokens: 16}, timings: {predicted_per_second: 200, queue_ms: 1, prompt_ms: 2,
      draft_n: 80, draft_n_accepted: 60, tokens_per_step: 2.5, draft_gain: 1.4}}}"""
    line = page.js(f"import('/message.js').then(m => m.statsLine({message}))")
    assert "2.5 tokens a step, 60 of 80 draft tokens accepted, 1.4 times as fast" in line
    for gain, words in [("0.58", "42 % slower"), ("1.02", "as fast as without drafts"), ("0", "accepted")]:
        line = page.js(f"import('/message.js').then(m => m.statsLine({message.replace('1.4', gain)}))")
        assert words in line and "0.58" not in line
    assert "draft" not in page.js(f"import('/message.js').then(m => m.statsLine({message.replace('draft_n: 80', 'draft_n: 0')}))")
    sums = """{spec_decode_num_draft_tokens_total: 80, spec_decode_num_accepted_tokens_total: 60,
      spec_decode_plain_seconds_total: 3, spec_decode_step_seconds_total: 2}"""
    assert page.js(f"import('/status.js').then(m => m.guesses({sums}))") == [["75 %", "of draft tokens accepted"], ["1.5 ×", "speedup from speculation"]]
    assert page.js("import('/status.js').then(m => m.guesses({}))") == []


def test_the_first_values_of_the_status_page(server, browser):
    """Gauges are shown after the first read of the metrics."""
    server.chat("Tell me a story.", max_tokens=20, ignore_eos=True)
    page = browser.page(server.url + "/status", before="window.setTimeout = () => 0")
    page.wait("document.getElementById('state').innerText === 'ready'")
    assert page.js("[...document.querySelectorAll('.tile')].at(-1).innerText").replace(",", "").startswith(str(int(server.metric("generation_tokens_total"))))
    latencies = texts(page, ".plot:nth-child(4) .key b") + texts(page, ".plot:nth-child(5) .key b")
    assert len(latencies) == 6 and all(value.endswith(" ms") for value in latencies), latencies


def test_the_assets(server):
    for path, kind in (("/", "text/html"), ("/status", "text/html"), ("/page.css", "text/css"), ("/chat.js", "text/javascript"), ("/icon.svg", "image/svg+xml"), ("/openapi.json", "application/json")):
        reply = server.get(path)
        assert reply.status == 200 and reply.headers["Content-Type"].startswith(kind), path
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
        assert server.get(path, headers={"If-None-Match": reply.headers["ETag"]}).status == 304
