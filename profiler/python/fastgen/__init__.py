"""Profile a model's KV heads from Python, with nothing but the standard library.

    from fastgen import FastGenConfig, profile_model

    config = profile_model(model_name="model.gguf", sample_prompts=["..."], budget_ratio=0.3)
    config.save("map.json")          # then: headroom serve model.gguf --head-map map.json

Drives the `headroom` program: the one named by binary=, else by $HEADROOM_BINARY, else on the
path. The file is the one that the command line writes for the same prompts, byte for byte.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

__all__ = ["FastGenConfig", "ProfileError", "profile_model"]


class ProfileError(RuntimeError):
    """The program could not make a profile; the text is its own."""


class FastGenConfig:
    """A head map as the program wrote it."""

    def __init__(self, content):
        self._content = bytes(content)
        self._map = json.loads(self._content)

    @classmethod
    def load(cls, path):
        return cls(pathlib.Path(path).read_bytes())

    @property
    def map(self):
        """The whole map as Python values (docs/profiling.md)."""
        return self._map

    @property
    def head_types(self):
        """[layers][KV heads] of "special", "punct", "local", "heavy", "dense"."""
        return [[head["type"] for head in layer["kv"]] for layer in self._map["layers"]]

    @property
    def content(self):
        """The bytes of the file."""
        return self._content

    def save(self, path):
        """Writes the file whole or not at all."""
        path = pathlib.Path(path)
        handle, beside = tempfile.mkstemp(prefix=path.name + ".", dir=path.parent)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self._content)
                file.flush()
                os.fsync(file.fileno())
            # mkstemp makes files for their owner alone; a map is an ordinary file.
            umask = os.umask(0)
            os.umask(umask)
            os.chmod(beside, 0o666 & ~umask)
            os.replace(beside, path)
        except BaseException:
            os.unlink(beside)
            raise


def _find_binary(binary):
    named = binary or os.environ.get("HEADROOM_BINARY") or "headroom"
    found = shutil.which(named)
    if found is None:
        raise ProfileError(f"{named}: no such program; name it by binary= or $HEADROOM_BINARY")
    return found


def _ratio(value, name):
    text = f"{float(value):.6f}".rstrip("0").rstrip(".")
    if not 0.0 < float(text) <= 1.0:
        raise ValueError(f"{name}: got {value}, wanted a ratio in (0, 1]")
    return text


def profile_model(model_name, sample_prompts, budget_ratio=0.3, target_recovery=0.95, seed=1,
                  validate=True, threads=0, report=None, binary=None, extra_flags=(), quiet=True):
    """Types every KV head of a model on the prompts; returns a FastGenConfig.

    sample_prompts: texts, or dicts as the lines of a prompt file (text, messages or token_ids, and
    domain, weight, ...). report: also write the HTML report there. Raises ProfileError.
    """
    lines = []
    for prompt in sample_prompts:
        record = prompt if isinstance(prompt, dict) else {"text": str(prompt)}
        lines.append(json.dumps(record, ensure_ascii=False) + "\n")
    with tempfile.TemporaryDirectory(prefix="fastgen-") as folder:
        prompts = pathlib.Path(folder) / "prompts.jsonl"
        prompts.write_text("".join(lines), encoding="utf-8")
        out = pathlib.Path(folder) / "map.json"
        command = [_find_binary(binary), "profile", str(model_name), "--prompts", str(prompts),
                   "--out", str(out), "--budget-ratio", _ratio(budget_ratio, "budget_ratio"),
                   "--target-recovery", _ratio(target_recovery, "target_recovery"),
                   "--seed", str(int(seed)), "--threads", str(int(threads))]
        command += [] if validate else ["--no-validate"]
        command += ["--report", str(report)] if report is not None else []
        command += ["--quiet"] if quiet else []
        command += [str(flag) for flag in extra_flags]
        done = subprocess.run(command, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE if quiet else None, check=False)
        if done.returncode != 0:
            said = (done.stderr or b"").decode("utf-8", "replace").strip()
            raise ProfileError(said or f"headroom profile ended with status {done.returncode}")
        return FastGenConfig(out.read_bytes())
