"""Controls a headless Chromium over a pipe (DevTools protocol), so tests of the pages need only the browser.
INGOT_SCREENSHOTS names a folder for screenshots."""
import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

import pytest

CHROMIUM = next((p for p in map(shutil.which, ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")) if p), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here: apt-get install chromium-headless-shell")
ANSWER = "[...document.querySelectorAll('.message.assistant')].at(-1)"  # the newest one
DONE = f"{ANSWER} && !document.querySelector('.busy')"

# Records the bodies of requests in `window.asked`.
RECORD = """(() => {
  const real = window.fetch;
  window.asked = [];
  window.fetch = (url, options) => {
    if (url.endsWith('/chat/completions')) window.asked.push(JSON.parse(options.body));
    return real(url, options);
  };
})()"""
# Answers with the same word without end.
SLOW_FETCH = """(() => {
  const real = window.fetch;
  window.fetch = (url, options) => {
    if (!url.endsWith('/chat/completions')) return real(url, options);
    const text = new TextEncoder(), event = 'data: ' + JSON.stringify({choices: [{index: 0, delta: {content: 'word '}}]}) + '\\n\\n';
    const body = new ReadableStream({start(c) {
      const timer = setInterval(() => c.enqueue(text.encode(event)), 20);
      options.signal.addEventListener('abort', () => { clearInterval(timer); window.aborted = true; c.error(new DOMException('', 'AbortError')); });
    }});
    return Promise.resolve(new Response(body, {status: 200}));
  };
})()"""


COUNT = "document.querySelectorAll('.message').length"


def ready(page):
    page.wait("document.getElementById('model').value !== ''")
    return page


def change_settings(page, **settings):
    page.js(f"import('/settings_store.js').then(s => {{ for (const [k, v] of Object.entries({json.dumps(settings)})) s.settings.set(k, v); }})")


def answer(page):
    return page.js(f"{ANSWER}.querySelector('.body').innerText")


def stored(page):
    """All conversations, as the browser's database has them."""
    return page.js("import('/database.js').then(d => d.readAll())")


def take(page, *chats):
    return page.js(f"import('/store.js').then(s => s.importText({json.dumps(json.dumps({'conversations': chats}))}))")


def enter(page, selector, text):
    """Acts as a user who changes a field. Returns what the browser says about the field."""
    return page.js(f"(f => {{ f.value = {json.dumps(text)}; f.dispatchEvent(new Event('change', {{bubbles: true}})); return f.validationMessage; }})(document.querySelector({json.dumps(selector)}))")


def texts(page, selector):
    return page.js(f"[...document.querySelectorAll({json.dumps(selector)})].map(n => n.innerText)")


@pytest.fixture(scope="module")
def browser():
    made = Browser()
    yield made
    made.close()


@pytest.fixture
def shot():
    folder = os.environ.get("INGOT_SCREENSHOTS")
    return lambda page, name: page.screenshot(pathlib.Path(folder) / f"{name}.png") if folder else None


class Browser:
    def __init__(self, *flags):
        self.folder = tempfile.mkdtemp(prefix="ingot-browser-")
        to_us, from_it = os.pipe()
        to_it, from_us = os.pipe()

        def hand_over():  # the browser reads 3 and writes 4; our descriptors may have the same numbers
            read, write = os.dup(to_it), os.dup(from_it)
            os.dup2(read, 3)
            os.dup2(write, 4)

        command = [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-extensions",
                   "--force-color-profile=srgb", f"--user-data-dir={self.folder}", "--remote-debugging-pipe", *flags, "about:blank"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=hand_over, close_fds=False)
        os.close(to_it)
        os.close(from_it)
        self.reader, self.writer = os.fdopen(to_us, "rb", buffering=0), os.fdopen(from_us, "wb", buffering=0)
        self.pending, self.n, self.events = b"", 0, []

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.close()
        self.writer.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def receive(self):
        while b"\0" not in self.pending:
            piece = self.reader.read(65536)
            assert piece, "the browser has ended"
            self.pending += piece
        line, self.pending = self.pending.split(b"\0", 1)
        return json.loads(line)

    def call(self, method, session=None, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params} | ({"sessionId": session} if session else {})
        self.writer.write(json.dumps(message).encode() + b"\0")
        while True:
            got = self.receive()
            if got.get("id") == self.n:
                assert "error" not in got, (method, got["error"])
                return got["result"]
            self.events.append(got)

    def page(self, url, width=1200, height=800, dark=False, before="", beside=None):
        """before: a script that runs in the page before its own. beside: a page; both are tabs of one browser, with the same storage."""
        return Page(self, url, width, height, dark, before, beside)


class Page:
    def __init__(self, browser, url, width, height, dark, before, beside):
        self.browser = browser
        self.context = beside.context if beside else browser.call("Target.createBrowserContext")["browserContextId"]
        self.target = browser.call("Target.createTarget", url="about:blank", browserContextId=self.context)["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        self.call("Page.navigate", url=url)
        self.wait("document.readyState === 'complete'")

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def js(self, expression):
        got = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True, userGesture=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def wait(self, expression, timeout=20):
        deadline = time.monotonic() + timeout * float(os.environ.get("INGOT_SLOW", 1))
        while not self.js(f"!!({expression})"):
            assert time.monotonic() < deadline, (expression, self.js("document.body.innerText"))
            time.sleep(0.03)

    def reload(self):
        self.js("window.left = true")
        self.call("Page.reload")
        self.wait("!window.left && document.readyState === 'complete'")

    def type(self, text):
        self.call("Input.insertText", text=text)

    def key(self, key, code=0, modifiers=0):
        text = {"Enter": "\r"}.get(key, "")
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, windowsVirtualKeyCode=code, modifiers=modifiers, **({"text": text} if text and kind == "keyDown" else {}))

    def click(self, selector):
        self.js(f"document.querySelector({json.dumps(selector)}).click()")

    def press(self, selector, text):
        """Clicks the last button with this text."""
        self.js(f"[...document.querySelectorAll({json.dumps(selector)})].filter(b => b.innerText === {json.dumps(text)}).at(-1).click()")

    def choose_files(self, selector, paths):
        """Acts as a user who chooses these files in an <input>."""
        root = self.call("DOM.getDocument")["root"]["nodeId"]
        node = self.call("DOM.querySelector", nodeId=root, selector=selector)["nodeId"]
        self.call("DOM.setFileInputFiles", nodeId=node, files=[str(p) for p in paths])

    def ask(self, text):
        self.js("document.getElementById('prompt').focus()")
        self.type(text)
        self.key("Enter", 13)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def events(self, method):
        return [e["params"] for e in self.browser.events if e.get("method") == method and e.get("sessionId") == self.session]

    def complaints(self):
        """Errors and warnings that the browser has logged: exceptions, refused scripts and styles, failed requests."""
        thrown = [e["exceptionDetails"] for e in self.events("Runtime.exceptionThrown")]
        return thrown + [e["entry"] for e in self.events("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]

    def requests(self):
        return [e["request"]["url"] for e in self.events("Network.requestWillBeSent")]
