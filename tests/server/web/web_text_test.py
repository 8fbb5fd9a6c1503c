"""Rendering of models' text: Markdown, formulas, and hostile texts."""
import json

import pytest
from browser import browser, needs_browser, ready, shot, take

pytestmark = needs_browser


@pytest.fixture(scope="module")
def page(server, browser):
    made = browser.page(server.url)
    made.wait("document.getElementById('model').value !== ''")
    yield made
    assert made.complaints() == []


def render(page, text):
    return page.js(f"import('/markdown.js').then(m => {{ const d = document.createElement('div'); new m.View(d).update({json.dumps(text)}); return d.innerHTML; }})")


def plain(page, text):
    """The visible text, without the sources of formulas."""
    return page.js(f"""import('/markdown.js').then(m => {{
        const d = document.createElement('div');
        new m.View(d).update({json.dumps(text)});
        d.querySelectorAll('annotation').forEach(a => a.remove());
        d.querySelectorAll('br').forEach(b => b.replaceWith('\\n'));
        return d.textContent;
    }})""")


MARKDOWN = r"""# Title with `code` and **bold**

A paragraph with *emphasis*, ~~struck~~, a [link](https://example.com/a_b), <b>no tag</b> and https://example.com/x.

- one
- two
  - inner *item*
- [x] done

1. first
2. second

> quoted
> text

```python
def f(x):  # a comment
    return "a" + str(12)
```

| a | b |
|---|--:|
| 1 | `x` |

![pic](https://example.com/p.png) [bad](javascript:alert(1)) snake_case_name 2 * 3 * 4

See [gold](https://example.com/Gold_(metal)), (https://example.com/Tin_(metal)) and (https://example.com/lead).

The root is
\[
x = \frac{1}{2}
- y
\]
and $x_1$.
"""
PIECES = ["<h2>Title with <code>code</code> and <strong>bold</strong></h2>", "<em>emphasis</em>", "<del>struck</del>", 'href="https://example.com/a_b"',
          "&lt;b&gt;no tag&lt;/b&gt;", "<li>two<ul><li>inner <em>item</em></li></ul></li>", "☑ done", "<ol><li>first</li><li>second</li></ol>",
          "<blockquote><p>quoted<br>text</p></blockquote>", '<span class="t-keyword">def</span>', '<span class="t-comment"># a comment</span>',
          '<span class="t-string">"a"</span>', '<span class="t-number">12</span>', '<td class="right"><code>x</code></td>',
          " bad snake_case_name 2 * 3 * 4", 'href="https://example.com/Gold_(metal)"', '>gold</a>, (<a href="https://example.com/Tin_(metal)"',
          '<a href="https://example.com/lead"', "https://example.com/lead</a>).", '<p>The root is</p><p><math display="block">', "<msub><mi>x</mi><mn>1</mn></msub>"]


def test_markdown(page):
    html = render(page, MARKDOWN)
    for piece in PIECES:
        assert piece in html, (piece, html)
    assert "<img" not in html and "javascript:" not in html and "<b>" not in html
    # A text that grows in pieces, cut at any places, is rendered like the whole text at once.
    grown = page.js(f"""import('/markdown.js').then(m => {{ const d = document.createElement('div'), v = new m.View(d), t = {json.dumps(MARKDOWN)};
        for (let i = 0; i <= t.length; ++i) v.update(t.slice(0, i)); return d.innerHTML; }})""")
    assert grown == html


@pytest.mark.parametrize("text, html", [
    ("Roses are red,\nViolets are blue.", "<p>Roses are red,<br>Violets are blue.</p>"),
    ("one  \ntwo\\\nthree", "<p>one<br>two<br>three</p>"),
    ("- a line\n  and one more", "<ul><li>a line<br>and one more</li></ul>"),
    ("***x***", "<p><em><strong>x</strong></em></p>"),
    ("___x___ y", "<p><em><strong>x</strong></em> y</p>"),
    ("**a *b***", "<p><strong>a <em>b</em></strong></p>"),
    ("***a** b*", "<p><em><strong>a</strong> b</em></p>"),
    ("***a* b**", "<p><strong><em>a</em> b</strong></p>"),
    ("*a **b** c*", "<p><em>a <strong>b</strong> c</em></p>"),
    ("It costs $5 and $10, or $7–$9.", "<p>It costs $5 and $10, or $7–$9.</p>"),
    (r"Say \$x\$ and `$y$`.", "<p>Say $x$ and <code>$y$</code>.</p>"),
])
def test_lines_and_emphasis(page, text, html):
    assert render(page, text) == html


@pytest.mark.parametrize("text, html", [
    ("one<br>two<BR/>three<br />\nfour", "<p>one<br>two<br>three<br>four</p>"),
    ("| a |\n|---|\n| x<br>y |", "<td>x<br>y</td>"),
    ("`<br>` <brr> <br onload=x>", "<p><code>&lt;br&gt;</code> &lt;brr&gt; &lt;br onload=x&gt;</p>"),
    ("```html\n<br>\n```", "&lt;br"),
    ("It[^1] is.\n\n[^1]: So *it* is.\n    And more.", '<div class="note" data-note="1"><span class="note-name">1</span><div><p>So <em>it</em> is.<br>And more.</p></div></div>'),
    ("It[^a-b] is.\n[^a-b]: So.", '<p>It<button type="button" class="note-ref" data-note="a-b" aria-label="Note a-b">a-b</button> is.</p>'),
    ("It[^1] has no note.", '<p>It<button type="button" class="note-ref" data-note="1" disabled="">[^1]</button> has no note.</p>'),
    ("`[^1]` [^x](https://example.com)", '<p><code>[^1]</code> <a href="https://example.com"'),
    ("[^1]: one\n[^2]: two\n\nText", '<div><p>two</p></div></div><p>Text</p>'),
    ("```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-old\n+new\n same\n```",
     '<span class="t-comment">--- a/x\n</span><span class="t-comment">+++ b/x\n</span><span class="t-keyword">@@ -1 +1 @@\n</span><span class="t-removed">-old\n</span><span class="t-added">+new\n</span> same'),
])
def test_breaks_notes_and_patches(page, text, html):
    assert html in render(page, text)
    grown = page.js(f"""import('/markdown.js').then(m => {{ const d = document.createElement('div'), v = new m.View(d), t = {json.dumps(text)};
        for (let i = 0; i <= t.length; ++i) v.update(t.slice(0, i)); return d.innerHTML; }})""")
    assert grown == render(page, text), "a text that grows is rendered like the whole text"


HOSTILE = [
    "<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "<svg/onload=alert(1)>", "<br onclick=alert(1)>", "<br/onmouseover=alert(1)//>", "<br><script>alert(1)</script>",
    "[a](javascript:alert(1))", "[a](JaVaScRiPt:alert(1))", "[a](data:text/html,<script>alert(1)</script>)", "[a](vbscript:x)", "[a](java\nscript:alert(1))", "<javascript:alert(1)>",
    "![a](javascript:alert(1))", '![a](https://example.com/x.png"onerror="alert(1))', '[a](https://example.com/"onclick="alert(1))', "[![x](https://e.com/a)](javascript:alert(1))",
    '[^"onclick="alert(1)]: note', 'see [^"onclick="alert(1)]', "[^<img/src=x>]: <img src=x onerror=alert(1)>\n\n[^<img/src=x>]", "[^1]: [x](javascript:alert(1))\n\n[^1]", "[^constructor] [^__proto__]\n\n[^__proto__]: x",
    "```diff\n+<img src=x onerror=alert(1)>\n-<script>alert(1)</script>\n```", "```<img src=x onerror=alert(1)>\nx\n```", '```"onclick="alert(1)\nx\n```', "`<img src=x onerror=alert(1)>`",
    "| <img src=x onerror=alert(1)> |\n|---|\n| <br><iframe src=javascript:alert(1)> |", "# <img src=x onerror=alert(1)>", "> <script>alert(1)</script>", "- <a href=javascript:alert(1)>x</a>",
    r"$\href{javascript:alert(1)}{x}$", r"$\text{<img src=x onerror=alert(1)>}$", "&lt;script&gt;alert(1)&lt;/script&gt;", "<math><mtext></mtext><script>alert(1)</script></math>",
]
TAGS = set("p br strong em del code a h2 h3 h4 h5 h6 ul ol li blockquote hr div table thead tbody tr th td pre span button math".split())


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_makes_nothing_that_runs(page, text):
    """No element and no attribute but those of Markdown; links go to the web or to mail only."""
    found = page.js(f"""import('/markdown.js').then(m => {{
        window.alert = () => window.attacked = true;
        const d = document.createElement('div');
        document.body.append(d);
        new m.View(d).update({json.dumps(text)});
        d.querySelectorAll('button').forEach(b => b.className.includes('note') && b.click());
        const all = [...d.querySelectorAll('*')].filter(e => !e.closest('math') || e.localName === 'math');
        d.remove();
        return all.map(e => [e.localName, e.getAttribute('href'), e.getAttributeNames()]);
    }})""")
    for tag, href, names in found:
        assert tag in TAGS and not any(n.startswith("on") or n in ("src", "style", "srcdoc") for n in names), (tag, names)
        assert href is None or href.lower().startswith(("http://", "https://", "mailto:")), href
    assert not page.js("window.attacked")


def mathml(page, tex, display=False):
    """The formula without its source and without attributes, to compare the structure only."""
    return page.js(f"""import('/math.js').then(m => {{
        const node = m.formula({json.dumps(tex)}, {json.dumps(display)});
        return node && node.querySelector('semantics').firstChild.outerHTML.replace(/ \\w+="[^"]*"/g, '');
    }})""")


def I(*names):
    return "".join(f"<mi>{n}</mi>" for n in names)


FORMULAS = [  # the expected MathML of each formula; <mrow> is a group
    (r"\frac{a}{2}", f"<mrow><mfrac>{I('a')}<mn>2</mn></mfrac></mrow>"),
    (r"\frac12 \times 30", "<mrow><mfrac><mn>1</mn><mn>2</mn></mfrac><mo>×</mo><mn>30</mn></mrow>"),
    (r"\sqrt{x} \sqrt[3]{8}", f"<mrow><msqrt>{I('x')}</msqrt><mroot><mn>8</mn><mn>3</mn></mroot></mrow>"),
    (r"x_1^{n+1}", f"<mrow><msubsup>{I('x')}<mn>1</mn><mrow>{I('n')}<mo>+</mo><mn>1</mn></mrow></msubsup></mrow>"),
    (r"f'(x)", f"<mrow><msup>{I('f')}<mo>′</mo></msup><mo>(</mo>{I('x')}<mo>)</mo></mrow>"),
    (r"\alpha - \Omega \leq 2.5", f"<mrow>{I('α')}<mo>−</mo>{I('Ω')}<mo>≤</mo><mn>2.5</mn></mrow>"),
    (r"\text{if } x", f"<mrow><mtext>if&nbsp;</mtext>{I('x')}</mrow>"),
    (r"\mathbb{R} \mathbf{v}", f"<mrow>{I('ℝ', '𝐯')}</mrow>"),
    (r"\hat{x}", f"<mrow><mover>{I('x')}<mo>^</mo></mover></mrow>"),
    (r"\left( x \right]", f"<mrow><mrow><mo>(</mo>{I('x')}<mo>]</mo></mrow></mrow>"),
    (r"\begin{bmatrix} 1 & 2 \\ 3 & 4 \end{bmatrix}", "<mrow><mrow><mo>[</mo><mtable><mtr><mtd><mn>1</mn></mtd><mtd><mn>2</mn></mtd></mtr>"
     "<mtr><mtd><mn>3</mn></mtd><mtd><mn>4</mn></mtd></mtr></mtable><mo>]</mo></mrow></mrow>"),
    (r"\foo {\bar{x}} y", rf"<mrow><mtext>\foo {{\bar{{x}}}}</mtext>{I('y')}</mrow>"),
]


@pytest.mark.parametrize("tex, wanted", FORMULAS)
def test_formulas(page, tex, wanted):
    assert mathml(page, tex) == wanted


def test_sums_have_limits_above_and_below_in_a_display(page):
    assert mathml(page, r"\sum_{i}^n", True).startswith("<mrow><munderover><mo>∑</mo>")
    assert mathml(page, r"\sum_{i}^n").startswith("<mrow><msubsup><mo>∑</mo>")
    assert mathml(page, r"\lim_{x} \int_0^1", True).startswith("<mrow><munder><mi>lim</mi>") and "<msubsup><mo>∫</mo>" in mathml(page, r"\int_0^1", True)
    assert mathml(page, r"a &= b \\ &= c", True).count("<mtr>") == 2


@pytest.mark.parametrize("text", [r"\(\frac{a\)", r"\(}\)", r"$\left( x$", r"\[ \begin{foo} x \end{foo} \]", r"$x^a^b$", r"\[ a", "$$ \n", r"\(" + "{" * 2000 + r"\)",
                                  r"\begin{align} x", "$$" + r"\frac{" * 50 + "$$"])
def test_what_is_no_formula_stays_as_it_was_typed(page, text):
    assert "".join(plain(page, text).split()) in ("".join(text.split()), "".join(text.replace("\\[", "[").replace("\\(", "(").replace("\\)", ")").replace("\\]", "]").split()))


def test_where_formulas_stand(page):
    for text, formulas, rest in [(r"a \(x\) b", 1, "a x b"), ("a $x$ and $y$ b", 2, "a x and y b"), ("$$x$$ then **b**", 1, "x then b"), ("\\[\nx\n\n+ y\n\\]\nb", 1, "x+yb"),
                                 ("1. one\n   \\[ x \\]\n2. two", 1, None), ("| a |\n|---|\n| $x$ |", 1, None), (r"\begin{align} x &= y \end{align}", 1, "x=y")]:
        html = render(page, text)
        assert html.count("<math") == formulas, (text, html)
        assert rest is None or plain(page, text) == rest
    assert "<annotation encoding=\"application/x-tex\">\\frac{a}{b}</annotation>" in render(page, r"$\frac{a}{b}$"), "the source can be had"


@pytest.mark.parametrize("text", ["word **bold** `code`\n\n" * 5000, "*" * 20000, "`" * 20000, "[" * 20000, "> " * 300 + "x", "- " * 300 + "x",
                                  "|" * 5000 + "\n" + "|-" * 2500, "$" * 20000, "\\[\n" * 5000, "\\(" * 10000, "$x " * 5000, "$" + "{" * 3000 + "}" * 3000 + "$"])
def test_a_long_text_takes_linear_time(page, text):
    ms = page.js(f"import('/markdown.js').then(m => {{ const d = document.createElement('div'), t0 = performance.now(); new m.View(d).update({json.dumps(text)}); return performance.now() - t0; }})")
    assert ms < 4000, (text[:20], ms)


def test_a_conversation_with_everything(server, browser, shot):
    page = ready(browser.page(server.url))
    chat = {"id": "demo", "title": "Markdown", "messages": [{"role": "user", "content": "Show me everything."}, {"role": "assistant", "content": MARKDOWN, "reasoning": "Let me see.\n\nAh."}]}
    assert take(page, chat) == {"taken": 1, "known": 0}
    page.js("location.hash = '#demo'")
    page.wait("document.querySelector('.thinking')")
    assert page.js("document.querySelector('.thinking').innerText.includes('Thoughts')")
    shot(page, "markdown-light")
    exported = page.js("import('/store.js').then(s => s.exported())")
    assert json.loads(exported)["conversations"][0]["messages"] == chat["messages"]
    assert page.complaints() == []
