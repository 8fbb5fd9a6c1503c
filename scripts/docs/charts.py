"""Makes from docs/data/*.csv: charts (SVG), docs/performance.md with tables and headlines (performance.in.md in this
folder says where), and README.md's paragraph on speed, which is the item that starts with SPEED_ITEM."""
import csv
import html
import pathlib
import re
import textwrap

SPEED_ITEM = "- **It is fast.** "
MACHINES = {"zen5": "two Zen 5 cores", "zen4": "two Zen 4 cores", "xeon": "two cores of a Xeon with AMX"}
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


def factors(row):
    """ingot's speed relative to the fastest of the others: (prefill, decode)."""
    a, ours_a, b, ours_b, *ik = map(float, row[2:])
    return ours_a / max([a, *ik[:1]]), ours_b / max([b, *ik[1:]])


def cpu_headline(data):
    """The least and the greatest factor of each table."""
    ranges = {}
    for name in MACHINES:
        columns = zip(*map(factors, data[name]))
        ranges[name] = [f"{min(column):.2f} to {max(column):.2f}" for column in columns]
    others = [f"{' and '.join(ranges[name])} on {MACHINES[name]}" for name in ("zen4", "xeon")]
    return (f"On {MACHINES['zen5']}, ingot reads prompts {ranges['zen5'][0]} times as fast as llama.cpp, and writes "
            f"answers {ranges['zen5'][1]} times as fast. Relative to the faster of llama.cpp and ik_llama.cpp, the two "
            f"factors are {', and '.join(others)}.")


def gpu_headlines(rows):
    """Two sentences: shares of what the hardware allows, and tokens a second."""
    rows = {work: figures for work, *figures in rows}

    def share(work, i):
        return f"{100 * float(rows[work][i]) / float(rows[work][1]):.0f} %"

    def speed(work, i):
        return f"{float(rows[work][i]):,.0f}"

    decode, prefill, many = "decode, 8b BF16", "prefill 2048, 8b BF16", "decode x 256, 8b BF16"
    return (f"On an H200, decoding an 8b model in BF16 uses {share(decode, 2)} of the bandwidth of memory (llama.cpp: "
            f"{share(decode, 0)}), and a prompt of 2,048 tokens {share(prefill, 2)} of the rate of the matrix units "
            f"({share(prefill, 0)}).",
            f"256 sequences together write {speed(many, 2)} tokens a second with that model ({speed(many, 0)}), and "
            f"{speed('decode x 256, 8b FP8, cache fp8', 2)} in FP8 with a cache in FP8.")


def readme(text, headlines):
    words = f"{SPEED_ITEM}{' '.join(headlines)} [docs/performance.md](docs/performance.md) has conditions and every row."
    item = textwrap.fill(words, 120, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
    text, n = re.subn(rf"^{re.escape(SPEED_ITEM)}.*\n(?:  .*\n)*", lambda _: item + "\n", text, flags=re.M)
    assert n == 1, f"README.md has {n} items that start with {SPEED_ITEM}"
    return text


def cpu_table(rows):
    """Rows of six figures include ik_llama.cpp's. x is ingot's speed relative to the faster of the two others."""
    has_ik = len(rows[0]) == 8
    peers = ["llama.cpp", "ik_llama.cpp"] if has_ik else ["llama.cpp"]
    columns = [[f"{work} {peers[0]}", *peers[1:], "ingot", "x"] for work in ("prefill", "decode")]
    yield "| shape | type | " + " | ".join(columns[0] + columns[1]) + " |\n|" + "---|" * (2 + 2 * len(columns[0]))
    for shape, kind, *figures in rows:
        a, ours_a, b, ours_b, *ik = map(float, figures)
        prefill, decode = factors([shape, kind, *figures])
        cells = [*map(number, [a, *ik[:1], ours_a]), f"{prefill:.2f}"]
        cells += [*map("{:.1f}".format, [b, *ik[1:], ours_b]), f"{decode:.2f}"]
        yield f"| {shape} | {kind} | " + " | ".join(cells) + " |"


def threads_table(rows):
    """Rows by number of threads. The shares are of the measured products and of the measured bandwidth."""
    yield ("| shape | type | threads | prefill llama.cpp | ingot | x | of the products | decode llama.cpp | ingot | x | of the bandwidth |\n|" + "---|" * 11)
    for shape, kind, threads, *figures in rows:
        a, ours_a, b, ours_b = map(float, figures[:4])
        shares = [f"{100 * float(share):.0f} %" if share else "" for share in figures[4:]]
        yield (f"| {shape} | {kind} | {threads} | {number(a)} | {number(ours_a)} | {ours_a / a:.2f} | {shares[0]} | "
               f"{b:.1f} | {ours_b:.1f} | {ours_b / b:.2f} | {shares[1]} |")


def recurrent_table(rows):
    """Layers with states. The last two columns are of the share of bandwidth that a model of Llama's kind has."""
    yield ("| shape | type | layers | MB of states | prefill llama.cpp | ingot | x | decode llama.cpp | ingot | x | after 4,096 tokens "
           "| of Llama's, weights | with states |\n|" + "---|" * 13)
    for shape, kind, layers, states, a, ours_a, b, ours_b, deep, weights, with_states in rows:
        prefill, decode = (f"{float(ours) / float(other):.2f}" if other else "" for other, ours in ((a, ours_a), (b, ours_b)))
        other_a, other_b = number(float(a)) if a else "", f"{float(b):.1f}" if b else ""
        yield (f"| {shape} | {kind} | {layers} | {states} | {other_a} | {number(float(ours_a))} | {prefill} | {other_b} | "
               f"{float(ours_b):.1f} | {decode} | {float(deep):.1f} | {weights} | {with_states} |")


def gpu_table(rows):
    yield "| work | llama.cpp | roofline | ingot | share | what limits it |\n|---|---|---|---|---|---|"
    for work, other, most, ours, limit in rows:
        share = 100 * float(ours) / float(most)
        yield f"| {work} | {number(float(other)) if other else ''} | {number(float(most))} | {number(float(ours))} | {share:.0f} % | {limit} |"


def memory_table(rows):
    yield "| file | context | written | llama.cpp | ingot | of it |\n|" + "---|" * 6
    for name, context, written, other, ours in rows:
        yield f"| {name} | {int(context):,} | {written} | {int(other):,} | {int(ours):,} | {int(ours) / int(other):.2f} |"


def read(path):
    with open(path) as file:
        return list(csv.reader(file))[1:]


def documents(root):
    data = {name: read(root / "docs" / "data" / f"{name}.csv") for name in (*MACHINES, "xeon16", "h200", "memory", "recurrent")}
    for name, machine in MACHINES.items():
        for column, work in ((2, "prefill"), (4, "decode")):
            rows = [(f"{r[0]} {r[1]}", float(r[column]), float(r[column + 1])) for r in data[name]]
            yield f"docs/charts/{name}-{work}.svg", pairs(f"{work.capitalize()} on {machine}, tokens a second", rows)
    for column, work in ((3, "prefill"), (5, "decode")):
        rows = [(f"{r[0]} {r[1]}, {r[2]} thread{'s' if r[2] != '1' else ''}", float(r[column]), float(r[column + 1])) for r in data["xeon16"]]
        yield f"docs/charts/xeon16-{work}.svg", pairs(f"{work.capitalize()} by threads, 16 cores of a Xeon with AMX, tokens a second", rows)
    rows = [(r[0], float(r[1]) if r[1] else None, float(r[2]), float(r[3])) for r in data["h200"]]
    yield "docs/charts/h200.svg", shares("One H200, tokens a second", rows)
    tables = {"h200": gpu_table(data["h200"]), "memory": memory_table(data["memory"]), "xeon16": threads_table(data["xeon16"]),
              "recurrent": recurrent_table(data["recurrent"])} | {name: cpu_table(data[name]) for name in MACHINES}
    headlines = cpu_headline(data), *gpu_headlines(data["h200"])
    page = (pathlib.Path(__file__).parent / "performance.in.md").read_text()
    page = re.sub(r"^@table (\w+)$", lambda found: "\n".join(tables[found[1]]), page, flags=re.M)
    items = [textwrap.fill(line, 120, initial_indent="- ", subsequent_indent="  ") for line in headlines]
    yield "docs/performance.md", page.replace("@headlines", "\n".join(items))
    yield "README.md", readme((root / "README.md").read_text(), headlines)
