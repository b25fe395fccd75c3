"""Which of the model's rewrites are given, and of which the utterance comes back instead."""

from rewriter.config import Calibration
from rewriter.conversation import Conversation, Origin, Rewrite

# What a reference leaves out, it replaces: "前面那个地方几月份去好" becomes "三亚几月份去好". The longest such
# stretches have seven characters, but for one in 48,000. Where more is gone, the model has lost its way in a long turn.
_MOST_REPLACED = 7


def why_withheld(conversation: Conversation, rewrite: Rewrite, calibration: Calibration) -> str:
    """Says why a rewrite is not to be trusted; "" if it is, as every answer that changes nothing."""
    if rewrite.text == conversation.utterance:
        return ""
    if rewrite.confidence < calibration.min_confidence:
        return f"confidence {rewrite.confidence:.3f} < {calibration.min_confidence:.2f}"
    lost = _longest_lost(conversation.utterance, rewrite)
    if len(lost) > _MOST_REPLACED:
        return f"without {lost!r} of the utterance"
    return ""


def _longest_lost(utterance: str, rewrite: Rewrite) -> str:
    """The longest stretch of the utterance that the rewrite leaves out, without white space."""
    kept = [False] * len(utterance)
    copied: set[str] = set()
    for span in rewrite.spans:
        if span.origin is Origin.UTTERANCE:
            kept[span.source_start : span.source_end] = [True] * (span.source_end - span.source_start)
        else:
            copied.update(rewrite.text[span.start : span.end].casefold())
    lost = longest = ""
    for character, is_kept in zip(utterance, kept, strict=True):
        # What was said before too may have been copied from there, along with what it restores.
        lost = "" if is_kept or character.casefold() in copied else lost + character.strip()
        longest = max(longest, lost, key=len)
    return longest
