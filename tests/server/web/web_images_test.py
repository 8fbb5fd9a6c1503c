"""Images on the page: chosen, pasted and dropped ones, large ones, and what the server gets. The model is a tiny one with
a vision tower."""
import base64
import json
import sys

import pytest
from browser import ANSWER, COUNT, DONE, RECORD, browser, change_settings, needs_browser, ready, shot, stored, take, texts
from conftest import SOURCE, running

sys.path.insert(0, str(SOURCE / "tests/server"))
from drawn import base64_of, data_url, png  # noqa: E402
from seen import CASES, PICTURES, is_right  # noqa: E402

pytestmark = needs_browser
MODEL = SOURCE / "tests/data/vision/smolvlm"
TEMPLATE = ("{% for m in messages %}{% if m.content is string %}{{ m.content }}{% else %}{% for c in m.content %}"
            "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}{% endif %}{% endfor %}")
CAT = png(80, 60)
CHIPS = "document.querySelectorAll('#files img').length"


@pytest.fixture(scope="module")
def seeing():
    with running("--chat-template", TEMPLATE, MODEL) as made:
        yield made


@pytest.fixture
def page(seeing, browser):
    page = ready(browser.page(seeing.url))
    change_settings(page, max_tokens="3", temperature="0")
    page.js(RECORD)
    return page


def hand_over(page, event, name, data):
    """Pastes into the box, or drops on the page, a file with these bytes."""
    target, init = ("document.getElementById('prompt')", "clipboardData") if event == "ClipboardEvent" else ("document.querySelector('main')", "dataTransfer")
    kind = "paste" if event == "ClipboardEvent" else "drop"
    page.js(f"""(() => {{
      const bytes = Uint8Array.from(atob({json.dumps(base64_of(data))}), c => c.charCodeAt(0)), list = new DataTransfer();
      list.items.add(new File([bytes], {json.dumps(name)}));
      {target}.dispatchEvent(new {event}('{kind}', {{{init}: list, bubbles: true, cancelable: true}}));
    }})()""")


def test_a_chosen_image_is_sent_shown_and_stored(page, tmp_path, shot):
    path = tmp_path / "cat.jpg"  # the name lies
    path.write_bytes(CAT)
    page.choose_files("#text-files", [path])
    page.wait(f"{CHIPS} === 1")
    shot(page, "image_attached")
    page.ask("What is this?")
    page.wait(DONE)
    part = {"type": "image_url", "image_url": {"url": data_url(CAT)}}
    assert page.js("asked[0].messages") == [{"role": "user", "content": [part, {"type": "text", "text": "What is this?"}]}]
    assert page.js(CHIPS) == 0 and "of images" in texts(page, ".stats")[-1]
    page.ask("And now?")
    page.wait(f"{DONE} && {COUNT} === 4")
    assert page.js("asked[1].messages[0].content[0]") == part, "the next turn has the image too"
    page.reload()
    page.wait("document.querySelector('.picture img')?.naturalWidth === 80")
    assert stored(page)[0]["messages"][0]["files"] == [{"name": "cat.jpg", "image": data_url(CAT)}]
    height = "document.querySelector('.picture').offsetHeight"
    page.click(".picture")
    assert page.js("document.querySelector('.picture').getAttribute('aria-expanded')") == "true" and page.js(height) > 0
    shot(page, "image_sent")
    assert page.complaints() == []


def test_an_image_alone_is_a_question(page, tmp_path):
    hand_over(page, "ClipboardEvent", "image.png", CAT)
    page.wait(f"{CHIPS} === 1")
    page.js("document.getElementById('form').requestSubmit()")
    page.wait(DONE)
    assert page.js("asked[0].messages[0].content") == [{"type": "image_url", "image_url": {"url": data_url(CAT)}}]
    assert page.js("document.getElementById('title').innerText") == "image.png"


def test_dropped_images_can_be_removed(page):
    hand_over(page, "DragEvent", "a.png", CAT)
    hand_over(page, "DragEvent", "b.png", png(30, 30))
    page.wait(f"{CHIPS} === 2")
    page.click("#files button[aria-label='Remove a.png']")
    page.wait(f"{CHIPS} === 1")
    page.ask("Only one")
    page.wait(DONE)
    assert [p["type"] for p in page.js("asked[0].messages[0].content")] == ["image_url", "text"]


def test_large_images_are_scaled_down(page, tmp_path):
    path = tmp_path / "wide.png"
    path.write_bytes(png(4100, 410, flat=True))
    page.choose_files("#text-files", [path])
    page.wait(f"{CHIPS} === 1")
    assert page.js("[document.querySelector('#files img').naturalWidth, document.querySelector('#files img').naturalHeight]") == [2048, 204]
    page.ask("Wide?")
    page.wait(DONE)
    url = page.js("asked[0].messages[0].content[0].image_url.url")
    assert url.startswith("data:image/jpeg;base64,") and len(base64.b64decode(url.split(",")[1])) < path.stat().st_size * 4
    assert page.js(f"!{ANSWER}.querySelector('.error')")


def test_the_limits_of_the_server_are_kept(browser):
    with running("--chat-template", TEMPLATE, "--image-max-pixels", 2000, MODEL) as made:
        page = ready(browser.page(made.url))
        page.js(RECORD)
        hand_over(page, "DragEvent", "a.png", CAT)
        page.wait(f"{CHIPS} === 1")
        assert page.js("(i => i.naturalWidth * i.naturalHeight)(document.querySelector('#files img'))") <= 2000
        change_settings(page, max_tokens="3")
        page.ask("Small?")
        page.wait(DONE)
        assert page.js(f"!{ANSWER}.querySelector('.error')")


def test_broken_pictures_and_models_of_text(page, server, browser, tmp_path):
    hand_over(page, "DragEvent", "cut.png", CAT[:40])
    page.wait("document.querySelector('.toast')?.innerText.includes('cut.png is no picture that this browser can read')")
    assert page.js(CHIPS) == 0
    plain = ready(browser.page(server.url))
    hand_over(plain, "DragEvent", "cat.png", CAT)
    plain.wait("document.querySelector('.toast')?.innerText === 'cat.png is a picture, and the model reads only text.'")
    assert plain.js(CHIPS) == 0


def test_imported_conversations_have_only_harmless_images(page):
    chat = {"id": "a", "messages": [{"role": "user", "content": "x", "files": [{"name": "n", "image": data_url(CAT)}]}]}
    assert take(page, chat)["taken"] == 1
    for wrong in ("javascript:alert(1)", "https://example.com/a.png", "data:image/svg+xml;base64,AAAA", 5, None):
        chat["messages"][0]["files"][0]["image"] = wrong
        assert take(page, chat | {"id": "b"})["taken"] == 0, wrong


def test_a_narrow_page(seeing, browser, tmp_path, shot):
    page = ready(browser.page(seeing.url, width=400, height=800))
    change_settings(page, max_tokens="3")
    for i in range(3):
        hand_over(page, "DragEvent", f"{i}.png", png(400, 200, i))
    page.wait(f"{CHIPS} === 3")
    shot(page, "image_attached_400")
    page.ask("What are these?")
    page.wait(DONE)
    assert page.js("document.documentElement.scrollWidth") <= 400
    shot(page, "image_sent_400")
    assert page.complaints() == []


def test_boxes_are_drawn_over_the_picture(browser, shot):
    case = next(case for case in CASES if case["kind"] == "box")
    with running("demo-vision") as made:
        page = ready(browser.page(made.url))
        change_settings(page, temperature="0")
        hand_over(page, "DragEvent", "shapes.png", (PICTURES / case["picture"]).read_bytes())
        page.wait(f"{CHIPS} === 1")
        page.ask(case["question"])
        page.wait(f"{DONE} && document.querySelector('.with-boxes rect')")
        answer = page.js(f"{ANSWER}.querySelector('.body').innerText")
        assert is_right("box", case["answer"], answer.replace("\u00a0", " ")), answer
        # The drawing covers the picture, and its unit is the picture's pixel.
        sizes = page.js("(i => [i.naturalWidth, i.naturalHeight, i.offsetWidth, i.offsetHeight])(document.querySelector('.with-boxes img'))")
        assert page.js("document.querySelector('.with-boxes svg').getAttribute('viewBox')") == f"0 0 {sizes[0]} {sizes[1]}"
        assert page.js("(r => [Math.round(r.width), Math.round(r.height)])(document.querySelector('.with-boxes svg').getBoundingClientRect())") == sizes[2:]
        said = json.loads(answer.replace("\u00a0", " "))["bbox_2d"]
        rect = page.js("(r => ['x', 'y', 'width', 'height'].map(name => +r.getAttribute(name)))(document.querySelector('.with-boxes rect'))")
        left, top, right, bottom = (v / 1000 * sizes[i % 2] for i, v in enumerate(said))
        assert rect == pytest.approx([left, top, right - left, bottom - top], abs=0.01)
        shot(page, "boxes")
        assert page.complaints() == []


def test_boxes_in_other_units(page):
    found = page.js("""import('/boxes.js').then(({findBoxes, sizeOf}) => [
      findBoxes('```json\\n[{"bbox_2d": [1, 2, 3, 4], "label": "a"}, {"box_2d": [1, 2, 3, 4]}, {"bbox_2d": [1, 2]}, {"bbox_2d": [1, 2, 3, "4"]}]\\n```'),
      sizeOf({unit: 'thousandths'}, 640, 480),
      sizeOf({unit: 'pixels', multiple: 28, min_pixels: 3136, max_pixels: 1003520}, 640, 480),
      sizeOf({unit: 'pixels', multiple: 28, min_pixels: 3136, max_pixels: 1003520}, 4000, 3000)])""")
    # The sizes are those of smart_resize() in transformers' processor of Qwen2-VL.
    assert found == [[{"box": [1, 2, 3, 4], "label": "a"}, {"box": [2, 1, 4, 3], "label": ""}], [1000, 1000], [644, 476], [1148, 840]]
