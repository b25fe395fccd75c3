"""Callers and their tokens, from a TOML file that holds only the tokens' SHA-256; a token is 32 random bytes.

    [chatbot]                       # the caller's name: in the log, in metrics, and what limits count by
    sha256 = "9f86d081…"            # or a list of them, while an old token is replaced by a new one
    turns_per_second = 200          # optional: this caller's own rate limit
    burst_turns = 400

``python -m serving.tokens NAME`` makes a token and prints it, and the lines for the file.
"""

import hashlib
import hmac
import re
import secrets
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    sha256: str | list[str]
    turns_per_second: float | None = Field(default=None, gt=0)
    burst_turns: int | None = Field(default=None, ge=1)


@dataclass(frozen=True)
class TokenHolder:
    """A caller of the file; None where the server's own limits hold."""

    name: str
    turns_per_second: float | None
    burst_turns: int | None


class Tokens:
    """The callers of one reading of the file."""

    def __init__(self, holders: dict[bytes, TokenHolder]) -> None:
        self._holders = holders

    def holder_of(self, token: str) -> TokenHolder | None:
        """Takes as long for one token as for another, whether it is known or not."""
        # A call without a token presents nothing, whose digest read_tokens accepts for nobody.
        presented = hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
        found = None
        for digest, holder in self._holders.items():
            if hmac.compare_digest(digest, presented):
                found = holder
        return found


def read_tokens(path: Path) -> Tokens:
    """Raises OSError or ValueError; says where the fault is and never what stands there."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: expected TOML, found something else: {type(error).__name__}") from None
    try:
        entries = TypeAdapter(dict[str, _Entry]).validate_python(table)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        raise ValueError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if not entries:
        raise ValueError(f"{path}: expected at least one caller, found none")
    holders: dict[bytes, TokenHolder] = {}
    for name, entry in entries.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: {name!r}: expected a name of letters, digits, _, . and -, found another")
        for digest in [entry.sha256] if isinstance(entry.sha256, str) else entry.sha256:
            holders[_digest(digest, f"{path}: {name}")] = TokenHolder(name, entry.turns_per_second, entry.burst_turns)
    return Tokens(holders)


def _digest(text: str, where: str) -> bytes:
    if not re.fullmatch(r"[0-9a-fA-F]{64}", text):
        raise ValueError(f"{where}.sha256: expected 64 hexadecimal digits, found {len(text)} other characters")
    digest = bytes.fromhex(text)
    if digest == hashlib.sha256(b"").digest():
        raise ValueError(f"{where}.sha256: expected the SHA-256 of a token, found that of nothing")
    return digest


if __name__ == "__main__":
    if len(sys.argv) != 2 or not _NAME.fullmatch(sys.argv[1]):
        sys.exit("expected one name of letters, digits, _, . and -, of at most 64 characters")
    made = secrets.token_urlsafe(32)
    print(f"token, for the caller alone: {made}", file=sys.stderr)
    print(f'["{sys.argv[1]}"]\nsha256 = "{hashlib.sha256(made.encode()).hexdigest()}"')
