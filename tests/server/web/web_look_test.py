"""Colours and landmarks of both pages."""
import re

import pytest
from browser import browser, needs_browser
from conftest import SOURCE

CSS = (SOURCE / "src/server/web/page.css").read_text()
TEXTS = "text quiet accent danger good t-comment t-string t-number t-keyword t-call series-1 series-2 series-3".split()
BACKS = "back side mine code hover".split()


def variables(selector):
    body = re.search(re.escape(selector) + r" \{([^}]*)\}", CSS)[1]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", body))


THEMES = {"light": variables("\n:root"), "dark": variables(":root[data-theme=dark]"), "dark of the system": variables(":root:not([data-theme=light])")}


def luminance(colour):
    """WCAG 2.2's relative luminance of #rrggbb."""
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    r, g, b = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(a, b):
    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_the_formula():
    """WCAG's own examples."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21) and contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
def test_every_text_can_be_read_on_every_background(theme):
    colours = THEMES[theme]
    assert set(TEXTS) | set(BACKS) | {"line", "accent-text"} == set(colours), "a new colour belongs to a list of this test"
    pairs = [(text, back) for text in TEXTS for back in BACKS] + [("accent-text", "accent"), ("back", "text")]
    assert {pair: contrast(*(colours[name] for name in pair)) for pair in pairs if contrast(*(colours[name] for name in pair)) < 4.5} == {}


def test_both_dark_themes_are_one():
    assert THEMES["dark"] == THEMES["dark of the system"]


def test_no_other_colours():
    """So that the colours above are all."""
    rest = re.sub(r"--[\w-]+: #[0-9a-f]{6};", "", CSS)
    assert re.findall(r"#[0-9a-f]{3,8}\b(?=[^{}]*[;}])", rest) == []


@needs_browser
@pytest.mark.parametrize("path", ["/", "/status"])
def test_landmarks(server, browser, path):
    page = browser.page(server.url + path)
    assert page.js("document.querySelectorAll('main').length") == 1
    roles = [node["role"]["value"] for node in page.call("Accessibility.getFullAXTree")["nodes"] if "role" in node]
    assert roles.count("main") == 1 and (path == "/status" or "navigation" in roles)
    assert page.js("document.querySelectorAll('h1').length") == 1
