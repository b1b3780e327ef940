// headroom serve: load, listen, answer, drain.
//
// The first SIGTERM or SIGINT drains: readiness goes to 503, new requests are refused, those in
// flight finish, exit 0. 75 when answers were cut: --shutdown-timeout passed, or a second signal
// came, which stops at once.
#include <csignal>
#include <cstdio>
#include <ctime>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/log.h"
#include "server/cli/cli.h"
#include "server/cli/commands.h"
#include "server/cli/common_flags.h"
#include "server/generation_service.h"
#include "server/http/http_server.h"
#include "server/lifecycle.h"
#include "server/metrics.h"
#include "server/runtime.h"

namespace headroom::server {
namespace {

struct ServeFlags {
  RuntimeFlags runtime;
  HttpOptions http;
  int64_t max_body_mib = 64;
  int32_t shutdown_timeout_s = 30;
};

constexpr int32_t kDrainPollMs = 20;

bool IsLoopback(const std::string& host) {
  return host == "::1" || host.starts_with("127.");
}

sigset_t StopSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

// Waits for a stop signal, at most so long; negative: for ever.
bool WaitForSignal(const sigset_t& signals, int32_t milliseconds) {
  if (milliseconds < 0) {
    int received = 0;
    return sigwait(&signals, &received) == 0;
  }
  timespec timeout{};
  timeout.tv_sec = milliseconds / 1000;
  timeout.tv_nsec = static_cast<long>(milliseconds % 1000) * 1'000'000;
  return sigtimedwait(&signals, nullptr, &timeout) > 0;
}

// Drained once nothing is queued, running or still being written.
bool Drained(Runtime& runtime, const HttpServer& http) {
  return runtime.loop().idle() && http.num_answers() == 0;
}

int Drain(Runtime& runtime, HttpServer& http, const sigset_t& signals, const Clock& clock,
          int32_t timeout_s) {
  runtime.loop().BeginDrain();
  const int64_t deadline = clock.NowNs() + int64_t{timeout_s} * 1'000'000'000;
  int code = kExitOk;
  while (!Drained(runtime, http)) {
    if (WaitForSignal(signals, kDrainPollMs)) {
      LogWarning("event=stop_now reason=\"second signal\"");
      code = kExitDrainTimedOut;
      break;
    }
    if (clock.NowNs() >= deadline) {
      LogWarning("event=drain_timed_out after_s={}", timeout_s);
      code = kExitDrainTimedOut;
      break;
    }
  }
  runtime.loop().Stop(
      MakeStatus(StatusCode::kAborted, "the server stopped before the answer was complete"));
  // Streams that were cut get their error event before the sockets close.
  for (int32_t waited = 0; http.num_answers() > 0 && waited < 1000; waited += kDrainPollMs) {
    std::this_thread::sleep_for(std::chrono::milliseconds(kDrainPollMs));
  }
  http.Stop();
  return code;
}

int Serve(ServeFlags& flags) {
  if (const Status ok = FinishRuntimeFlags(flags.runtime); !ok.ok()) {
    return ReportError(ok);
  }
  if (!IsLoopback(flags.http.host)) {
    return ReportError(InvalidArgument(
        "--host: got {}, wanted a loopback IP address such as 127.0.0.1: this server has no API "
        "keys yet",
        flags.http.host));
  }
  flags.http.max_body_bytes = flags.max_body_mib << 20;
  // Threads started from here on inherit the mask: signals reach this thread alone.
  const sigset_t signals = StopSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);

  SteadyClock clock;
  Lifecycle lifecycle;
  // Listens first: a port in use is found before the model is read, and probes have an answer.
  auto http = HttpServer::Create(flags.http, lifecycle, clock);
  if (!http.ok()) {
    ReportError(http.status());
    return kExitConfiguration;
  }
  (*http)->Start();
  auto runtime = Runtime::Create(flags.runtime.options, clock);
  if (!runtime.ok()) {
    (*http)->Stop();
    return ReportError(runtime.status());
  }
  GenerationService service(**runtime, clock);
  ServerMetrics metrics(**runtime);
  (*runtime)->loop().SetObserver(
      [&metrics](const std::vector<engine::EngineEvent>& events, int64_t step_ns) {
        metrics.ObserveStep(events, step_ns);
      });
  (*runtime)->loop().Start();
  (*http)->Attach(**runtime, service, metrics);
  lifecycle.Set(LifecycleState::kReady);
  const std::string host = flags.http.host.find(':') == std::string::npos
                               ? flags.http.host
                               : "[" + flags.http.host + "]";
  LogInfo("event=ready model={} backend={} isa={} kv_pages={} tsp_layer={} fits=\"{}\"",
          (*runtime)->model_name(), (*runtime)->backend().name(), (*runtime)->backend().isa(),
          (*runtime)->cache().pool().num_pages(), (*runtime)->shape().tsp_layer,
          (*runtime)->CapacityText());
  std::printf("Serving %s at http://%s:%d (fits %s)\n", (*runtime)->model_name().c_str(),
              host.c_str(), (*http)->port(), (*runtime)->CapacityText().c_str());
  std::fflush(stdout);

  WaitForSignal(signals, -1);
  lifecycle.Set(LifecycleState::kDraining);
  LogInfo("event=draining");
  // Its threads end in Drain, before what they were given does.
  const int code = Drain(**runtime, **http, signals, clock, flags.shutdown_timeout_s);
  LogInfo("event=stopped exit_code={}", code);
  return code;
}

}  // namespace

CommandRunner AddServeCommand(CLI::App* command) {
  auto flags = std::make_shared<ServeFlags>();
  AddRuntimeFlags(command, &flags->runtime);
  command->add_option("--host", flags->http.host, "address to listen on; loopback only")
      ->capture_default_str();
  command->add_option("--port", flags->http.port, "port to listen on; 0: any free one")
      ->capture_default_str()
      ->check(CLI::Range(0, 65535));
  command->add_option("--max-body-mib", flags->max_body_mib, "largest request body")
      ->capture_default_str()
      ->check(CLI::Range(1, 4096));
  command->add_option("--max-connections", flags->http.max_connections, "open connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  command->add_option("--sse-keep-alive-ms", flags->http.keep_alive_ms,
                      "a comment goes out after so much silence on a stream")
      ->capture_default_str()
      ->check(CLI::Range(10, 3'600'000));
  command->add_option("--shutdown-timeout", flags->shutdown_timeout_s,
                      "seconds that requests in flight may take after SIGTERM")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  return [flags] { return Serve(*flags); };
}

}  // namespace headroom::server
