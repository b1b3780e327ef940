"""Recomputes a receipt's counts from what was asked: the design of the budgets, written again."""
import fractions

PAGE_SIZE = 16


def share(ratio, count):
    """floor(ratio * count), exactly; the ratio as it is written."""
    return int(fractions.Fraction(str(ratio)) * count)


def expect(*, n, layers, kv_heads, tsp_layer, head_dim, element_bytes, scale_bytes=0, window=8,
           sinks=4, rho=1, tau=1, rho_tokens=None, tau_tokens=None, kv_min_prompt=512,
           tsp_min_prompt=2048):
    """Counts of a prompt of `n` tokens; `window` includes the template's rows after the question.

    An int8 cache has element_bytes 1 and scale_bytes 8: a 4-byte scale of K and one of V."""
    must_keep = min(n, min(n, window) + min(n, sinks))
    kept = min(share(rho, n), n if rho_tokens is None else rho_tokens)
    rows = min(share(tau, n), n if tau_tokens is None else tau_tokens)
    evicts = kept < n and n >= kv_min_prompt
    propagates = rows < n and n >= tsp_min_prompt
    propagated = max(rows, must_keep) if propagates else n
    reached = [n if layer <= tsp_layer else propagated for layer in range(layers)]
    lengths = [min(slots, max(kept, must_keep)) if evicts else slots for slots in reached]
    entries, entries_full = kv_heads * sum(lengths), kv_heads * layers * n
    entry_bytes = 2 * head_dim * element_bytes + scale_bytes
    reasons = {
        "short_prompt": (kept < n and not evicts) or (rows < n and not propagates),
        "floor": (evicts and kept < must_keep) or (propagates and rows < must_keep)}
    return {
        "prompt_tokens": n, "propagated_tokens": propagated,
        "entries": entries, "entries_full": entries_full,
        "bytes": entries * entry_bytes, "bytes_full": entries_full * entry_bytes,
        "pages": kv_heads * sum(-(-length // PAGE_SIZE) for length in lengths),
        "reasons": {reason for reason, holds in reasons.items() if holds},
        # The ratios that acted: 1, the one asked for, or the absolute form's share of n in ppm.
        "kv_retention": 1 if not evicts else rho if kept == share(rho, n) else ppm(kept, n),
        "tsp_ratio": 1 if not propagates else tau if rows == share(tau, n) else ppm(rows, n)}


def ppm(count, n):
    return count * 10**6 // n / 10**6
