"""Holds a `kv` receipt against the fields of the request that it answers."""
import receipt_check

ABSOLUTE_AND_LIMITS = {"kv_retention_tokens": "rho_tokens", "tsp_tokens": "tau_tokens",
                       "kv_min_prompt": "kv_min_prompt", "tsp_min_prompt": "tsp_min_prompt",
                       "kv_sink_tokens": "sinks"}


def expect(asked, *, suffix=0, **shape):
    """What follows from `asked`, defaults filled in; the prompt's last `suffix` tokens are the
    template's."""
    named = {"kv_retention", "kv_retention_tokens", "tsp_ratio", "tsp_tokens"} & set(asked)
    policy = asked.get("kv_policy", "fastkv" if named else "full")
    wanted = receipt_check.expect(
        rho=asked.get("kv_retention", 1 if named or policy == "full" else 0.2),
        tau=asked.get("tsp_ratio", 1 if named or policy != "fastkv" else 0.2),
        window=asked.get("kv_window_raw", asked.get("kv_window", 8) + suffix),
        **{name: asked[field] for field, name in ABSOLUTE_AND_LIMITS.items() if field in asked},
        **shape)
    wanted["policy"] = policy
    if named and "kv_policy" not in asked:
        wanted["reasons"].add("no_head_map")
    return wanted


def check(receipt, asked, **shape):
    """Asserts that the receipt says what follows from the fields that were sent."""
    wanted = expect(asked, **shape)
    got = {name: receipt[name] for name in wanted if name in receipt}
    got["reasons"] = set(receipt["reasons"])
    got["kv_retention"] = receipt["applied"]["kv_retention"]
    got["tsp_ratio"] = receipt["applied"]["tsp_ratio"]
    assert got == wanted, f"asked {asked} of {shape}\ngot    {got}\nwanted {wanted}"
    assert receipt["asked"] == asked, f"asked {asked}, the receipt says {receipt['asked']}"
