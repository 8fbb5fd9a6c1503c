"""Where conversations are stored: the browser's database, conversations of an earlier version, and browsers that refuse."""
import json

import pytest
from browser import ANSWER, COUNT, DONE, answer, browser, needs_browser, ready, stored, take, texts

pytestmark = needs_browser

OLD = {"id": "old1", "title": "From before", "created": 1, "changed": 2, "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]}
PUT_OLD = f"""if (!sessionStorage.begun) {{
  sessionStorage.begun = '1';
  localStorage.setItem('ingot.chat.old1', {json.dumps(json.dumps(OLD))});
  localStorage.setItem('ingot.chat.broken', '{{"id":');
  localStorage.setItem('ingot.settings', '{{"temperature": "0.5"}}');
}}"""
REFUSED = "indexedDB.open = () => { throw new DOMException('storage is switched off', 'SecurityError'); };"
FULL = "IDBObjectStore.prototype.put = () => { throw new DOMException('no room', 'QuotaExceededError'); };"


def test_conversations_of_an_earlier_version_move_once(server, browser):
    page = ready(browser.page(server.url, before=PUT_OLD))
    assert [c["messages"] for c in stored(page)] == [OLD["messages"]] and texts(page, "#list .open") == ["From before"]
    assert page.js("Object.keys(localStorage).sort()") == ["ingot.chat.broken", "ingot.settings"], "what is no conversation stays"
    assert page.js("import('/settings_store.js').then(s => s.settings.values.temperature)") == "0.5"
    page.click("#list .delete")
    page.wait("document.querySelector('dialog.ask[open]')")
    page.press("dialog.ask button", "Delete")
    page.wait("document.querySelectorAll('#list li').length === 0")
    page.reload()
    ready(page)
    assert stored(page) == [] and texts(page, "#list li") == [], "what was deleted does not come back"
    assert page.complaints() == []


def test_many_megabytes(server, browser):
    """localStorage ends at 5 MB."""
    page = ready(browser.page(server.url))
    chats = [{"id": f"big{i}", "title": f"Big {i}", "messages": [{"role": "user", "content": chr(97 + i) * (2 << 20)}]} for i in range(6)]
    for chat in chats:
        assert take(page, chat) == {"taken": 1, "known": 0}
    page.reload()
    ready(page)
    assert sorted(texts(page, "#list .open")) == [f"Big {i}" for i in range(6)]
    assert page.js("import('/store.js').then(s => s.exported().length)") > 12 << 20
    assert page.complaints() == []


@pytest.mark.parametrize("before, words", [(REFUSED, "storage is switched off"), (FULL, "its storage is full")], ids=["refused", "full"])
def test_a_browser_that_stores_nothing(server, browser, before, words, tmp_path):
    """A message says so, and everything stays on the page: the old conversations, the new one, imports and the export."""
    page = ready(browser.page(server.url, before=PUT_OLD + before))
    page.wait(f"document.querySelector('.toast')?.innerText.includes('{words}')")
    assert "export" in texts(page, ".toast")[0] and texts(page, "#list .open") == ["From before"]
    page.js("document.getElementById('status').textContent = ''")
    page.ask("What is 7 + 5?")
    page.wait(f"{DONE} && document.querySelector('.toast')?.innerText.includes('{words}')")
    assert answer(page) and "does not save the conversation" in texts(page, ".toast")[0]
    page.key("O", 79, modifiers=2 | 8)
    page.wait(f"{COUNT} === 0")
    page.js("[...document.querySelectorAll('#list .open')].find(b => b.title === 'What is 7 + 5?').click()")
    page.wait(f"{COUNT} === 2")
    path = tmp_path / "more.json"
    path.write_text(json.dumps({"conversations": [{"id": "more", "title": "More", "messages": []}]}))
    page.choose_files("#file", [path])
    page.wait("document.querySelector('.toast')?.innerText.includes('1 conversation imported')")
    assert words in texts(page, ".toast")[0]
    exported = json.loads(page.js("import('/store.js').then(s => s.exported())"))["conversations"]
    assert sorted(c["title"] for c in exported) == ["From before", "More", "What is 7 + 5?"]
    assert page.js("localStorage.getItem('ingot.chat.old1')"), "the old store is not emptied before the new one has it"
    assert page.complaints() == []


def test_a_store_that_has_room_again(server, browser):
    page = ready(browser.page(server.url))
    page.js("window.realPut = IDBObjectStore.prototype.put; " + FULL)
    page.ask("What is 7 + 5?")
    page.wait(f"{DONE} && document.querySelector('.toast')?.innerText.includes('its storage is full')")
    page.js("IDBObjectStore.prototype.put = window.realPut")
    page.ask("What is 1 + 1?")
    page.wait(f"{COUNT} === 4 && {DONE}")
    page.reload()
    ready(page)
    assert page.js(COUNT) == 4, "the next save has everything"
    assert page.complaints() == []
