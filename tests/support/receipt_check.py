"""Recomputes a receipt from what was asked: design of the budgets, written a second time."""
import fractions

PAGE_SIZE = 16


def share(ratio, count):
    """floor(ratio * count), exactly; the ratio as it is written."""
    return int(fractions.Fraction(str(ratio)) * count)


def expect(asked, *, n, layers, kv_heads, tsp_layer, head_dim, element_bytes, suffix=0):
    """The counts of a prompt of `n` tokens whose last `suffix` ones are the template's."""
    named = {"kv_retention", "kv_retention_tokens", "tsp_ratio", "tsp_tokens"} & set(asked)
    policy = asked.get("kv_policy", "fastkv" if named else "full")
    rho = asked.get("kv_retention", 1 if named or policy == "full" else 0.2)
    tau = asked.get("tsp_ratio", 1 if named or policy != "fastkv" else 0.2)
    window = asked.get("kv_window_raw", asked.get("kv_window", 8) + suffix)
    must_keep = min(n, min(n, window) + min(n, asked.get("kv_sink_tokens", 4)))

    kept = min(share(rho, n), asked.get("kv_retention_tokens", n))
    rows = min(share(tau, n), asked.get("tsp_tokens", n))
    short = (kept < n and n < asked.get("kv_min_prompt", 512)) or (
        rows < n and n < asked.get("tsp_min_prompt", 2048))
    evicts = kept < n and n >= asked.get("kv_min_prompt", 512)
    propagates = rows < n and n >= asked.get("tsp_min_prompt", 2048)
    floor = (evicts and kept < must_keep) or (propagates and rows < must_keep)
    flags = [("short_prompt", short), ("floor", floor),
             ("no_head_map", named and "kv_policy" not in asked)]

    propagated = max(rows, must_keep) if propagates else n
    reached = [n if layer <= tsp_layer else propagated for layer in range(layers)]
    lengths = [min(slots, max(kept, must_keep)) if evicts else slots for slots in reached]
    entry_bytes = 2 * head_dim * element_bytes
    return {
        "policy": policy,
        "prompt_tokens": n,
        "propagated_tokens": propagated,
        "entries": kv_heads * sum(lengths),
        "entries_full": kv_heads * layers * n,
        "bytes": kv_heads * sum(lengths) * entry_bytes,
        "bytes_full": kv_heads * layers * n * entry_bytes,
        "pages": kv_heads * sum(-(-length // PAGE_SIZE) for length in lengths),
        "reasons": {reason for reason, holds in flags if holds},
        "kv_retention": applied(evicts, kept, rho, n),
        "tsp_ratio": applied(propagates, rows, tau, n),
    }


def applied(acts, count, ratio, n):
    """The ratio that acted: 1, the one asked for, or the absolute form's share of n in ppm."""
    if not acts:
        return 1
    return count * 10**6 // n / 10**6 if count < share(ratio, n) else ratio


def check(receipt, asked, **shape):
    """Asserts that a `kv` receipt says what follows from the fields that were sent."""
    wanted = expect(asked, **shape)
    got = {name: receipt[name] for name in wanted if name in receipt}
    got["reasons"] = set(receipt["reasons"])
    got["kv_retention"] = receipt["applied"]["kv_retention"]
    got["tsp_ratio"] = receipt["applied"]["tsp_ratio"]
    assert got == wanted, f"asked {asked} of {shape}\ngot    {got}\nwanted {wanted}"
    assert receipt["asked"] == asked, f"asked {asked}, the receipt says {receipt['asked']}"
