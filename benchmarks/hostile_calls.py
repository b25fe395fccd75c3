"""Calls that a careless or malicious caller may make, and good ones between them; the same seed makes the same calls.

A call is bytes, so that it may be no message at all. Its kind says what is odd about it, never what the server should
answer: ``hostile_judge`` works that out from the bytes.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from rewriter.samples import conversations
from serving.pb import rewriter_pb2 as pb

PATIENCE_SECONDS = 60.0
# In every Latin text and in nothing that a server has to say.
MARK = "zqxjv"

_GOOD = [conversation for conversation in conversations() if conversation.history]
_MANY_PIECES = 120

# What hostile texts are made of, by the name of their kind.
_PIECES: dict[str, list[str]] = {
    "control characters": list(map(chr, [*range(32), *range(0x7F, 0xA0)])),
    "white space": list(" \t\r\n\v\f\xa0\u2003\u2028\u2029\u3000"),
    "zero width": list("\u200b\u200c\u200d\u2060\ufeff\u00ad"),
    "bidirectional": [*map(chr, [*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200F]), "שלום", "سلام"],
    "combining marks": list(map(chr, [*range(0x300, 0x340), 0x20DD, 0x20E3, 0x3099, 0xFE0F, 0xE0100])),
    "emoji": ["👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇨🇳", "🇨", "❤️", "1️⃣", "🧑🏿‍🚀", "\U000e0067"],
    "astral": ["𠮷", "𪚥", "𝕏", "😀", "\U000f0000", "\U0010ffff", "\U0001fffe", "\U0003134a"],
    "expanding": list("ﷺ½㎏㍿Ⅷİßﬃ㈱ŉ"),
    "unassigned": ["\ufffe", "\uffff", "\ufffd", "\ue000", "\u0378", "\ud7ff"],
    "latin word": [MARK],
    "repeated character": ["哈"],
    "punctuation": list("?!。，、；：“”‘’()（）[]{}<>/\\|&%$#@^~`'\"*+=-_"),
    "sentences": [turn for conversation in _GOOD for turn in (*conversation.history, conversation.utterance)],
}


@dataclass(frozen=True)
class Call:
    """``messages`` go over the wire as they are: one, or any number on a stream."""

    kind: str
    method: str
    messages: tuple[bytes, ...]
    timeout_seconds: float = PATIENCE_SECONDS
    cancel_after_seconds: float | None = None
    compressed: bool = False
    left_open: bool = False  # a stream whose caller never says that it is done

    @property
    def on_stream(self) -> bool:
        return self.method == "StreamRewrite"

    @property
    def impatient(self) -> bool:
        """True if the caller may leave before the answer."""
        return self.timeout_seconds < PATIENCE_SECONDS or self.cancel_after_seconds is not None


def hostile_calls(count: int, seed: int, info: pb.GetModelInfoResponse) -> Iterator[Call]:
    """Every kind in turn, in an order of chance, each third call a good one. ``info`` holds the limits to go beyond."""
    rng = random.Random(seed)
    makers = {kind: _carried(request) for kind, request in _requests(info).items()} | _wires(info)
    waiting: list[str] = []
    for index in range(count):
        if index % 3 == 2:
            yield replace(_carried(_good)(rng), kind="good")
            continue
        if not waiting:
            waiting = rng.sample(list(makers), len(makers))
        kind = waiting.pop()
        yield replace(makers[kind](rng), kind=kind)


_RequestMaker = Callable[[random.Random], pb.RewriteRequest]
_CallMaker = Callable[[random.Random], Call]


def _good(rng: random.Random) -> pb.RewriteRequest:
    conversation = rng.choice(_GOOD)
    return pb.RewriteRequest(
        history=conversation.history,
        utterance=conversation.utterance,
        max_alternatives=rng.choice([0, 0, 0, 3]),
        failure_mode=rng.choice([pb.FAILURE_MODE_UNSPECIFIED, pb.FAILURE_MODE_PASSTHROUGH, pb.FAILURE_MODE_ERROR]),
        request_id=f"r-{rng.getrandbits(64):x}",
    )


def _requests(info: pb.GetModelInfoResponse) -> dict[str, _RequestMaker]:
    """Messages of the contract whose fields are odd, or beyond a limit."""

    def text(kind: str) -> _RequestMaker:
        return lambda rng: _with_text(rng, lambda most: _text(rng, kind, most), info)

    def field(**choices: list[Any]) -> _RequestMaker:
        return lambda rng: _changed(_good(rng), **{name: rng.choice(values) for name, values in choices.items()})

    longest, turns = info.max_utterance_characters, info.max_history_turns
    sizes = [longest, longest + 1, 10 * longest, 100 * longest]
    return {
        **{f"text of {kind}": text(kind) for kind in _PIECES},
        "text of everything": lambda rng: _with_text(rng, lambda most: _text(rng, rng.choice([*_PIECES]), most), info),
        "empty utterance": field(utterance=[""]),
        "empty turns": field(history=[[""], ["", " ", "\u200b"], [""] * turns]),
        "huge utterance": field(utterance=["明" * size for size in sizes] + [MARK * size for size in sizes[:3]]),
        "many words": field(utterance=["我" + "的天气" * (longest // 4), "a " * (longest // 2)]),
        "huge turns": lambda rng: _changed(_good(rng), history=_huge_turns(rng, info)),
        "many turns": lambda rng: _changed(
            _good(rng), history=["嗯"] * rng.choice([turns, turns + 1, 5000, 40 * turns + 1])
        ),
        "wrong number of alternatives": field(
            max_alternatives=[-1, -(2**31), 2**31 - 1, info.max_alternatives, info.max_alternatives + 1]
        ),
        "unknown failure mode": field(failure_mode=[3, 77, -1, 2**31 - 1]),
        "large request id": field(request_id=["长" * 128, "长" * 129, MARK * 9999, "\n2026 ERROR", '"}\x00\x1b[2J']),
        "everything wrong": field(
            history=[["长" * (info.max_turn_characters + 1)] * (turns // 40)],
            utterance=[""],
            max_alternatives=[-1],
            failure_mode=[9],
            request_id=[MARK * 99],
        ),
    }


def _wires(info: pb.GetModelInfoResponse) -> dict[str, _CallMaker]:
    """Odd bytes, sizes, streams and manners."""
    good = _carried(_good)

    def sent(make: Callable[[random.Random], bytes]) -> _CallMaker:
        return lambda rng: _raw(rng, make(rng))

    def mutated(rng: random.Random) -> bytes:
        return _mutated(rng, _good(rng).SerializeToString())

    return {
        "random bytes": sent(lambda rng: rng.randbytes(rng.choice([1, 2, 3, 5, 9, 2000]))),
        "mutated message": sent(mutated),
        "truncated message": sent(lambda rng: _good(rng).SerializeToString()[: rng.randrange(1, 40)]),
        "not UTF-8": sent(lambda rng: _good(rng).SerializeToString() + _field(rng.choice([1, 2, 5]), _not_utf8(rng))),
        "wrong wire type": sent(lambda rng: bytes([rng.choice([1, 2, 5]) << 3, 1]) + _good(rng).SerializeToString()),
        "unknown fields": sent(
            lambda rng: _good(rng).SerializeToString() + _field(rng.randrange(100, 2**28), rng.randbytes(300))
        ),
        "deep groups": sent(lambda rng: b"\x7b" * (depth := rng.choice([50, 101, 50_000])) + b"\x7c" * depth),
        "deep fields": sent(lambda rng: _nested(rng.choice([5, 200, 2000]))),
        "repeated fields": sent(lambda rng: _good(rng).SerializeToString() * rng.randrange(2, 30)),
        "no bytes": sent(lambda rng: b""),
        "message beyond the limit": lambda rng: _beyond_limit(rng, info),
        "compressed bomb": lambda rng: replace(_beyond_limit(rng, info), compressed=True),
        "compressed": lambda rng: replace(good(rng), compressed=True),
        "empty batch": lambda rng: Call("", "BatchRewrite", (b"",)),
        "batch beyond the limit": lambda rng: _batch([_good(rng)] * rng.choice([info.max_batch_items + 1, 999])),
        "full batch": lambda rng: _batch([_good(rng) for _ in range(info.max_batch_items)]),
        "empty stream": lambda rng: _stream([]),
        "long stream": lambda rng: _stream([_good(rng) for _ in range(rng.randrange(40, 120))]),
        "one name for all": lambda rng: _stream([_same_name(_good(rng)) for _ in range(9)]),
        "noise on a stream": lambda rng: _noisy(rng, _stream([_good(rng) for _ in range(9)])),
        "stream left open": lambda rng: replace(_stream([_good(rng)] * 3), left_open=True, timeout_seconds=0.2),
        "cancelled": lambda rng: replace(
            rng.choice([good, lambda rng: _stream([_good(rng) for _ in range(60)])])(rng),
            cancel_after_seconds=rng.choice([0.0, 0.001, 0.01]),
        ),
        "no time": lambda rng: replace(good(rng), timeout_seconds=rng.choice([0.0, 0.0001, 0.001])),
        "little time": lambda rng: replace(good(rng), timeout_seconds=rng.choice([0.005, 0.021, 0.05])),
        "unknown method": lambda rng: Call("", rng.choice(["Rewrit", "rewrite", "", "Rewrite/x", MARK]), (b"",)),
        "model information": lambda rng: Call("", "GetModelInfo", (rng.choice([b"", _field(7, MARK.encode())]),)),
        "broken model information": lambda rng: Call("", "GetModelInfo", (b"\xff\xff\xff",)),
    }


def _carried(make: _RequestMaker) -> _CallMaker:
    """The request alone, or among good ones in a batch or on a stream."""

    def carry(rng: random.Random) -> Call:
        among = [make(rng) if index == 1 else _good(rng) for index in range(4)]
        return rng.choice([_alone, _alone, _batch, _stream])(among if rng.random() < 0.9 else among[1:2])

    return carry


def _alone(requests: list[pb.RewriteRequest]) -> Call:
    return Call("", "Rewrite", (requests[min(1, len(requests) - 1)].SerializeToString(),))


def _batch(requests: list[pb.RewriteRequest]) -> Call:
    return Call("", "BatchRewrite", (pb.BatchRewriteRequest(requests=requests).SerializeToString(),))


def _stream(requests: list[pb.RewriteRequest]) -> Call:
    return Call("", "StreamRewrite", tuple(_field(1, request.SerializeToString()) for request in requests))


def _raw(rng: random.Random, message: bytes) -> Call:
    """Bytes where a RewriteRequest should be, or where a batch or stream should hold one."""
    method = rng.choice(["Rewrite", "Rewrite", "BatchRewrite", "StreamRewrite"])
    return Call("", method, (message if method == "Rewrite" else _field(1, message),))


def _noisy(rng: random.Random, stream: Call) -> Call:
    messages = list(stream.messages)
    messages.insert(rng.randrange(len(messages) + 1), rng.randbytes(rng.randrange(1, 99)))
    return replace(stream, messages=tuple(messages))


def _beyond_limit(rng: random.Random, info: pb.GetModelInfoResponse) -> Call:
    size = info.max_message_bytes + rng.choice([1, 1000, 2**20, 2**22])
    return Call("", rng.choice(["Rewrite", "BatchRewrite", "StreamRewrite"]), (_field(1, b"z" * size),))


def _with_text(rng: random.Random, text: Callable[[int], str], info: pb.GetModelInfoResponse) -> pb.RewriteRequest:
    request = _changed(_good(rng), max_alternatives=rng.choice([0, 0, 1, info.max_alternatives]))
    if rng.random() < 0.7:
        request.utterance = text(rng.choice([10, 60, info.max_utterance_characters]))
    if rng.random() < 0.7:
        most = [20, 200, info.max_turn_characters]
        request.history[:] = [text(rng.choice(most)) for _ in range(rng.randrange(1, 12))]
    return request


def _text(rng: random.Random, kind: str, most: int) -> str:
    """Pieces of one kind, often with ordinary words around and between them; never empty, at most ``most`` long."""
    pieces = rng.choices(_PIECES[kind], k=rng.randrange(1, min(most, _MANY_PIECES) + 1))
    if kind in ("latin word", "repeated character"):
        pieces *= most
    seam = rng.choice(["", "", "的", "今天 "])
    return (rng.choice(["", "西安"]) + seam.join(pieces))[:most]


def _huge_turns(rng: random.Random, info: pb.GetModelInfoResponse) -> list[str]:
    sizes = [info.max_turn_characters, info.max_turn_characters + 1, 20 * info.max_turn_characters]
    return [rng.choice(["长", "a", "𠮷"]) * rng.choice(sizes) for _ in range(rng.randrange(1, 4))]


def _changed(request: pb.RewriteRequest, **fields: Any) -> pb.RewriteRequest:
    for name in fields:
        request.ClearField(name)
    request.MergeFrom(pb.RewriteRequest(**fields))
    return request


def _same_name(request: pb.RewriteRequest) -> pb.RewriteRequest:
    """Alike in all but the conversation, so that the answers can be told apart."""
    return pb.RewriteRequest(history=request.history, utterance=request.utterance, request_id="r")


def _mutated(rng: random.Random, message: bytes) -> bytes:
    changed = bytearray(message)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        place = rng.randrange(len(changed))
        match rng.randrange(3):
            case 0:
                changed[place] = rng.randrange(256)
            case 1:
                changed[place:place] = rng.randbytes(rng.randrange(1, 5))
            case _:
                del changed[place : place + rng.randrange(1, 3)]
                changed += b"\x00" * (not changed)
    return bytes(changed)


def _not_utf8(rng: random.Random) -> bytes:
    return rng.choice([b"\xff\xfe", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf4\x90\x80\x80", "西安".encode("gb18030")])


def _field(number: int, content: bytes) -> bytes:
    """A length-delimited field as it is on the wire."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _nested(depth: int) -> bytes:
    message = b""
    for _ in range(depth):
        message = _field(1, message)
    return message


def _varint(number: int) -> bytes:
    pieces = bytearray()
    while number > 127:
        pieces.append(number & 127 | 128)
        number >>= 7
    pieces.append(number)
    return bytes(pieces)
