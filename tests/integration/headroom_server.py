"""Starts a Headroom server for one test and stops it again.

The binary is $HEADROOM_BINARY, which scripts/test.sh sets; without it, build/release is tried.
"""
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
READY_TIMEOUT_S = 120
STOP_TIMEOUT_S = 60


def binary():
    return os.environ.get("HEADROOM_BINARY", str(ROOT / "build/release/server/headroom"))


def smollm2_path():
    """The SmolLM2 GGUF, or None where it was not fetched."""
    default = pathlib.Path.home() / ".cache/headroom/SmolLM2-135M-Instruct.Q4_1.gguf"
    path = pathlib.Path(os.environ.get("HEADROOM_SMOLLM2_GGUF", default))
    return str(path) if path.is_file() else None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class HeadroomServer:
    """`with HeadroomServer("builtin:tiny", "--kv-dtype", "f32") as server:` serves on server.url.

    Leaving the block sends SIGTERM and checks that the server drained with exit status 0, unless
    the test has stopped it already. The server's log is in server.log().
    """

    def __init__(self, model, *flags):
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._log = tempfile.TemporaryFile()
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        self._command = [binary(), "serve", model, *address, *flags]
        self.process = None

    def __enter__(self):
        self.process = subprocess.Popen(
            self._command, stdin=subprocess.DEVNULL, stdout=self._log, stderr=self._log
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, kind, value, traceback):
        if self.process.poll() is not None:
            return
        if kind is not None:
            self.kill()
            return
        status = self.stop()
        if status != 0:
            raise AssertionError(f"exit status {status} after SIGTERM, wanted 0\n{self.log()}")

    def stop(self):
        """Sends SIGTERM and returns the exit status once the server has drained."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def kill(self):
        self.process.kill()
        self.process.wait()

    def log(self):
        self._log.seek(0)
        return self._log.read().decode(errors="replace")

    def _wait_until_ready(self):
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise AssertionError(f"exit status {self.process.returncode} at start\n{self.log()}")
            try:
                with urllib.request.urlopen(f"{self.url}/readyz", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        raise AssertionError(f"not ready after {READY_TIMEOUT_S} s\n{self.log()}")
