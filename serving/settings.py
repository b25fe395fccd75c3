"""Where settings come from: a TOML file, then the environment, then flags; the later wins. Nothing unknown passes."""

import contextlib
import difflib
import json
import os
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource
from pydantic_settings.exceptions import SettingsError as UnreadableVariable

from serving.config import ENVIRONMENT_PREFIX, GROUP_DELIMITER, ServerSettings
from serving.settings_keys import Key, groups, keys

CONFIG_VARIABLE = "REWRITER_CONFIG"


class SettingsError(ValueError):
    """Everything that is wrong with the settings, one problem a line."""


@dataclass(frozen=True)
class Loaded:
    """``origins`` says where each key that was given came from, as its user would name the place."""

    settings: ServerSettings
    origins: Mapping[str, str]


@dataclass(frozen=True)
class _Given:
    path: str
    value: Any
    origin: str


def load(flags: Mapping[str, Any], config_file: Path | None = None) -> Loaded:
    """Reads the file, the environment and the flags (values by the path of their key). Raises SettingsError."""
    known = keys()
    given = [*_from_file(config_file), *_from_environment(known), *_from_flags(flags, known)]
    names = {path: path for path in (*known, *groups())}
    unknown = [_unknown(each.origin, each.path, names) for each in given if each.path not in known]
    unknown += _unknown_variables(known)
    if unknown:
        raise SettingsError("\n".join(unknown))
    values = {each.path: each.value for each in given}
    origins = {each.path: each.origin for each in given}
    try:
        return Loaded(ServerSettings(**_nested(values)), origins)
    except ValidationError as error:
        raise SettingsError("\n".join(_problems(error, known, values, origins))) from None


def parse_flags(assignments: Iterable[str]) -> dict[str, str]:
    """``KEY=VALUE`` as on the command line. Raises SettingsError."""
    flags = {}
    for assignment in assignments:
        path, equals, value = assignment.partition("=")
        if not equals:
            raise SettingsError(f"--set: expected KEY=VALUE, found {assignment!r}")
        flags[path.strip()] = value
    return flags


def _from_file(path: Path | None) -> Iterator[_Given]:
    if path is None:
        return
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise SettingsError(f"{path}: expected TOML, found something else: {error}") from None
    for key, value in _flat(table):
        yield _Given(key, value, f"{path}: {key}")


def _from_environment(known: Mapping[str, Key]) -> Iterator[_Given]:
    """Unknown names are for _unknown_variables: pydantic-settings passes over some of them."""
    try:
        found = EnvSettingsSource(ServerSettings)()
    except UnreadableVariable:
        raise SettingsError("\n".join([*_not_json(known), *_unknown_variables(known)])) from None
    for path, value in _flat(found):
        if path in known:
            yield _Given(path, value, known[path].variable)


def _not_json(known: Mapping[str, Key]) -> Iterator[str]:
    """pydantic-settings names the group of a variable that it cannot read, and not the variable."""
    structured = {key.variable: key.expected for key in known.values() if key.structured}
    for name, value in os.environ.items():
        if value and (expected := structured.get(name.upper())):
            try:
                json.loads(value)
            except ValueError:
                yield f"{name}: expected {expected} as JSON, found {value!r}"


def _from_flags(flags: Mapping[str, Any], known: Mapping[str, Key]) -> Iterator[_Given]:
    for path, value in flags.items():
        if isinstance(value, str) and path in known and known[path].structured:
            # What is no JSON stays a string, and is refused as one.
            with contextlib.suppress(ValueError):
                value = json.loads(value)
        yield _Given(path, value, f"flag {path}")


def _unknown_variables(known: Mapping[str, Key]) -> Iterator[str]:
    variables = {key.variable for key in known.values()}
    for name, value in os.environ.items():
        upper = name.upper()
        is_known = upper in variables or upper == CONFIG_VARIABLE
        if not upper.startswith(ENVIRONMENT_PREFIX):
            continue
        if value.startswith(("tcp://", "udp://")) or (not is_known and _is_service_link(upper)):
            yield f"{name}: expected a setting, found a service link of Kubernetes: set enableServiceLinks: false"
        elif not is_known:
            path = upper.removeprefix(ENVIRONMENT_PREFIX).replace(GROUP_DELIMITER, ".").lower()
            yield _unknown(name, path, {path: key.variable for path, key in known.items()})


def _is_service_link(name: str) -> bool:
    """Kubernetes describes a Service called "rewriter" to every pod of its namespace, in variables like ours."""
    return any(part in name for part in ("_SERVICE_", "_TCP", "_UDP"))


def _unknown(origin: str, path: str, names: Mapping[str, str]) -> str:
    """``names`` says by what name a user would have meant a path."""
    closest = difflib.get_close_matches(path, names, n=1)
    hint = f"; did you mean {names[closest[0]]}?" if closest else ""
    return f"{origin}: expected a known setting, found an unknown one{hint}"


def _problems(
    error: ValidationError, known: Mapping[str, Key], values: Mapping[str, Any], origins: Mapping[str, str]
) -> Iterator[str]:
    for problem in error.errors(include_url=False):
        path = next((path for path in _prefixes(problem["loc"]) if path in known), None)
        if path is None:
            where = ".".join(map(str, problem["loc"])) or "settings"
            yield f"{where}: {_message(problem)}"
            continue
        origin = origins.get(path, path)
        if problem["type"] == "missing":
            yield f"{path}: expected {known[path].expected}, found none; it is also {known[path].variable}"
        elif problem["type"] == "value_error":
            yield f"{origin}: {_message(problem)}"
        else:
            found = "a value that is not shown" if known[path].secret else repr(values.get(path))
            yield f"{origin}: expected {known[path].expected}, found {found}"


def _prefixes(location: tuple[Any, ...]) -> Iterator[str]:
    """Paths from the most exact to the broadest: pydantic points into lists and tables too."""
    for end in range(len(location), 0, -1):
        yield ".".join(map(str, location[:end]))


def _message(problem: Mapping[str, Any]) -> str:
    error = problem.get("ctx", {}).get("error")
    return str(error or problem["msg"])


def _flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Values by their paths. Tables are followed only where the tree has a group."""
    known_groups = set(groups())
    for name, value in table.items():
        path = prefix + name
        if path in known_groups and isinstance(value, Mapping):
            yield from _flat(value, f"{path}.")
        else:
            yield path, value


def _nested(values: Mapping[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *parents, name = path.split(".")
        table = tree
        for parent in parents:
            table = table.setdefault(parent, {})
        table[name] = value
    return tree
