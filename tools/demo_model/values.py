"""Draws the values for records and tools. A rule is a list of data/values.txt, or one of the rules below such as
`int:1:90`. `draw` returns (JSON value, the text for a sentence)."""

import pathlib

from grammar import read_lists
from stories import WORDS, made_up_name, person_name

LISTS = read_lists(pathlib.Path(__file__).parent / "data" / "values.txt")
ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
).split()
TENS = {30: "thirty", 40: "forty", 50: "fifty", 60: "sixty", 70: "seventy", 80: "eighty", 90: "ninety"}


def number_word(n):
    if n <= 20:
        return ONES[n]
    tens = "twenty" if n < 30 else TENS[n - n % 10]
    return tens if n % 10 == 0 else f"{tens}-{ONES[n % 10]}"


def full_name(rng):
    surname = made_up_name(rng) if rng.random() < 0.15 else rng.choice(WORDS.lists["surname"])
    return f"{person_name(rng)} {surname}" if rng.random() < 0.7 else person_name(rng)


def clock_time(rng):
    return f"{rng.randrange(24):02}:{rng.choice([0, 15, 30, 45, rng.randrange(60)]):02}"


def price(rng):
    """A price whose text and JSON number are the same characters."""
    return rng.randint(1, 300) if rng.random() < 0.4 else rng.randint(1, 99) + rng.randint(1, 9) / 10


def phone(rng):
    return f"{rng.randrange(100, 1000)}-{rng.randrange(1000, 10000)}"


def email(rng):
    user = person_name(rng).lower().encode("ascii", "ignore").decode() or "mail"
    return f"{user}{rng.choice(['', '', str(rng.randrange(100))])}@{rng.choice(LISTS['domain'])}"


def city(rng):
    return made_up_name(rng) if rng.random() < 0.12 else rng.choice(LISTS["city"])


def book_title(rng):
    return (
        rng.choice(LISTS["book_title"])
        if rng.random() < 0.7
        else f"{person_name(rng)} and the {rng.choice(LISTS['device']).title()}"
    )


RULES = {
    "full_name": full_name,
    "first_name": person_name,
    "time": clock_time,
    "phone": phone,
    "email": email,
    "city": city,
    "city2": city,
    "pet": lambda rng: rng.choice(WORDS.lists["pet_name"]),
    "book_title": book_title,
    "year": lambda rng: rng.randint(1850, 2024),
    "price": price,
    "weekday": lambda rng: rng.choice(WORDS.lists["weekday"]),
    "colour": lambda rng: rng.choice(WORDS.lists["colour"]),
    "currency2": lambda rng: rng.choice(LISTS["currency"]),
}


def draw(rng, rule, bound=None):
    name, *args = rule.split(":")
    if name == "int":
        value = rng.randint(int(args[0]), int(args[1]))
        return value, str(value)
    if name in ("sum", "times"):
        a, b = (int(bound[k]) for k in args)
        value = a + b if name == "sum" else a * b
        return value, str(value)
    if name == "bool":
        value = rng.random() < 0.5
        return value, "on" if value else "off"
    if name == "yesno":
        value = rng.random() < 0.5
        return value, "recommend" if value else "do not recommend"
    if name == "onoff":
        return bound[args[0]], bound[args[0]]
    value = RULES[name](rng) if name in RULES else rng.choice(LISTS[name])
    return value, str(value)
