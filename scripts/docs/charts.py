"""Makes charts (SVG) and tables from docs/data/*.csv, and docs/performance.md, which shows them, from performance.in.md
in this folder."""
import csv
import html
import pathlib
import re

BAR, GAP, LEFT, WIDTH, RIGHT = 14, 12, 210, 420, 150
STYLE = """<style>
text { font: 12px system-ui, sans-serif; fill: #24292f } .title { font-size: 14px; font-weight: 600 }
.ingot { fill: #d4590f } .other { fill: #8c959f } .rest { fill: #d0d7de }
@media (prefers-color-scheme: dark) { text { fill: #c9d1d9 } .other { fill: #6e7681 } .rest { fill: #30363d } }
</style>"""


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def svg(title, height, body):
    width = LEFT + WIDTH + RIGHT
    return (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">\n'
            f'<title>{html.escape(title)}</title>\n{STYLE}\n<text class="title" x="8" y="20">{html.escape(title)}</text>\n' + "\n".join(body) + "\n</svg>\n")


def bar(x, y, width, kind, label=""):
    rect = f'<rect class="{kind}" x="{x}" y="{y}" width="{max(1, width):.1f}" height="{BAR}" rx="2"/>'
    return rect + (f'<text x="{x + max(1, width) + 6:.1f}" y="{y + BAR - 3}">{html.escape(label)}</text>' if label else "")


def legend(names):
    x, out = LEFT, []
    for kind, name in names:
        out.append(bar(x, 32, 14, kind, name))
        x += 40 + 8 * len(name)
    return out


def pairs(title, rows):
    """rows: (name, llama.cpp, ingot) in tokens a second. A pair's longer bar has the full width: rows differ by a factor of a hundred."""
    out, y = legend([("ingot", "ingot"), ("other", "llama.cpp")]), 60
    for name, other, ours in rows:
        scale = WIDTH / max(other, ours)
        out += [f'<text x="8" y="{y + BAR + 3}">{html.escape(name)}</text>', bar(LEFT, y, ours * scale, "ingot", f"{number(ours)} ({ours / other:.1f} x)"),
                bar(LEFT, y + BAR + 1, other * scale, "other", number(other))]
        y += 2 * BAR + GAP
    return svg(title, y, out)


def shares(title, rows):
    """rows: (name, llama.cpp or None, roofline, ingot). The full width is what the hardware allows."""
    out, y = legend([("ingot", "ingot"), ("other", "llama.cpp"), ("rest", "what the hardware allows")]), 60
    for name, other, most, ours in rows:
        out += [f'<text x="8" y="{y + BAR + 3}">{html.escape(name)}</text>', bar(LEFT, y, WIDTH, "rest"),
                bar(LEFT, y, WIDTH * ours / most, "ingot"), f'<text x="{LEFT + WIDTH + 6}" y="{y + BAR - 3}">{number(ours)} ({100 * ours / most:.0f} %)</text>']
        if other:
            out += [bar(LEFT, y + BAR + 1, WIDTH, "rest"), bar(LEFT, y + BAR + 1, WIDTH * other / most, "other"),
                    f'<text x="{LEFT + WIDTH + 6}" y="{y + 2 * BAR - 2}">{number(other)}</text>']
        y += 2 * BAR + GAP
    return svg(title, y, out)


def cpu_table(rows):
    """Rows of six figures include ik_llama.cpp's. x is ingot's speed relative to the faster of the two others."""
    has_ik = len(rows[0]) == 8
    peers = ["llama.cpp", "ik_llama.cpp"] if has_ik else ["llama.cpp"]
    columns = [[f"{work} {peers[0]}", *peers[1:], "ingot", "x"] for work in ("prefill", "decode")]
    yield "| shape | type | " + " | ".join(columns[0] + columns[1]) + " |\n|" + "---|" * (2 + 2 * len(columns[0]))
    for shape, kind, *figures in rows:
        a, ours_a, b, ours_b, *ik = map(float, figures)
        cells = []
        for form, ours, others in ((number, ours_a, [a, *ik[:1]]), ("{:.1f}".format, ours_b, [b, *ik[1:]])):
            cells += [*map(form, others), form(ours), f"{ours / max(others):.2f}"]
        yield f"| {shape} | {kind} | " + " | ".join(cells) + " |"


def gpu_table(rows):
    yield "| work | llama.cpp | roofline | ingot | share | what limits it |\n|---|---|---|---|---|---|"
    for work, other, most, ours, limit in rows:
        share = 100 * float(ours) / float(most)
        yield f"| {work} | {number(float(other)) if other else ''} | {number(float(most))} | {number(float(ours))} | {share:.0f} % | {limit} |"


def read(path):
    with open(path) as file:
        return list(csv.reader(file))[1:]


def documents(root):
    cpus = {"zen5": "two Zen 5 cores", "zen4": "two Zen 4 cores", "xeon": "two cores of a Xeon with AMX"}
    data = {name: read(root / "docs" / "data" / f"{name}.csv") for name in (*cpus, "h200")}
    for name, machine in cpus.items():
        for column, work in ((2, "prefill"), (4, "decode")):
            rows = [(f"{r[0]} {r[1]}", float(r[column]), float(r[column + 1])) for r in data[name]]
            yield f"docs/charts/{name}-{work}.svg", pairs(f"{work.capitalize()} on {machine}, tokens a second", rows)
    rows = [(r[0], float(r[1]) if r[1] else None, float(r[2]), float(r[3])) for r in data["h200"]]
    yield "docs/charts/h200.svg", shares("One H200, tokens a second", rows)
    tables = {"h200": gpu_table(data["h200"])} | {name: cpu_table(data[name]) for name in cpus}
    page = (pathlib.Path(__file__).parent / "performance.in.md").read_text()
    yield "docs/performance.md", re.sub(r"^@table (\w+)$", lambda found: "\n".join(tables[found[1]]), page, flags=re.M)
