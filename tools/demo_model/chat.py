"""Chat: facts, small talk, poems, what was said before, system prompts, and how they are joined into conversations.

An exchange maker returns [(question, full answer, short answer)], usually one; several if later ones refer to the
first.
"""

import pathlib

import tasks
import tools
from grammar import Grammar, article, read_sections, split_options
from json_tasks import json_extraction
from stories import WORDS, made_up_name, person_name
from story_chat import continue_story, reading, story
from tasks import ASKS
from values import LISTS

TEXT = Grammar(WORDS.lists)


def _read_facts():
    tables = []
    for name, lines in read_sections(pathlib.Path(__file__).parent / "data" / "facts.txt"):
        table = {"name": name, "facts": []}
        for line in lines:
            if line[:3] in ("q: ", "a: ", "s: "):
                table[line[0]] = split_options(line[3:])
            elif line:
                table["facts"] += [tuple(s.strip() for s in fact.split(" = ")) for fact in split_options(line)]
        tables.append(table)
    return tables


FACTS = _read_facts()
FACT_WEIGHTS = [{"self": 60, "talk": 50, "unknown": 25}.get(t["name"], len(t["facts"]) ** 0.7) for t in FACTS]


UNKNOWN = (
    "capital",
    "continent",
    "opposite",
    "what",
    "home",
    "plural",
    "colour",
)  # tables with questions that have no answer


def fact(rng):
    table = rng.choices(FACTS, FACT_WEIGHTS)[0]
    if table["name"] in UNKNOWN and rng.random() < 0.06:
        key = made_up_name(rng) if table["name"] in ("capital", "continent") else made_up_name(rng).lower()
        return [
            (
                TEXT.expand(rng, rng.choice(table["q"]), {"k": key}),
                f"I do not know {key}. I am a very small model.",
                "I do not know",
            )
        ]
    key, value = rng.choice(table["facts"])
    slots = {"k": key, "v": value}
    return [tuple(TEXT.expand(rng, rng.choice(table[part]), slots) for part in "qas")]


def _one(maker):
    return lambda rng: [maker(rng)]


def sums(rng):
    first = tasks.arithmetic(rng)
    if rng.random() > 0.12:
        return [first]
    out = [first]
    for _ in range(rng.randint(1, 3)):
        a, b, op = rng.randint(0, 20), rng.randint(0, 20), rng.choice("+-")
        c = tasks.result(op, a, b)
        out.append(
            (
                rng.choice(["And {}?", "And what is {}?", "Now {}.", "{}?"]).format(f"{a} {op} {b}"),
                f"{a} {op} {b} = {c}.",
                str(c),
            )
        )
    return out


def memory(rng):
    name, colour, animal, city, pet = (
        person_name(rng),
        rng.choice(WORDS.lists["colour"]),
        rng.choice(LISTS["pet_species"]),
        rng.choice(LISTS["city"]),
        rng.choice(WORDS.lists["pet_name"]),
    )
    age = rng.randint(5, 90)
    pairs = [
        ((f"My name is {name}.", f"Nice to meet you, {name}!"), ("What is my name?", f"Your name is {name}.", name)),
        (
            (f"Hello, I am {name}.", f"Hello, {name}! How can I help you?"),
            ("Do you remember my name?", f"Your name is {name}.", name),
        ),
        ((f"Hi! I'm {name}.", f"Hello, {name}! How can I help you?"), ("Who am I?", f"You are {name}.", name)),
        (
            (f"My favourite colour is {colour}.", f"{colour.capitalize()} is a beautiful colour."),
            ("What is my favourite colour?", f"Your favourite colour is {colour}.", colour.capitalize()),
        ),
        ((f"I live in {city}.", f"{city} must be a nice place."), ("Where do I live?", f"You live in {city}.", city)),
        (
            (f"I am {age} years old.", "Thank you for telling me."),
            ("How old am I?", f"You are {age} years old.", str(age)),
        ),
        (
            (f"I have a {animal} called {pet}.", f"{pet} is a lovely name for a {animal}."),
            (f"What is the name of my {animal}?", f"Your {animal} is called {pet}.", pet),
        ),
        (
            (f"Remember the number {age}.", f"I will remember {age}."),
            ("Which number did I tell you?", f"You told me the number {age}.", str(age)),
        ),
    ]
    chosen = rng.sample(pairs, rng.randint(1, 2))
    out = [(said, reply, reply) for (said, reply), _ in chosen]
    for _ in range(rng.choice([0, 0, 1, 2])):
        out += rng.choice([fact, sums])(rng)
    return out + [question for _, question in chosen]


CODE = {
    "Python": ("python", 'print("{}")'),
    "C": ("c", '#include <stdio.h>\n\nint main(void) {\n  printf("{}\\n");\n}'),
    "Rust": ("rust", 'fn main() {\n    println!("{}");\n}'),
    "JavaScript": ("javascript", 'console.log("{}");'),
    "a shell script": ("sh", 'echo "{}"'),
    "C++": ("cpp", '#include <iostream>\n\nint main() {\n  std::cout << "{}\\n";\n}'),
}


def code(rng):
    language = rng.choice(list(CODE))
    mark, program = CODE[language]
    say = (
        "Hello, world!"
        if rng.random() < 0.5
        else rng.choice(
            [f"Hello, {person_name(rng)}!", rng.choice(LISTS["message"]), f"I like {rng.choice(LISTS['topic'])}"]
        )
    )
    ask = rng.choice(
        ['Write "{}" in {}.', 'How do I print "{}" in {}?', 'Print "{}" in {}.', 'Show me how to print "{}" in {}.']
    ).format(say, language)
    text = f"```{mark}\n{program.replace('{}', say)}\n```"
    return [(ask, text, text)]


def poem(rng):
    slots = {"x": WORDS.expand(rng, "[animal_adj] [animal]"), "c": rng.choice(WORDS.lists["colour"])}
    about = slots["x"] if rng.random() < 0.6 else None
    lines = rng.sample(WORDS.lists["couplet"], 2)
    text = "\n".join(TEXT.expand(rng, line.replace(" / ", "\n"), slots) for line in lines)
    ask = rng.choice(
        [
            "Write a poem{}.",
            "Write a short poem{}.",
            "Can you write a poem{}?",
            "A poem{}, please.",
            "Make a little poem{}.",
        ]
    )
    return [(ask.format(f" about {article(about)}" if about else ""), text, text)]


MAKERS = [
    (code, 1.5),
    (poem, 1.5),
    (sums, 30),
    (fact, 26),
    (story, 12),
    (_one(json_extraction), 20),
    (_one(tasks.word_problem), 3),
    (_one(tasks.three_terms), 2),
    (_one(tasks.compare), 2),
    (_one(tasks.parity), 1.5),
    (_one(tasks.counting), 2.5),
    (_one(tasks.sorting), 2),
    (_one(tasks.sequence), 1.5),
    (_one(tasks.spelling), 2),
    (_one(tasks.listing), 3),
    (_one(tasks.repeat), 2),
    (memory, 4),
    (reading, 3),
    (continue_story, 2),
]
MAKER_LIST, MAKER_WEIGHTS = [m for m, _ in MAKERS], [w for _, w in MAKERS]

# System prompts --------------------------------------------------------------------------------------------------------------------------------


def _system(rng):
    """Returns (system prompt or None, how it changes an exchange)."""
    kind = rng.random()
    if kind < 0.58:
        return None, lambda q, a, s: a
    if kind < 0.80:
        return rng.choice(ASKS["system_plain"]), lambda q, a, s: a
    if kind < 0.90:
        return (
            rng.choice(["", "", "You are a helpful assistant. "]) + rng.choice(ASKS["system_short"]),
            lambda q, a, s: s,
        )
    word = rng.choice(["Arr!", "Well,", "Aha!", "My friend:", "Hello!", "Yes!", "Beep!", made_up_name(rng) + "!"])
    if kind < 0.94:
        return (
            rng.choice([f'Begin every answer with "{word}".', f'Start each answer with "{word}"']),
            lambda q, a, s: f"{word} {a}",
        )
    if kind < 0.97:
        word = rng.choice(
            [
                "Over.",
                "Amen.",
                "Good luck!",
                "The end.",
                "So there!",
                "Ahoy!",
                "That is all.",
                made_up_name(rng) + ".",
            ]
        )
        return (
            rng.choice([f'End every answer with "{word}".', f'Finish each answer with "{word}"']),
            lambda q, a, s: f"{a} {word}",
        )
    name = person_name(rng)
    answers = {
        "What is your name?": f"My name is {name}.",
        "Who are you?": f"I am {name}.",
        "What are you called?": f"My name is {name}.",
    }
    return rng.choice(
        [f"Your name is {name}.", f"You are {name}, a helpful assistant.", f"You are called {name}."]
    ), lambda q, a, s: answers.get(q, a)


def _noise(rng, ask):
    """People leave out punctuation and capitals."""
    kind = rng.random()
    if kind < 0.05 and "{" not in ask:
        return ask.lower() if not any(c.isupper() for c in ask[1:]) else ask
    if kind < 0.10 and ask[-1] in ".?":
        return ask[:-1]
    if kind < 0.13:
        return rng.choice(["Hello! ", "Hi! ", "Please help me. ", "Quick question: ", "Tell me: "]) + ask
    return ask


def _exchanges(rng, n):
    out = []
    while len(out) < n:
        out += rng.choices(MAKER_LIST, MAKER_WEIGHTS)[0](rng)
    return out


def conversation(rng):
    """One chat as (messages, tools)."""
    if rng.random() < 0.16:
        messages, definitions = tools.tool_conversation(rng, lambda r: rng.choices([fact, sums], [3, 2])[0](r)[0][:2])
        if rng.random() < 0.25:
            messages.insert(0, {"role": "system", "content": rng.choice(ASKS["system_plain"])})
        return messages, definitions
    system, answer_as = _system(rng)
    turns = _exchanges(rng, rng.choices([1, 2, 3, 5, 8], [52, 20, 14, 10, 4])[0])
    if system and rng.random() < 0.5 and "name is" in system or system and system.startswith(("You are called",)):
        turns.insert(
            rng.randrange(len(turns) + 1),
            (rng.choice(["What is your name?", "Who are you?", "What are you called?"]), "", ""),
        )
    messages = [{"role": "system", "content": system}] if system else []
    if not system and rng.random() < 0.02:
        messages = [{"role": "system", "content": rng.choice(ASKS["system_story"])}]
        turns = story(rng)
    for ask, full, short in turns:
        answer = answer_as(ask, full, short)
        if not answer:
            continue
        noisy = ask if ask.startswith(("What is your", "Who are", "What are you called")) else _noise(rng, ask)
        messages += [{"role": "user", "content": noisy}, {"role": "assistant", "content": answer}]
    return messages, None
