"""Sums, small reasoning and lists. Each maker returns (question, full answer, short answer); the answers are computed, never
drawn, so that they are correct."""

import pathlib

from grammar import read_lists
from stories import WORDS, person_name
from values import LISTS, number_word

DATA = pathlib.Path(__file__).parent / "data"
ASKS = read_lists(DATA / "asks.txt")
ASK = {"+": ASKS["ask_sum"], "-": ASKS["ask_difference"], "x": ASKS["ask_product"], "/": ASKS["ask_quotient"]}


def _operands(rng, op):
    if op == "x":
        return rng.randint(0, 12), rng.randint(0, 12)
    if op == "/":
        b = rng.randint(1, 12)
        return b * rng.randint(0, 12), b
    top = rng.choices([20, 99, 999], [70, 24, 6])[0]
    a, b = rng.randint(0, top), rng.randint(0, top)
    return (max(a, b), min(a, b)) if op == "-" and rng.random() < 0.6 else (a, b)


def result(op, a, b):
    return a + b if op == "+" else a - b if op == "-" else a * b if op == "x" else a // b


def arithmetic(rng):
    op = rng.choices("+-x/", [45, 30, 18, 7])[0]
    a, b = _operands(rng, op)
    c = result(op, a, b)
    say = number_word if rng.random() < 0.12 and max(a, b) < 100 else str
    ask = rng.choice(
        ASK[op]
        if say is str
        else [q for q in ASK[op] if f"{{a}} {op}" not in q and "{a}" + op not in q and "*" not in q]
    )
    return ask.format(a=say(a), b=say(b)), f"{a} {op} {b} = {c}.", str(c)


def three_terms(rng):
    a, b, c = (rng.randint(0, 20) for _ in range(3))
    op1, op2 = rng.choice("+-"), rng.choice("+-")
    first = result(op1, a, b)
    total = result(op2, first, c)
    ask = rng.choice(["What is {}?", "Calculate {}.", "{} =", "How much is {}?"]).format(f"{a} {op1} {b} {op2} {c}")
    # A small model can do two written steps, but not both at once.
    return ask, f"{a} {op1} {b} {op2} {c} = {first} {op2} {c} = {total}.", f"{first} {op2} {c} = {total}"


def word_problem(rng):
    name, other = person_name(rng), person_name(rng)
    thing = rng.choice(
        "apples pears books coins marbles stamps cards shells nuts cookies plums balls pencils eggs flowers".split()
    )
    a, b = rng.randint(1, 20), rng.randint(1, 20)
    kind = rng.random()
    if kind < 0.4:
        ask = rng.choice(
            [
                f"{name} has {a} {thing} and gets {b} more. How many {thing} does {name} have now?",
                f"{name} has {a} {thing}. {other} gives {name} {b} {thing}. How many {thing} does {name} have?",
                f"There are {a} {thing} in a box. {name} puts in {b} more. How many {thing} are in the box?",
            ]
        )
        c, sum_text = a + b, f"{a} + {b} = {a + b}"
    elif kind < 0.8:
        a, b = max(a, b), min(a, b)
        ask = rng.choice(
            [
                f"{name} has {a} {thing} and gives {b} to {other}. How many {thing} are left?",
                f"{name} has {a} {thing} and loses {b}. How many {thing} does {name} have now?",
                f"There are {a} {thing} on the table. {name} takes {b}. How many {thing} are left?",
            ]
        )
        c, sum_text = a - b, f"{a} - {b} = {a - b}"
    else:
        a, b = rng.randint(1, 10), rng.randint(1, 10)
        ask = rng.choice(
            [
                f"{name} has {a} bags with {b} {thing} in each. How many {thing} is that?",
                f"There are {a} boxes. Each box holds {b} {thing}. How many {thing} are there?",
            ]
        )
        c, sum_text = a * b, f"{a} x {b} = {a * b}"
    return ask, f"{sum_text}, so the answer is {c} {thing}.", str(c)


def compare(rng):
    a = b = 0
    while a == b:
        a, b = rng.randrange(rng.choice([10, 100, 100, 1000])), rng.randrange(rng.choice([10, 100, 100, 1000]))
    if rng.random() < 0.5:
        return (
            rng.choice(
                [
                    f"Which is bigger, {a} or {b}?",
                    f"Which number is larger: {a} or {b}?",
                    f"Is {a} or {b} the bigger number?",
                ]
            ),
            f"{max(a, b)} is bigger than {min(a, b)}.",
            str(max(a, b)),
        )
    return (
        rng.choice([f"Which is smaller, {a} or {b}?", f"Which number is smaller: {a} or {b}?"]),
        f"{min(a, b)} is smaller than {max(a, b)}.",
        str(min(a, b)),
    )


def parity(rng):
    n = rng.randrange(200)
    kind = "odd" if n % 2 else "even"
    return (
        rng.choice([f"Is {n} even or odd?", f"Is {n} an even or an odd number?", f"Is the number {n} odd or even?"]),
        f"{n} is {kind}.",
        kind.capitalize(),
    )


def counting(rng):
    a = rng.randint(1, 30)
    b = a + rng.randint(2, 14)
    if rng.random() < 0.3:
        ask, run = rng.choice([f"Count down from {b} to {a}.", f"Count backwards from {b} to {a}."]), range(
            b, a - 1, -1
        )
    elif rng.random() < 0.4:
        a, b = 1, rng.randint(3, 20)
        ask, run = rng.choice([f"Count to {b}.", f"Can you count to {b}?", f"Please count up to {b}."]), range(
            1, b + 1
        )
    else:
        ask, run = rng.choice([f"Count from {a} to {b}.", f"List the numbers from {a} to {b}."]), range(a, b + 1)
    text = ", ".join(map(str, run))
    return ask, text + ".", text


def sorting(rng):
    items = rng.sample(range(100), rng.randint(3, 5))
    down = rng.random() < 0.3
    how = " from big to small" if down else rng.choice([" from small to big", ""])
    text = ", ".join(map(str, sorted(items, reverse=down)))
    return (
        rng.choice(["Sort these numbers{}: {}", "Put these numbers in order{}: {}"]).format(
            how, ", ".join(map(str, items))
        ),
        text + ".",
        text,
    )


def sequence(rng):
    start, step = rng.randint(0, 20), rng.choice([1, 2, 2, 3, 4, 5, 5, 10])
    run = [start + i * step for i in range(5)]
    shown = ", ".join(map(str, run[:4]))
    return (
        rng.choice([f"What comes next: {shown}?", f"What number comes next? {shown}", f"Continue the row: {shown}"]),
        f"The next number is {run[4]}.",
        str(run[4]),
    )


def spelling(rng):
    word = rng.choice(WORDS.lists["animal"] + LISTS["product"] + LISTS["room"]).split()[0]
    kind = rng.randrange(5)
    if kind == 0:
        return (
            rng.choice([f"How do you spell {word}?", f'Spell the word "{word}".', f"Spell {word}."]),
            "-".join(word.upper()) + ".",
            "-".join(word.upper()),
        )
    if kind == 1:
        return (
            rng.choice([f'How many letters are in "{word}"?', f"How many letters does the word {word} have?"]),
            f'The word "{word}" has {len(word)} letters.',
            str(len(word)),
        )
    if kind == 2:
        return (
            f'What is the first letter of "{word}"?',
            f'The first letter of "{word}" is {word[0].upper()}.',
            word[0].upper(),
        )
    if kind == 3:
        return (
            f'What is the last letter of "{word}"?',
            f'The last letter of "{word}" is {word[-1].upper()}.',
            word[-1].upper(),
        )
    i = rng.randrange(25)
    here, after = chr(65 + i), chr(66 + i)
    return (
        rng.choice([f"What letter comes after {here}?", f"Which letter follows {here}?"]),
        f"The letter after {here} is {after}.",
        after,
    )


CATEGORIES = {
    "animals": WORDS.lists["animal"],
    "colours": WORDS.lists["colour"],
    "cities": LISTS["city"],
    "jobs": LISTS["job"],
    "rooms": LISTS["room"],
    "days of the week": WORDS.lists["weekday"],
    "languages": LISTS["language"],
    "things to eat": LISTS["dish"],
    "fruits": "apples pears plums cherries bananas grapes lemons oranges peaches figs".split(),
    "vegetables": "carrots beans onions potatoes leeks peas cabbage spinach turnips".split(),
    "instruments": "violin flute drum piano guitar trumpet harp cello".split(),
    "names": WORDS.lists["girl_name"][:40] + WORDS.lists["boy_name"][:40],
}


def listing(rng):
    kind = rng.choice(list(CATEGORIES))
    n = rng.randint(2, 5)
    items = rng.sample(CATEGORIES[kind], n)
    count = rng.choice([str(n), number_word(n)])
    ask = rng.choice(
        [
            f"Name {count} {kind}.",
            f"Give me {count} {kind}.",
            f"List {count} {kind}.",
            f"Can you name {count} {kind}?",
            f"Tell me {count} {kind}.",
        ]
    )
    if rng.random() < 0.3:
        text = "\n".join(f"{i}. {x[0].upper() + x[1:]}" for i, x in enumerate(items, 1))
        return (
            rng.choice([f"Write a numbered list of {count} {kind}.", f"Make a list of {count} {kind}."]),
            text,
            text,
        )
    text = ", ".join(items[:-1]) + " and " + items[-1]
    return ask, text[0].upper() + text[1:] + ".", text


def repeat(rng):
    text = rng.choice(
        [
            rng.choice(LISTS["message"]).capitalize(),
            rng.choice(LISTS["song"]),
            " ".join(rng.sample(CATEGORIES["animals"], rng.randint(1, 4))),
            f"{person_name(rng)} likes {rng.choice(LISTS['topic'])}",
        ]
    )
    return (
        rng.choice(
            [f'Say "{text}".', f"Repeat after me: {text}", f'Repeat this: "{text}"', f'Please write "{text}".']
        ),
        text,
        text,
    )
