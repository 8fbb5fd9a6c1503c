"""Random JSON Schemas and values with the verdicts of the `jsonschema` package (draft 2020-12, without formats):
tests/data/grammars/schemas.jsonl, for tests/text/schema_machine_test.cc.

    pip install jsonschema && python make_schemas.py ../../tests/data/grammars/schemas.jsonl
"""
import json
import random
import sys

import jsonschema

N_SCHEMAS, N_VALUES, SEED = 320, 8, 20261122
NAMES = ["a", "b", "ab", "c", "é", "qx"]
TEXTS = ["", "a", "ab", "abc", "b1", "é", "a b", "12"]
NUMBERS = [0, 1, -1, 2, 3, 1.5, -0.25, 10, 12, 100, 7]
PATTERNS = ["^a", "b$", "^[a-c]*$", "[0-9]", "^(?!ab)", "^.{2}$"]
rng = random.Random(SEED)


def value(depth):
    kind = rng.randrange(8 if depth > 0 else 5)
    if kind == 0:
        return None
    if kind == 1:
        return rng.random() < 0.5
    if kind in (2, 3):
        return rng.choice(NUMBERS)
    if kind == 4:
        return rng.choice(TEXTS)
    if kind == 5:
        return [value(depth - 1) for _ in range(rng.randrange(4))]
    return {name: value(depth - 1) for name in rng.sample(NAMES, rng.randrange(4))}


def number(schema):
    for key in rng.sample(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], rng.randrange(3)):
        schema[key] = rng.choice(NUMBERS)
    if rng.random() < 0.2:
        schema["multipleOf"] = rng.choice([2, 3, 0.5, 0.25])
    return rng.choice(["number", "integer"])


def text(schema):
    for key in rng.sample(["minLength", "maxLength"], rng.randrange(3)):
        schema[key] = rng.randrange(4)
    if rng.random() < 0.4:
        schema["pattern"] = rng.choice(PATTERNS)
    return "string"


def array(schema, depth):
    if rng.random() < 0.5:
        schema["items"] = any_schema(depth - 1)
    if rng.random() < 0.3:
        schema["prefixItems"] = [any_schema(depth - 1) for _ in range(rng.randrange(1, 3))]
    if rng.random() < 0.3:
        schema["contains"] = any_schema(depth - 1)
        for key in rng.sample(["minContains", "maxContains"], rng.randrange(3)):
            schema[key] = rng.randrange(3)
    for key in rng.sample(["minItems", "maxItems"], rng.randrange(3)):
        schema[key] = rng.randrange(4)
    if rng.random() < 0.3:
        schema["uniqueItems"] = True
    return "array"


def object_(schema, depth):
    if rng.random() < 0.8:
        schema["properties"] = {name: any_schema(depth - 1) for name in rng.sample(NAMES, rng.randrange(1, 4))}
    if rng.random() < 0.4:
        schema["required"] = rng.sample(NAMES, rng.randrange(3))
    if rng.random() < 0.4:
        schema["additionalProperties"] = rng.choice([False, any_schema(depth - 1)])
    if rng.random() < 0.2:
        schema["patternProperties"] = {rng.choice(PATTERNS): any_schema(depth - 1)}
    if rng.random() < 0.15:
        schema["propertyNames"] = {"pattern": rng.choice(PATTERNS)}
    for key in rng.sample(["minProperties", "maxProperties"], rng.randrange(2)):
        schema[key] = rng.randrange(4)
    if rng.random() < 0.15:
        schema["dependentRequired"] = {rng.choice(NAMES): [rng.choice(NAMES)]}
    if rng.random() < 0.1:
        schema["dependentSchemas"] = {rng.choice(NAMES): any_schema(depth - 1)}
    return "object"


def any_schema(depth):
    if depth <= 0 or rng.random() < 0.1:
        return rng.choice([{}, True, {"type": rng.choice(["string", "integer", "null", "boolean", "object"])}])
    schema = {}
    kind = rng.randrange(10)
    if kind < 2:
        schema["type"] = number(schema)
    elif kind < 4:
        schema["type"] = text(schema)
    elif kind < 5:
        schema["type"] = array(schema, depth)
    elif kind < 8:
        schema["type"] = object_(schema, depth)
    elif kind < 9:
        schema["enum"] = [value(1) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.2 and "type" in schema:
        del schema["type"]
    if rng.random() < 0.12:
        schema[rng.choice(["anyOf", "oneOf", "allOf"])] = [any_schema(depth - 1) for _ in range(rng.randrange(1, 4))]
    if rng.random() < 0.06:
        schema["not"] = any_schema(depth - 1)
    if rng.random() < 0.05:
        schema.update({"if": any_schema(depth - 1), "then": any_schema(depth - 1), "else": any_schema(depth - 1)})
    return schema


def near(schema, depth=3):
    """A value that is likely to satisfy the schema."""
    if not isinstance(schema, dict) or depth == 0 or rng.random() < 0.15:
        return value(2)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema and rng.random() < 0.5:
            return near(rng.choice(schema[key]), depth - 1)
    if "enum" in schema:
        return rng.choice(schema["enum"])
    kind = schema.get("type", rng.choice(["object", "string", "number"]))
    if kind == "object":
        known = schema.get("properties", {})
        names = [name for name in known if rng.random() < 0.7] + [n for n in schema.get("required", []) if n not in known]
        if rng.random() < 0.2:
            names.append(rng.choice(NAMES))
        return {name: near(known.get(name, {}), depth - 1) for name in dict.fromkeys(names)}
    if kind == "array":
        return [near(schema.get("items", {}), depth - 1) for _ in range(rng.randrange(4))]
    if kind == "string":
        return rng.choice(TEXTS)
    return rng.choice(NUMBERS) if kind in ("number", "integer") else value(0)


def main():
    with open(sys.argv[1], "w") as out:
        for _ in range(N_SCHEMAS):
            schema = any_schema(3)
            if not isinstance(schema, dict):
                schema = {"allOf": [schema]}
            validator = jsonschema.Draft202012Validator(schema)
            tests = [[json.dumps(data, ensure_ascii=False), validator.is_valid(data)] for data in (near(schema) for _ in range(N_VALUES))]
            out.write(json.dumps({"schema": json.dumps(schema, ensure_ascii=False), "tests": tests}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
