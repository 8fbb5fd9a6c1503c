"""Short stories from the plots in data/plots_*.txt.

A story draws a world, a cast (hero, friend, adviser, stranger), places and things once, binds them to the slots that
the plots use, and then writes the plot's sentences. The drawn values stay in `Story.slots`, so that a chat can ask for
them: "a story about a shy dragon and a silver key".
"""

import dataclasses
import hashlib
import pathlib
import re

from grammar import Grammar, capital, read_lists, read_sections, split_options

DATA = pathlib.Path(__file__).parent / "data"
WORDS = Grammar(read_lists(DATA / "words.txt"))
PRONOUNS = {
    "m": ("he", "him", "his", "himself"),
    "f": ("she", "her", "her", "herself"),
    "n": ("it", "it", "its", "itself"),
}
# world: (how often, kinds of hero, kinds of friend)
WORLDS = {
    "child": (4, ["child_kind"], ["child_pal_kind", "child_kind", "animal"]),
    "animal": (5, ["animal"], ["animal"]),
    "magic": (2, ["magic_kind"], ["magic_kind", "child_kind", "animal"]),
    "robot": (1, ["robot_kind"], ["child_kind", "robot_kind", "animal"]),
}
avoid = set()  # digests of the held-out stories, which training must not see
SMALL_WORDS = {"a", "an", "the", "and", "of", "to", "in", "on", "at", "by", "for", "with", "its", "his", "her"}
NAME_LIST = {"child_kind": None, "animal": "pet_name", "magic_kind": "magic_name", "robot_kind": "robot_name"}


@dataclasses.dataclass
class Plot:
    name: str
    theme: list
    title: list
    moral: list
    lets: list  # [([slot], [[value]])]
    paragraphs: list  # [[(optional, [sentence])]]


@dataclasses.dataclass
class Story:
    title: str
    text: str
    slots: dict
    theme: str


def _read_plot(name, lines):
    plot = Plot(name, [], [], [], [], [[]])
    for line in lines:
        key, _, rest = line.partition(": ")
        if key in ("theme", "title", "moral"):
            setattr(plot, key, split_options(rest))
        elif key.startswith("let "):
            slots = key[4:].split(", ")
            rows = [[v.strip() for v in row.split(" / ")] for row in split_options(rest)]
            if any(len(row) != len(slots) for row in rows):
                raise ValueError(f"plot {name}: a row of `{key}` has the wrong length")
            plot.lets.append((slots, rows))
        elif line:
            plot.paragraphs[-1].append((line[0] == "?", split_options(line.lstrip("?"))))
        elif plot.paragraphs[-1]:
            plot.paragraphs.append([])
    plot.paragraphs = [p for p in plot.paragraphs if p]
    return plot


PLOTS = [_read_plot(n, lines) for path in sorted(DATA.glob("plots_*.txt")) for n, lines in read_sections(path)]


def tidy(text):
    """Drops the comma or full stop that a template puts after a phrase that already ends in punctuation."""
    return re.sub(r"([!?])[.,!?]", r"\1", text)


def made_up_name(rng):
    """A name that is in no list, so that the model must copy names from the text and cannot memorize them."""
    parts = [rng.choice(WORDS.lists["syllable_a"])]
    parts += [rng.choice(WORDS.lists["syllable_b"]) for _ in range(rng.randrange(2))]
    return "".join(parts) + rng.choice(WORDS.lists["syllable_c"])


def person_name(rng, gender=None):
    if rng.random() < 0.12:
        return made_up_name(rng)
    gender = gender or rng.choice("mf")
    return rng.choice(WORDS.lists["girl_name" if gender == "f" else "boy_name"])


def _character(rng, kind_list):
    """Returns (name, kind, gender)."""
    if kind_list == "child_pal_kind":
        return rng.choice(WORDS.lists["pet_name"]), WORDS.expand(rng, "[child_pal_kind]"), rng.choice("mf")
    if kind_list == "child_kind":
        kind, gender = WORDS.expand(rng, rng.choice(WORDS.lists["child_kind"])).split("/")
        return person_name(rng, gender), kind, gender
    if kind_list == "animal":
        kind = WORDS.expand(rng, "[animal_adj] [animal]")
    else:
        kind = WORDS.expand(rng, f"[{kind_list}]")
    gender = "f" if kind.split()[-1] in ("princess", "witch", "mermaid", "hen") else rng.choice("mf")
    if kind.split()[-1] in ("prince", "wizard"):
        gender = "m"
    if kind_list == "magic_kind" and rng.random() < 0.5 or rng.random() < 0.15:
        return person_name(rng, gender), kind, gender
    return rng.choice(WORDS.lists[NAME_LIST[kind_list]]), kind, gender


def _bind_person(slots, role, name, kind, gender):
    he, him, his, own = PRONOUNS[gender]
    slots.update(
        {
            role: name,
            f"{role}.kind": kind,
            f"{role}.noun": kind.split()[-1],
            f"{role}.he": he,
            f"{role}.him": him,
            f"{role}.his": his,
            f"{role}.self": own,
            f"{role}.He": capital(he),
            f"{role}.His": capital(his),
        }
    )


def _cast(rng, slots):
    world = rng.choices(list(WORLDS), [w[0] for w in WORLDS.values()])[0]
    _, heroes, pals = WORLDS[world]
    _bind_person(slots, "H", *_character(rng, rng.choice(heroes)))
    while True:
        name, kind, gender = _character(rng, rng.choice(pals))
        if name != slots["H"] and kind.split()[-1] != slots["H.noun"]:
            break
    _bind_person(slots, "P", name, kind, gender)
    gender = rng.choice("mf")
    title = rng.choice(
        {"m": ["Old", "Grandfather", "Uncle", "Mr."], "f": ["Old", "Grandmother", "Aunt", "Mrs."]}[gender]
    )
    _bind_person(
        slots,
        "E",
        f"{title} {rng.choice(WORDS.lists['elder_man' if gender == 'm' else 'elder_woman'])}",
        WORDS.expand(rng, "[elder_kind]"),
        gender,
    )
    while True:
        name, kind, gender = person_name(rng), WORDS.expand(rng, "[stranger_kind]"), rng.choice("mf")
        if name not in (slots["H"], slots["P"]) and kind.split()[-1] not in (slots["H.noun"], slots["P.noun"]):
            break
    _bind_person(slots, "S", name, kind, gender)


def _scene(rng, slots):
    first, second = rng.sample(WORDS.lists["place"], 2)
    for n, place in (("", first), ("2", second)):
        name, prep, details = place.split("/")
        name = WORDS.expand(rng, name)
        slots.update({"place" + n: name, "at" + n: f"{prep} {name}"})
        if not n:
            slots["place.detail"] = None  # a fresh one at every use
            slots["place.details"] = details.split(";")
    thing, use = rng.choice(WORDS.lists["thing"]).split("/")
    thing = WORDS.expand(rng, thing)
    slots.update({"thing": thing, "thing.use": use, "thing.noun": thing.split()[-1]})
    for key in ("food", "season"):
        slots[key] = WORDS.expand(rng, f"[{key}]")


def _write(rng, plot, slots, keep):
    details = list(slots["place.details"])
    rng.shuffle(details)
    paragraphs = []
    for paragraph in plot.paragraphs:
        sentences = []
        for optional, options in paragraph:
            if optional and rng.random() > keep:
                continue
            slots["place.detail"] = details[-1]
            text = tidy(WORDS.expand(rng, rng.choice(options), slots))
            if details[-1] in text and len(details) > 1:
                details.pop()
            sentences.append(text)
        paragraphs.append(sentences)
    return paragraphs


def digest(text):
    return hashlib.blake2b(text.encode(), digest_size=12).digest()


def make_story(rng, keep=None):
    """One story that is not in `avoid`; `keep` is the share of optional sentences that stay (0 gives the shortest
    form)."""
    while True:
        story = _compose(rng, keep)
        if digest(story.text) not in avoid:
            return story


def _compose(rng, keep):
    plot = rng.choice(PLOTS)
    slots = {}
    _cast(rng, slots)
    _scene(rng, slots)
    for names, rows in plot.lets:
        for name, value in zip(names, rng.choice(rows)):
            # Bound values with alternatives are expanded here, so that each use has the same text.
            slots[name] = WORDS.expand(rng, value, slots)
    keep = rng.choice([0.3, 0.6, 0.9]) if keep is None else keep
    paragraphs = _write(rng, plot, slots, keep)
    end = rng.random()
    if end < 0.35:
        paragraphs.append(
            [WORDS.expand(rng, rng.choice([f"The moral of the story: {m}" for m in plot.moral]), slots)]
        )
    elif end < 0.75:
        paragraphs[-1].append(WORDS.expand(rng, "[~end]", slots))
    text = "\n\n".join(" ".join(p) for p in paragraphs)
    title = tidy(WORDS.expand(rng, rng.choice(plot.title), slots))
    title = " ".join(w if w in SMALL_WORDS else capital(w) for w in title.split())
    return Story(capital(title), text, slots, rng.choice(plot.theme))
