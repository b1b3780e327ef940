"""scripts/quickstart.sh, with the model and as on a machine without network."""
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import sys
import time

import pytest

from conftest import ROOT

SCRIPT = ROOT / "scripts/quickstart.sh"
CACHED_MODEL = pathlib.Path(os.environ.get(
    "HEADROOM_CACHE", pathlib.Path.home() / ".cache/headroom")) / "SmolLM2-135M-Instruct.Q4_1.gguf"

pytestmark = pytest.mark.skipif(not (ROOT / "build/release/server/headroom").exists(),
                                reason="nothing is built in build/release")


def offline(tmp_path):
    """No cached model, and a pip that asks nobody."""
    return {**os.environ, "HEADROOM_CACHE": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"}


def check(environment):
    return subprocess.run([SCRIPT, "--check"], env=environment, capture_output=True, text=True,
                          timeout=300)


def test_check_asks_smollm2_for_the_capital_of_france():
    if not CACHED_MODEL.exists():
        pytest.skip("SmolLM2 is not in the cache folder")
    result = check(dict(os.environ))
    assert result.returncode == 0, result.stderr
    assert "Paris" in result.stdout


def test_check_without_network_serves_the_built_in_model_and_says_so(tmp_path):
    result = check(offline(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "Serving needle-1hop" in result.stdout
    assert "without network" in result.stderr
    assert re.search(r"answer ids: \[\d+(, \d+)*\]", result.stdout)


def test_a_port_in_use_is_named_instead_of_asked(tiny, tmp_path):
    result = subprocess.run([SCRIPT, "--check", "--port", str(tiny.port)], env=offline(tmp_path),
                            capture_output=True, text=True, timeout=300)
    assert result.returncode == 1
    assert f"port {tiny.port} is in use" in result.stderr and "answer" not in result.stdout


def read_until(process, ending, seconds):
    text, deadline = "", time.monotonic() + seconds
    while ending not in text:
        ready, _, _ = select.select([process.stdout], [], [], deadline - time.monotonic())
        assert ready, f"not printed within {seconds} s: {ending}\n{text}"
        chunk = os.read(process.stdout.fileno(), 65536).decode()
        assert chunk, text
        text += chunk
    return text


@pytest.mark.parametrize("has_model", [True, False])
def test_the_printed_requests_work_as_they_are(tmp_path, has_model):
    if has_model and not CACHED_MODEL.exists():
        pytest.skip("SmolLM2 is not in the cache folder")
    environment = dict(os.environ) if has_model else offline(tmp_path)
    port = subprocess.run([sys.executable, ROOT / "scripts/quickstart_request.py", "free-port"],
                          capture_output=True, text=True, check=True).stdout.strip()
    with subprocess.Popen([SCRIPT, "--port", port], env=environment, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as process:
        try:
            text = read_until(process, "stops the server.", 300)
            command = re.search(r"^curl (?:.*\\\n)*.*$", text, re.MULTILINE).group()
            curl = subprocess.run(["bash", "-c", command], capture_output=True, text=True,
                                  timeout=120, check=True)
            snippet = text[text.index("pip install openai`:") + 20:text.rindex("\n\n")]
            python = subprocess.run([sys.executable, "-c", snippet], capture_output=True, text=True,
                                    timeout=120)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
    choice = json.loads(curl.stdout)["choices"][0]
    assert python.returncode == 0, python.stderr
    if has_model:
        assert "Paris" in choice["message"]["content"] and "Paris" in python.stdout
        assert "entries" in python.stdout
    else:
        got, wanted = python.stdout.split(" wanted ")
        assert json.loads(got) == json.loads(wanted) == choice["token_ids"]
