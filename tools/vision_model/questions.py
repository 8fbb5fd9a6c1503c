"""Questions about a scene, with the one right answer to each."""

from collections import Counter

from scenes import COLOURS, SHAPES

NUMBERS = ["no", "one", "two", "three", "four", "five", "six"]
KINDS = ["describe", "shape", "colour", "count", "number", "position", "word", "blank", "box"]  # blank: no such text


def article(noun):
    return f"an {noun}" if noun[0] in "aeiou" else f"a {noun}"


def plural(name):
    return name + ("es" if name.endswith("s") else "s")


def listed(parts):
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def unique(scene, attribute):
    """The shapes that no other shape equals in the attribute."""
    seen = Counter(getattr(s, attribute) for s in scene.shapes)
    return [s for s in scene.shapes if seen[getattr(s, attribute)] == 1]


def unique_shapes(scene):
    seen = Counter(str(s) for s in scene.shapes)
    return [s for s in scene.shapes if seen[str(s)] == 1]


def describe(rng, scene):
    parts = [(s.row, s.column, f"{article(str(s))} {s.place}") for s in scene.shapes]
    if scene.text:
        what = f"the {'number' if scene.is_number else 'word'} \"{scene.text}\" {scene.text_place}"
        parts.append((scene.text_row, 0, what))
    found = listed([p for _, _, p in sorted(parts)])
    question = rng.choice(["Describe the picture.", "What is in the picture?", "What do you see?", "What is this?",
                           "Describe this image.", "What is shown here?"])
    return question, f"{found[0].upper()}{found[1:]}, on {article(scene.background)} background."


def shape(rng, scene):
    options = [("colour", s) for s in unique(scene, "colour")] + [("place", s) for s in scene.shapes]
    if not options:
        return None
    by, s = rng.choice(options)
    if by == "colour":
        question = rng.choice([f"What shape is {s.colour}?", f"Which shape is {s.colour}?"])
    else:
        question = rng.choice([f"What shape is {s.place}?", f"Which shape is {s.place}?"])
    return question, f"{article(s.name).capitalize()}."


def colour(rng, scene):
    options = [("name", s) for s in unique(scene, "name")] + [("place", s) for s in scene.shapes] + [("background", None)]
    by, s = rng.choice(options)
    if by == "background":
        question = rng.choice(["What colour is the background?", "Which colour has the background?"])
        return question, f"{scene.background.capitalize()}."
    what = s.name if by == "name" else f"shape {s.place}"
    return rng.choice([f"What colour is the {what}?", f"What color is the {what}?"]), f"{s.colour.capitalize()}."


def count(rng, scene):
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(["How many shapes are there?", "Count the shapes."]), f"{NUMBERS[len(scene.shapes)].capitalize()}."
    if kind < 0.75:
        names = [s.name for s in scene.shapes] + [rng.choice(SHAPES)]
        name = rng.choice(names)
        n = sum(s.name == name for s in scene.shapes)
        return rng.choice([f"How many {plural(name)} are there?", f"Count the {plural(name)}."]), f"{NUMBERS[n].capitalize()}."
    colours = [s.colour for s in scene.shapes] + [rng.choice(list(COLOURS))]
    colour = rng.choice(colours)
    n = sum(s.colour == colour for s in scene.shapes)
    return rng.choice([f"How many {colour} shapes are there?", f"How many shapes are {colour}?"]), f"{NUMBERS[n].capitalize()}."


def position(rng, scene):
    options = unique_shapes(scene)
    kind = rng.random()
    if kind < 0.5 and options:
        s = rng.choice(options)
        return rng.choice([f"Where is the {s}?", f"Where is the {s} in the picture?"]), f"{s.place.capitalize()}."
    if kind < 0.8 and len(options) > 1:
        a, b = rng.sample(options, 2)
        if a.column != b.column and (a.row == b.row or rng.random() < 0.5):
            word = rng.choice(["left", "right"])
            is_so = (a.column < b.column) == (word == "left")
            question = f"Is the {a} to the {word} of the {b}?"
        else:
            word = rng.choice(["above", "below"])
            is_so = (a.row < b.row) == (word == "above")
            question = f"Is the {a} {word} the {b}?"
        return question, "Yes." if is_so else "No."
    names = [str(s) for s in scene.shapes]
    absent = f"{rng.choice(list(COLOURS))} {rng.choice(SHAPES)}"
    asked = rng.choice(names) if names and rng.random() < 0.5 else absent
    return rng.choice([f"Is there {article(asked)}?", f"Do you see {article(asked)}?"]), "Yes." if asked in names else "No."


def text(rng, scene):
    kind = rng.choice(["word", "number"]) if not scene.text else "number" if scene.is_number else "word"
    if rng.random() < 0.1:
        kind = "word" if kind == "number" else "number"
    question = rng.choice([f"What {kind} is written?", f"Read the {kind}.", f"Which {kind} do you see?"])
    if rng.random() < 0.3:
        question = rng.choice(["What is written?", "Read the text."])
        return question, f'"{scene.text}"' if scene.text else "Nothing is written."
    if not scene.text or scene.is_number != (kind == "number"):
        return question, f"There is no {kind}."
    return question, f'"{scene.text}"'


def box(rng, scene):
    options = unique_shapes(scene)
    if not options:
        return None
    s = rng.choice(options)
    numbers = ", ".join(map(str, s.box))
    question = rng.choice([f"Give the box of the {s}.", f"Locate the {s}.", f"Find the {s} and give its box."])
    return question, f'{{"bbox_2d": [{numbers}], "label": "{s}"}}'


MAKERS = {"describe": describe, "shape": shape, "colour": colour, "count": count, "position": position, "text": text, "box": box}
WEIGHTS = {"describe": 3, "shape": 2, "colour": 2, "count": 3, "position": 3, "text": 4, "box": 2}


def ask(rng, scene):
    """(kind, question, answer)"""
    while True:
        maker = rng.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
        pair = MAKERS[maker](rng, scene)
        if not pair:
            continue
        kind = maker
        if maker == "text":
            kind = "blank" if not pair[1].startswith('"') else "number" if scene.is_number else "word"
        return kind, *pair
