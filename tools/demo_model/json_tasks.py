"""JSON extraction: a sentence about a record of data/records.txt, and the object it should become. Each maker returns (question,
full answer, short answer)."""

import json
import pathlib

from grammar import read_sections, split_options
from stories import WORDS, person_name
from tasks import CATEGORIES
from values import draw

DATA = pathlib.Path(__file__).parent / "data"


def _read_records():
    records = []
    for name, lines in read_sections(DATA / "records.txt"):
        fields, alias, sentences = [], {}, []
        for line in lines:
            key, _, rest = line.partition(": ")
            if key == "fields":
                fields = [f.split(":", 1) for f in rest.split()]
            elif key == "alias":
                alias = {k: v.split(",") for k, v in (a.split("=") for a in rest.split())}
            elif key == "s":
                sentences += split_options(rest)
        records.append((name, fields, alias, sentences))
    return records


RECORDS = _read_records()
JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def _record(rng):
    """Returns (name, sentence, {field: value or None}, alias)."""
    name, fields, alias, sentences = rng.choice(RECORDS)
    sentence = rng.choice(sentences)
    values, texts = {}, {}
    for field, rule in fields:
        values[field], texts[field] = draw(rng, rule)
    data = {f: v if f"[{f}]" in sentence or f"[a {f}]" in sentence else None for f, v in values.items()}
    return name, WORDS.expand(rng, sentence, texts), data, values, alias


def _keys(rng, data, alias):
    """A choice of fields, possibly renamed: [(key as asked, field)]."""
    fields = [f for f, v in data.items() if v is not None or rng.random() < 0.4]
    if rng.random() < 0.4:
        rng.shuffle(fields)
    if rng.random() < 0.3 and len(fields) > 1:
        fields = fields[: rng.randint(1, len(fields))]
    return [(rng.choice(alias[f]) if f in alias and rng.random() < 0.3 else f, f) for f in fields]


def json_extraction(rng):
    if rng.random() < 0.18:
        return json_lists(rng)
    _, sentence, data, values, alias = _record(rng)
    way = rng.random()
    if way < 0.3:
        ask = rng.choice(
            [
                "Turn this into JSON: {}",
                "Extract the data as JSON: {}",
                "Convert to JSON: {}",
                "Write this as a JSON object: {}",
                "{}\n\nGive me that as JSON.",
                "Make JSON from this sentence: {}",
                "JSON: {}",
            ]
        )
        answer = json.dumps({f: v for f, v in data.items() if v is not None}, ensure_ascii=False)
        return ask.format(sentence), answer, answer
    keys = _keys(rng, data, alias)
    answer = json.dumps({k: data[f] for k, f in keys}, ensure_ascii=False)
    if way < 0.75:
        quoted = rng.random() < 0.5
        names = [f'"{k}"' if quoted else k for k, _ in keys]
        listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]
        word = "key" if len(names) == 1 else "keys"
        ask = rng.choice(
            [
                "Extract {} as JSON: {}",
                "Extract {} from this text as JSON: {}",
                f"Return a JSON object with the {word} {{}}: {{}}",
                f"Reply with JSON only, with the {word} {{}}.\n\n{{}}",
                f"Read the text and answer with a JSON object with the {word} {{}}.\n\n{{}}",
            ]
        )
        return ask.format(listed, sentence), answer, answer
    schema = {
        "type": "object",
        "properties": {k: {"type": JSON_TYPES[type(values[f])]} for k, f in keys},
        "required": [k for k, _ in keys],
    }
    if rng.random() < 0.3:
        del schema["required"]
    ask = rng.choice(
        [
            "Answer with JSON that fits this schema: {}\n\n{}",
            "Use this JSON schema: {}\n\nText: {}",
            "Extract the data. Schema: {}\n\n{}",
        ]
    )
    return ask.format(json.dumps(schema, ensure_ascii=False), sentence), answer, answer


def json_lists(rng):
    kind = rng.random()
    if kind < 0.4:
        items = rng.sample(CATEGORIES[rng.choice(["fruits", "vegetables", "animals", "colours"])], rng.randint(2, 5))
        text = ", ".join(items[:-1]) + " and " + items[-1]
        ask = rng.choice(
            [
                "Turn this list into a JSON array: {}",
                "Write as a JSON array: {}",
                "Make a JSON array of these words: {}",
            ]
        ).format(text)
        answer = json.dumps(items)
    elif kind < 0.7:
        people = [{"name": person_name(rng), "age": rng.randint(3, 90)} for _ in range(rng.randint(2, 3))]
        text = rng.choice([", ", " and ", ". "]).join(f"{p['name']} is {p['age']}" for p in people)
        ask = rng.choice(
            [
                "List the people as a JSON array with name and age: {}.",
                "Turn this into a JSON array of objects with name and age: {}.",
            ]
        ).format(text)
        answer = json.dumps(people, ensure_ascii=False)
    else:
        name, _, _, values, _ = _record(rng)
        fields = list(values)[: rng.randint(2, 4)]
        listed = ", ".join(fields[:-1]) + " and " + fields[-1]
        ask = rng.choice(
            [
                "Give me a JSON object for {} with {}.",
                "Make up {} as JSON with the keys {}.",
                "Write an example of {} as a JSON object with {}.",
            ]
        )
        ask = ask.format(
            {
                "event": "an event",
                "order": "an order",
                "weather": "a weather report",
                "lamp": "a device",
                "trip": "a train trip",
            }.get(name, f"a {name}"),
            listed,
        )
        answer = json.dumps({f: values[f] for f in fields}, ensure_ascii=False)
    return ask, answer, answer
