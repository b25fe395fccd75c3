from pathlib import Path

from serving.generate import GENERATED, REPOSITORY, generate
from serving.pb import rewriter_pb2 as pb


def test_the_committed_stubs_are_what_the_contract_generates(tmp_path: Path) -> None:
    generate(tmp_path)
    for name in GENERATED:
        fresh, committed = (root / "serving/pb" / name for root in (tmp_path, REPOSITORY))
        assert committed.read_text(encoding="utf-8") == fresh.read_text(encoding="utf-8"), "stale"


def test_every_enum_starts_with_an_unspecified_value_and_prefixes_all() -> None:
    for enum in pb.DESCRIPTOR.enum_types_by_name.values():
        prefix = "".join(f"_{c}" if c.isupper() else c.upper() for c in enum.name).lstrip("_") + "_"
        assert enum.values[0].name == prefix + "UNSPECIFIED"
        assert all(value.name.startswith(prefix) for value in enum.values)


def test_everything_in_the_contract_has_a_comment() -> None:
    lines = (REPOSITORY / "proto/rewriter/v1/rewriter.proto").read_text(encoding="utf-8").splitlines()
    declarations = [
        (number, line.strip())
        for number, line in enumerate(lines)
        if line.rstrip().endswith((";", "{", "{}")) and not line.startswith(("syntax", "package"))
    ]
    bare = [line for number, line in declarations if not lines[number - 1].strip().startswith("//")]
    assert len(declarations) > 50
    assert bare == []
