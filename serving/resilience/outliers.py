"""Which of several addresses are out of line with the others: those that fail more, or are much slower."""

from collections.abc import Mapping
from statistics import median

from serving.resilience.settings import OutlierSettings
from serving.resilience.windows import Totals


def find_outliers(totals: Mapping[str, Totals], settings: OutlierSettings, already_out: int = 0) -> dict[str, str]:
    """Returns the addresses to leave alone, worst first, with the reason.

    ``totals`` is of the addresses that are asked now; ``already_out`` others are left alone.
    """
    heard = {address: each for address, each in totals.items() if each.calls >= settings.min_turns}
    room = int((len(totals) + already_out) * settings.max_ejected_percent / 100) - already_out
    found = []
    for address, each in heard.items():
        others = [other for name, other in heard.items() if name != address]
        if others and (reason := _reason(each, others, settings)):
            found.append((each.failure_share, each.mean_seconds, address, reason))
    worst = sorted(found, reverse=True)[: max(0, room)]
    return {address: reason for _, _, address, reason in worst}


def _reason(totals: Totals, others: list[Totals], settings: OutlierSettings) -> str:
    usual_failures = median(other.failure_share for other in others)
    if (totals.failure_share - usual_failures) * 100 >= settings.failure_percent:
        return f"failed {totals.failure_share:.0%} of its calls, the others {usual_failures:.0%}"
    usual_seconds = median(other.mean_seconds for other in others)
    if usual_seconds and totals.mean_seconds >= settings.latency_factor * usual_seconds:
        return f"took {totals.mean_seconds:.3f} s, the others {usual_seconds:.3f} s"
    return ""
