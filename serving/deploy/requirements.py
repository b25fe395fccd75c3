"""Prints what the front has to have installed, one requirement a line: ``python requirements.py EXTRAS [WITHOUT]``.

Both are names after commas; EXTRAS are those of setup.cfg, WITHOUT are packages to leave out. An image that installs
this before it copies the code is built anew in seconds when only the code has changed.
"""

import re
import sys
from collections.abc import Iterable
from configparser import ConfigParser


def requirements(setup_cfg: str, extras: Iterable[str], without: Iterable[str] = ()) -> list[str]:
    """Raises ValueError for an extra or a package that is not there."""
    setup = ConfigParser()
    setup.read_string(setup_cfg)
    found = _lines(setup["options"]["install_requires"])
    for extra in extras:
        if extra not in setup["options.extras_require"]:
            raise ValueError(f"expected one of {list(setup['options.extras_require'])}, found {extra!r}")
        found += _lines(setup["options.extras_require"][extra])
    left_out = set(without)
    if unknown := left_out - set(map(_name, found)):
        raise ValueError(f"expected a package that would be installed, found {sorted(unknown)}")
    return [requirement for requirement in dict.fromkeys(found) if _name(requirement) not in left_out]


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip()]


def _name(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9._-]", requirement)[0].lower()


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


if __name__ == "__main__":
    with open("setup.cfg", encoding="utf-8") as file:
        print("\n".join(requirements(file.read(), *map(_names, sys.argv[1:]))))
