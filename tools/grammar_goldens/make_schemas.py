"""Random JSON Schemas and values with the verdicts of the `jsonschema` package (draft 2020-12, without formats):
tests/data/grammars/schemas.jsonl, for tests/text/grammar/schema_machine_test.cc.

    pip install jsonschema && python make_schemas.py ../../tests/data/grammars/schemas.jsonl
"""
import json
import random
import sys

import jsonschema

N_SCHEMAS, N_CONDITIONAL, N_VALUES, SEED = 320, 240, 8, 20261122
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


def bounds(schema, low, high, n=4):
    """Sets bounds at random. Never `low` above `high`, which ingot refuses."""
    values = sorted(rng.randrange(n) for _ in range(2))
    for key, bound in rng.sample([(low, values[0]), (high, values[1])], rng.randrange(3)):
        schema[key] = bound


def text(schema):
    bounds(schema, "minLength", "maxLength")
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
    bounds(schema, "minItems", "maxItems")
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
    bounds(schema, "minProperties", "maxProperties")
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


def part(is_object, depth):
    """A schema for an object's members or an array's items, with nested conditions."""
    schema = {}
    if is_object:
        if rng.random() < 0.8:
            schema["properties"] = {name: rng.choice([True, {"type": "integer"}, {"const": 1}]) for name in rng.sample(NAMES, rng.randrange(1, 3))}
        if rng.random() < 0.3:
            schema["required"] = rng.sample(NAMES, 1)
        if rng.random() < 0.15:
            schema["patternProperties"] = {rng.choice(PATTERNS): rng.choice([True, {"type": "integer"}])}
        if rng.random() < 0.05:
            schema["additionalProperties"] = {"type": "integer"}
    else:
        if rng.random() < 0.7:
            schema["prefixItems"] = [rng.choice([True, {"type": "integer"}, {"const": 1}]) for _ in range(rng.randrange(1, 3))]
        if rng.random() < 0.1:
            schema["contains"] = {"type": rng.choice(["string", "integer"])}
        if rng.random() < 0.05:
            schema["items"] = {"type": "integer"}
        if rng.random() < 0.2:
            schema["minItems"] = rng.randrange(3)
    if depth > 0:
        conditions(schema, is_object, depth)
    return schema


def conditions(schema, is_object, depth):
    for key in rng.sample(["anyOf", "oneOf", "allOf", "if", "not", "$ref", "dependentSchemas"], rng.randrange(1, 3)):
        if key in ("anyOf", "oneOf", "allOf"):
            schema[key] = [part(is_object, depth - 1) for _ in range(rng.randrange(1, 4))]
        elif key == "if":
            schema.update({"if": part(is_object, depth - 1), "then": part(is_object, depth - 1)})
            if rng.random() < 0.6:
                schema["else"] = part(is_object, depth - 1)
        elif key == "not":
            schema["not"] = part(is_object, 0)
        elif key == "$ref":
            schema["$ref"] = "#/$defs/" + rng.choice("xy")
        elif is_object:
            schema["dependentSchemas"] = {rng.choice(NAMES): part(True, depth - 1)}


def conditional():
    """A schema with unevaluatedProperties or unevaluatedItems, and conditions at the same level."""
    is_object = rng.random() < 0.6
    schema = part(is_object, 2)
    schema["type"] = "object" if is_object else "array"
    schema["unevaluatedProperties" if is_object else "unevaluatedItems"] = rng.choice([False, False, {"type": "string"}])
    schema["$defs"] = {"x": part(is_object, 0), "y": part(is_object, 1) | {"$ref": "#/$defs/x"}}
    return schema


def conditional_value(schema):
    small = lambda: rng.choice([1, 1, 2, "a", None])
    if schema["type"] == "object":
        return {name: small() for name in rng.sample(NAMES, rng.randrange(5))}
    return [small() for _ in range(rng.randrange(5))]


# Trees whose node schema depends on the outermost schema ($dynamicRef), and cases written by hand.
BASE = {"$id": "http://t/tree", "$dynamicAnchor": "node", "type": "object", "properties": {"v": True, "kids": {"type": "array", "items": {"$dynamicRef": "#node"}}}}
STRICT = {"$id": "http://t/strict", "$dynamicAnchor": "node", "$ref": "tree", "unevaluatedProperties": False, "$defs": {"tree": BASE}}
BOUND = {"$id": "http://t/root", "$ref": "list", "$defs": {
    "elements": {"$dynamicAnchor": "T", "type": "integer"},
    "list": {"$id": "list", "type": "array", "items": {"$dynamicRef": "#T"}, "$defs": {"any": {"$dynamicAnchor": "T", "type": "string"}}}}}
TREES = [{}, {"v": 1}, {"w": 1}, {"kids": [{"v": 1}]}, {"kids": [{"w": 1}]}, {"kids": [{"kids": [{"w": 1}]}]}, {"kids": [1]}, {"kids": []}]
LISTS = [[], [1], ["a"], [1, "a"], ["a", "b"], [1, 2], [None], {}]
BY_HAND = [(BASE, TREES), (STRICT, TREES), (BOUND, LISTS), (BOUND["$defs"]["list"] | {"$id": "http://t/list"}, LISTS),
           ({"anyOf": [{"$ref": "http://t/strict"}, {"$ref": "http://t/tree"}], "$defs": {"s": STRICT}}, TREES),
           ({"properties": {"a": {"$ref": "http://t/strict"}, "b": {"$ref": "http://t/tree"}}, "$defs": {"s": STRICT}},
            [{key: tree} for key in "ab" for tree in TREES[:6]])]


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


def write(out, schema, values):
    validator = jsonschema.Draft202012Validator(schema)
    tests = {json.dumps(data, ensure_ascii=False): validator.is_valid(data) for data in values}
    golden = {"schema": json.dumps(schema, ensure_ascii=False), "tests": list(tests.items())}
    out.write(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    with open(sys.argv[1], "w") as out:
        for _ in range(N_SCHEMAS):
            schema = any_schema(3)
            write(out, schema if isinstance(schema, dict) else {"allOf": [schema]}, [near(schema) for _ in range(N_VALUES)])
        for _ in range(N_CONDITIONAL):
            schema = conditional()
            write(out, schema, [conditional_value(schema) for _ in range(N_VALUES)])
        for schema, values in BY_HAND:
            write(out, schema, values)


if __name__ == "__main__":
    main()
