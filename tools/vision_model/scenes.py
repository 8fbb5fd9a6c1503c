"""Pictures that a seed draws, with the truth about each: shapes in colours on a plain background, a word or a number.

A picture has a grid of three rows and three columns. A shape takes a cell, text takes a row. Sizes, places, colours and
fonts vary within that. The fonts are those of the matplotlib package.
"""

import functools
import math
import pathlib
import random
import zlib
from dataclasses import dataclass, field

import matplotlib
from PIL import Image, ImageDraw, ImageFont

COLOURS = {
    "red": (220, 30, 30), "green": (30, 160, 50), "blue": (30, 70, 220), "yellow": (245, 220, 40),
    "orange": (250, 140, 20), "purple": (130, 40, 170), "pink": (255, 150, 190), "brown": (125, 75, 35),
    "black": (15, 15, 15), "white": (245, 245, 245), "grey": (135, 135, 135),
}
# Colours that are too alike to stand on each other.
ALIKE = [{"red", "orange"}, {"red", "brown"}, {"orange", "brown"}, {"orange", "yellow"}, {"yellow", "white"}, {"pink", "white"},
         {"blue", "purple"}, {"purple", "black"}, {"brown", "black"}, {"brown", "grey"}, {"blue", "black"}, {"purple", "brown"},
         {"pink", "orange"}, {"green", "grey"}, {"purple", "grey"}]
SHAPES = ["circle", "square", "triangle", "star", "diamond", "cross", "ring", "heart"]
ROWS, COLUMNS = ["top", "middle", "bottom"], ["left", "middle", "right"]
FONTS = sorted((pathlib.Path(matplotlib.get_data_path()) / "fonts/ttf").glob("DejaVuS*.ttf"))
FONTS = [f for f in FONTS if "Display" not in f.name]
LETTERS, VOWELS = "bcdfghjklmnprstvwxz", "aeiouy"


@dataclass
class Shape:
    name: str
    colour: str
    row: int
    column: int
    box: tuple = ()  # left, top, right, bottom, in thousandths of the picture's width and height

    @property
    def place(self):
        if self.row == 1 and self.column == 1:
            return "in the middle"
        if self.row == 1:
            return f"on the {COLUMNS[self.column]}"
        return f"at the {ROWS[self.row]}" + ("" if self.column == 1 else f" {COLUMNS[self.column]}")

    def __str__(self):
        return f"{self.colour} {self.name}"


@dataclass
class Scene:
    background: str
    shapes: list = field(default_factory=list)  # in reading order
    text: str = ""
    text_row: int = -1

    @property
    def is_number(self):
        return self.text.isdigit()

    @property
    def text_place(self):
        return "in the middle" if self.text_row == 1 else f"at the {ROWS[self.text_row]}"


def is_held_out(text):
    """Words and numbers that no training picture has: one in eight."""
    return zlib.crc32(text.lower().encode()) % 8 == 0


def draw_word(rng):
    n = rng.choice([2, 3, 3, 4, 4, 4, 5, 5, 6, 7])
    if rng.random() < 0.3:  # any letters
        word = "".join(rng.choice(LETTERS + VOWELS + "q") for _ in range(n))
    else:  # letters that can be spoken
        start = rng.randrange(2)
        word = "".join(rng.choice(VOWELS if (i + start) % 2 else LETTERS) for i in range(n))
        if rng.random() < 0.3:
            i = rng.randrange(n)
            word = word[:i] + rng.choice(LETTERS + VOWELS) + word[i + 1:]
    return {0: word, 1: word.upper(), 2: word.capitalize()}[rng.choice([0, 0, 0, 1, 2])]


def draw_text(rng, held_out):
    while True:
        text = str(rng.randrange(10 ** rng.randint(1, 4))) if rng.random() < 0.4 else draw_word(rng)
        if len(text) < 2 and text.isdigit() or is_held_out(text) == held_out:
            return text


def draw_scene(rng, held_out=False):
    scene = Scene(rng.choice(list(COLOURS)))
    kind = rng.random()
    if kind < 0.5:
        scene.text, scene.text_row = draw_text(rng, held_out), rng.randrange(3)
    cells = [(r, c) for r in range(3) for c in range(3) if r != scene.text_row]
    n = 0 if kind < 0.2 else min(rng.choice([1, 1, 2, 2, 3, 3, 4, 5, 6]), len(cells))
    visible = [c for c in COLOURS if c != scene.background and {c, scene.background} not in ALIKE]
    # Some pictures repeat a shape or a colour, so that counting is a question.
    names, colours = SHAPES, visible
    if rng.random() < 0.4:
        names = rng.sample(SHAPES, 2)
    if rng.random() < 0.3:
        colours = rng.sample(visible, 2)
    for row, column in sorted(rng.sample(cells, n)):
        scene.shapes.append(Shape(rng.choice(names), rng.choice(colours), row, column))
    return scene


def polygon(name, angle):
    """Points of a shape within the unit circle, turned by the angle."""
    def ring(n, radius, start):
        return [(radius * math.sin(start + 2 * math.pi * i / n), -radius * math.cos(start + 2 * math.pi * i / n)) for i in range(n)]
    if name == "square":
        points = [(-0.8, -0.8), (0.8, -0.8), (0.8, 0.8), (-0.8, 0.8)]
    elif name == "triangle":
        points = ring(3, 1, 0)
    elif name == "star":
        points = [p for pair in zip(ring(5, 1, 0), ring(5, 0.42, math.pi / 5)) for p in pair]
    elif name == "diamond":
        points = [(0, -1), (0.7, 0), (0, 1), (-0.7, 0)]
    elif name == "cross":
        a, b = 0.3, 0.95
        points = [(-a, -b), (a, -b), (a, -a), (b, -a), (b, a), (a, a), (a, b), (-a, b), (-a, a), (-b, a), (-b, -a), (-a, -a)]
    else:  # heart
        points = []
        for i in range(24):
            t = 2 * math.pi * i / 24
            points.append((math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16))
    c, s = math.cos(angle), math.sin(angle)
    return [(x * c - y * s, x * s + y * c) for x, y in points]


def jitter(rng, colour):
    return tuple(max(0, min(255, v + rng.randint(-14, 14))) for v in COLOURS[colour])


def draw_shape(pen, rng, shape, width, height, background):
    cell_w, cell_h = width / 3, height / 3
    radius = min(cell_w, cell_h) * rng.uniform(0.26, 0.46)
    free_x, free_y = cell_w / 2 - radius, cell_h / 2 - radius
    x = (shape.column + 0.5) * cell_w + rng.uniform(-0.8, 0.8) * free_x
    y = (shape.row + 0.5) * cell_h + rng.uniform(-0.8, 0.8) * free_y
    fill = jitter(rng, shape.colour)
    if shape.name in ("circle", "ring"):
        points = [(x - radius, y - radius), (x + radius, y + radius)]
        pen.ellipse(points, fill=fill)
        if shape.name == "ring":
            inner = radius * rng.uniform(0.45, 0.6)
            pen.ellipse([x - inner, y - inner, x + inner, y + inner], fill=background)
    else:
        angle = rng.uniform(-0.12, 0.12)
        points = [(x + radius * px, y + radius * py) for px, py in polygon(shape.name, angle)]
        pen.polygon(points, fill=fill)
    xs, ys = zip(*points)
    shape.box = tuple(max(0, min(1000, round(v))) for v in (
        1000 * min(xs) / width, 1000 * min(ys) / height, 1000 * max(xs) / width, 1000 * max(ys) / height))


@functools.lru_cache(maxsize=4096)
def font(path, size):
    return ImageFont.truetype(str(path), size)


def draw_letters(pen, rng, scene, width, height, background):
    lit = sum(COLOURS[scene.background]) > 380
    ink = tuple(rng.randint(0, 60) for _ in range(3)) if lit else tuple(rng.randint(200, 255) for _ in range(3))
    path, size = rng.choice(FONTS), int(height / 3 * rng.uniform(0.6, 0.95))
    while True:
        left, top, right, bottom = pen.textbbox((0, 0), scene.text, font=font(path, size))
        if right - left < 0.96 * width and bottom - top < height / 3 or size < 6:
            break
        size = int(size * 0.88)
    x = rng.uniform(0.01 * width, max(0.02 * width, 0.99 * width - (right - left))) - left
    free = (height / 3 - (bottom - top)) / 2
    y = (scene.text_row + 0.5) * height / 3 - (bottom - top) / 2 + rng.uniform(-0.6, 0.6) * free - top
    pen.text((x, y), scene.text, fill=ink, font=font(path, size))


def draw_picture(rng, scene):
    """The picture of a scene; its shapes get their boxes."""
    width = rng.randint(150, 330)
    height = min(330, max(150, int(width * rng.uniform(0.7, 1.4))))
    background = jitter(rng, scene.background)
    picture = Image.new("RGB", (width, height), background)
    pen = ImageDraw.Draw(picture)
    for shape in scene.shapes:
        draw_shape(pen, rng, shape, width, height, background)
    if scene.text:
        draw_letters(pen, rng, scene, width, height, background)
    return picture


def make(seed, held_out=False):
    """(picture, scene), always the same for a seed."""
    rng = random.Random(seed)
    scene = draw_scene(rng, held_out)
    return draw_picture(rng, scene), scene
