"""What callers may give for a schema or a tool: JSON, a dict, a Pydantic class, for tools a function; as JSON texts."""
from __future__ import annotations

import inspect
import json
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Type, Union, get_type_hints

from ._library import InvalidError

Schema = Union[str, Mapping[str, Any], Type[Any]]
Tool = Union[Mapping[str, Any], Type[Any], Callable[..., Any]]


def schema_text(schema: Optional[Schema]) -> Optional[str]:
    if schema is None or isinstance(schema, str):
        return schema
    if isinstance(schema, Mapping):
        return json.dumps(schema)
    if hasattr(schema, "model_json_schema"):
        return json.dumps(schema.model_json_schema())
    raise InvalidError(f"schema is {schema!r}: give a dict, JSON or a Pydantic class")


def parse(schema: Schema, text: str) -> Any:
    """The value that `text`, which follows the schema, stands for: of the Pydantic class where there is one."""
    validate = getattr(schema, "model_validate_json", None)
    return validate(text) if validate else json.loads(text)


def _arguments_schema(function: Callable[..., Any]) -> Dict[str, Any]:
    """The JSON Schema of a function's arguments, from its type hints."""
    try:
        import pydantic
    except ImportError:
        raise InvalidError("a function as a tool needs Pydantic: `pip install pydantic`, or give the tool as a dict") from None
    hints = get_type_hints(function)
    fields: Dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        default = ... if parameter.default is inspect.Parameter.empty else parameter.default
        fields[name] = (hints.get(name, Any), default)
    schema: Dict[str, Any] = pydantic.create_model(function.__name__, **fields).model_json_schema()
    return schema


def _tool(tool: Tool) -> Mapping[str, Any]:
    if isinstance(tool, Mapping):
        return tool
    if not callable(tool):
        raise InvalidError(f"a tool is {tool!r}: give a function, a Pydantic class or a dict")
    schema = tool.model_json_schema() if hasattr(tool, "model_json_schema") else _arguments_schema(tool)
    function = {"name": tool.__name__, "description": inspect.getdoc(tool) or "", "parameters": schema}
    return {"type": "function", "function": function}


def tools_text(tools: Optional[Sequence[Tool]]) -> Optional[str]:
    if not tools:
        return None
    listed: List[Mapping[str, Any]] = [_tool(tool) for tool in tools]
    return json.dumps(listed)
