"""The settings tree as a flat list of keys, each with its variable and what it expects, in words."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from serving.config import ENVIRONMENT_PREFIX, GROUP_DELIMITER, ServerSettings

_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list",
    "object": "a table",
}


@dataclass(frozen=True)
class Key:
    """``path`` is its name in the file and on the command line; ``default`` is None if it has none or is None."""

    path: str
    expected: str
    description: str
    required: bool
    default: Any
    secret: bool
    structured: bool  # a list or a table, which is JSON in a variable

    @property
    def group(self) -> str:
        return self.path.rpartition(".")[0]

    @property
    def variable(self) -> str:
        return ENVIRONMENT_PREFIX + self.path.replace(".", GROUP_DELIMITER).upper()


def keys() -> dict[str, Key]:
    """Every key by its path, in the order of the tree."""
    schema = ServerSettings.model_json_schema()
    return {key.path: key for key in _keys(ServerSettings, schema, schema, "")}


def value_at(settings: Any, path: str) -> Any:
    value = settings
    for name in path.split("."):
        value = getattr(value, name)
    return value


def groups(model: type[BaseModel] = ServerSettings, prefix: str = "") -> Iterator[str]:
    """The paths that hold keys and are none."""
    for name, field in model.model_fields.items():
        if group := _as_group(field.annotation):
            yield prefix + name
            yield from groups(group, f"{prefix}{name}.")


def _keys(model: type[BaseModel], schema: Mapping[str, Any], root: Mapping[str, Any], prefix: str) -> Iterator[Key]:
    required = schema.get("required", [])
    for name, field in model.model_fields.items():
        found = schema["properties"][name]
        if group := _as_group(field.annotation):
            yield from _keys(group, _resolved(found, root), root, f"{prefix}{name}.")
            continue
        expected = _resolved(_not_null(found), root)
        yield Key(
            path=prefix + name,
            expected=_in_words(expected),
            description=field.description or "",
            required=name in required,
            default=found.get("default"),
            secret=expected.get("format") == "password",
            structured=expected.get("type") in ("array", "object"),
        )


def _as_group(annotation: Any) -> type[BaseModel] | None:
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def _not_null(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """The schema of an optional value, without the None; what only describes it stays."""
    kinds = [kind for kind in schema.get("anyOf", ()) if kind.get("type") != "null"]
    return kinds[0] if len(kinds) == 1 else schema


def _resolved(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    reference = schema.get("$ref")
    return root["$defs"][reference.rpartition("/")[2]] if reference else schema


def _in_words(schema: Mapping[str, Any]) -> str:
    if "enum" in schema:
        return "one of " + ", ".join(map(str, schema["enum"]))
    if schema.get("format") in ("path", "file-path", "directory-path"):
        return "a path"
    words = _WORDS.get(schema.get("type", ""), "a value")
    least, most = schema.get("minimum"), schema.get("maximum")
    if least is not None and most is not None:
        return f"{words} from {least:g} to {most:g}"
    if least is not None:
        return f"{words}, at least {least:g}"
    if most is not None:
        return f"{words}, at most {most:g}"
    if "exclusiveMinimum" in schema:
        return f"{words} above {schema['exclusiveMinimum']:g}"
    return words
