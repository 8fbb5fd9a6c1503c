"""Makes the HTTP reference, docs/http.md, from src/server/web/openapi.json, which the server also serves."""
import json
import textwrap

WIDTH = 120
ADDRESS = "http://127.0.0.1:8080"
INTRO = ("Made from src/server/web/openapi.json by `make docs`; do not edit. A running server has the same at "
         "`/openapi.json`. [server.md](server.md) says how the server is run, and what it does where the APIs leave a choice.")


def wrapped(text, first="", rest=""):
    return "\n".join(textwrap.wrap(text, WIDTH, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False))


def last(ref):
    return ref.rsplit("/", 1)[1]


class Reference:
    def __init__(self, api):
        self.api = api
        self.schemas = api["components"]["schemas"]

    def type_of(self, schema):
        """In words: a link, "integer from 0 to 5", "array of strings"."""
        if "$ref" in schema:
            name = last(schema["$ref"])
            target = self.schemas[name]
            return self.type_of(target) if self.is_small(target) else f"[{name}](#{name.lower()})"
        for key in ("anyOf", "oneOf"):
            if key in schema:
                return " or ".join(dict.fromkeys(self.type_of(one) for one in schema[key]))
        types = schema.get("type", "anything")
        words = " or ".join(t for t in ([types] if isinstance(types, str) else types) if t != "null") or "null"
        if "const" in schema:
            words = f"`{json.dumps(schema['const'])}`"
        if "enum" in schema:
            words = ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"] if value is not None)
        if schema.get("items"):
            words = f"array of {self.type_of(schema['items'])}"
        low, high = (schema.get("minimum", schema.get("exclusiveMinimum")), schema.get("maximum", schema.get("exclusiveMaximum")))
        if low is not None or high is not None:
            words += (f" from {low}" if low is not None else "") + (f" to {high}" if high is not None else "")
        for key, text in (("minItems", "at least {}"), ("maxItems", "at most {}"), ("minLength", "at least {} characters"), ("maxLength", "at most {} characters")):
            if key in schema:
                words += ", " + text.format(schema[key])
        return words

    def is_small(self, schema):
        """Whether a schema is described where it is used instead of in its own section."""
        return not schema.get("properties") and not any("properties" in one for key in ("anyOf", "oneOf") for one in schema.get(key, []))

    def about(self, schema):
        target = self.schemas[last(schema["$ref"])] if "$ref" in schema else schema
        text = schema.get("description") or (target.get("description", "") if self.is_small(target) else "")
        return text + (f" Default: {json.dumps(schema['default'])}." if "default" in schema else "")

    def fields(self, schema, indent=""):
        required = set(schema.get("required", []))
        for name, field in schema.get("properties", {}).items():
            notes = ", required" if name in required else ""
            text = f"`{name}` ({self.type_of(field)}{notes})"
            about = self.about(field)
            yield wrapped(text + (f": {about}" if about else ""), indent + "- ", indent + "  ")
            inner = field.get("items", field)
            if "$ref" not in inner:
                yield from self.fields(inner, indent + "  ")

    def body(self, content):
        for kind, one in content.items():
            if kind in ("application/json", "multipart/form-data") and one.get("schema"):
                schema = one["schema"]
                yield f"[{last(schema['$ref'])}](#{last(schema['$ref']).lower()})" if "$ref" in schema else self.type_of(schema)
            elif kind == "text/plain":
                yield "or text"
            elif kind == "text/event-stream":
                yield "or server-sent events"

    def operation(self, method, path, operation):
        yield f"## {method.upper()} {path}\n"
        text = operation["summary"].rstrip(".") + "." if not operation["summary"].endswith("?") else operation["summary"]
        if operation.get("description"):
            text += " " + operation["description"]
        if operation.get("security") == []:
            text += " It needs no key."
        yield wrapped(text) + "\n"
        for parameter in operation.get("parameters", []):
            about = parameter.get("description", "")
            yield wrapped(f"`{parameter['name']}` (in the {parameter['in']}, {self.type_of(parameter['schema'])})" + (f": {about}" if about else ""), "- ", "  ")
        if "requestBody" in operation:
            yield wrapped("Body: " + ", ".join(self.body(operation["requestBody"]["content"])) + ".", "- ", "  ")
        answer = operation["responses"].get("200", {})
        kinds = ", ".join(self.body(answer.get("content", {})))
        yield wrapped(f"Answer: {answer.get('description', '')}" + (f" {kinds}." if kinds else ""), "- ", "  ") + "\n"
        yield self.curl(method, path, operation) + "\n"

    def curl(self, method, path, operation):
        """The operation as a command of curl, with the examples of its body and its parameters."""
        parameters = operation.get("parameters", [])
        for parameter in parameters:
            if parameter["in"] == "path":
                path = path.replace(f"{{{parameter['name']}}}", str(parameter["example"]))
        query = "&".join(f"{p['name']}={p['example']}" for p in parameters if p["in"] == "query" and "example" in p)
        address = ADDRESS + path + (f"?{query}" if query else "")
        given = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
        words = ["curl", *(["-X", method.upper()] if method == "delete" else []), f"'{address}'" if query else address]
        if "example" in given:
            words += ["-H", "'Content-Type: application/json'", "-d", "'" + json.dumps(given["example"]) + "'"]
        form = operation.get("requestBody", {}).get("content", {}).get("multipart/form-data", {})
        words += [f"-F {name}={value}" for name, value in form.get("example", {}).items()]
        return "    " + " ".join(words)

    def statuses(self):
        """The meaning of each status, over all operations."""
        found = {}
        for operations in self.api["paths"].values():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if status != "200":
                        one = self.api["components"]["responses"][last(response["$ref"])] if "$ref" in response else response
                        found.setdefault(status, {})[one["description"]] = None
        for status in sorted(found):
            yield wrapped(f"{status}: " + " ".join(found[status]), "- ", "  ")

    def markdown(self):
        yield f"# HTTP reference\n\n{wrapped(INTRO)}\n"
        for path, operations in self.api["paths"].items():
            for method, operation in operations.items():
                yield f"- [`{method.upper()} {path}`](#{method}-{''.join(c for c in path.lower() if c.isalnum() or c in '-_')}): {operation['summary']}"
        yield "\n" + wrapped("Keys: `Authorization: Bearer KEY` or `X-Api-Key: KEY`, where the server has keys. Errors are OpenAI's: "
                      "[Error](#error); those of `/v1/messages` are Anthropic's: [AnthropicError](#anthropicerror).") + "\n"
        for path, operations in self.api["paths"].items():
            for method, operation in operations.items():
                yield from self.operation(method, path, operation)
        yield "## Statuses\n"
        yield from self.statuses()
        yield "\n## Objects\n"
        for name, schema in self.schemas.items():
            if self.is_small(schema):
                continue
            yield f"### {name}\n"
            if schema.get("description"):
                yield wrapped(schema["description"]) + "\n"
            fields = list(self.fields(schema))
            fields += [line for key in ("anyOf", "oneOf") for one in schema.get(key, []) for line in self.fields(one)]
            yield "\n".join(fields) + "\n"


def markdown(path):
    return "\n".join(Reference(json.loads(path.read_text())).markdown()).rstrip("\n") + "\n"
