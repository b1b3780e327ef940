// The HTTP transport: one I/O thread, a small pool for parsing, templates and tokenising.
//
// A connection is a Session; a generation on it is an Answer (session.h, answer.h). The I/O thread
// owns both; engine and pool threads only post to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "server/generation_service.h"
#include "server/lifecycle.h"
#include "server/metrics.h"
#include "server/runtime.h"

namespace headroom::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  int32_t port = 8000;                        // 0: any free one
  int64_t max_body_bytes = int64_t{64} << 20;
  int32_t max_connections = 1024;
  int32_t frontend_threads = 2;
  int32_t keep_alive_ms = 15'000;             // SSE comment after so much silence
  int32_t header_timeout_ms = 10'000;
  int32_t body_timeout_ms = 30'000;           // between two reads of a body
  int32_t idle_timeout_ms = 120'000;          // between two requests of a connection
  int32_t write_timeout_ms = 30'000;          // of one write: a client that reads nothing
};

class HttpServer {
 public:
  // Binds and listens; nothing is accepted before Start. Errors name the address. References
  // outlive the server.
  static StatusOr<std::unique_ptr<HttpServer>> Create(const HttpOptions& options,
                                                      const Lifecycle& lifecycle,
                                                      const Clock& clock);
  ~HttpServer();  // Stop()

  int32_t port() const;
  // Accepts. Until Attach everything but the liveness probes and /version is 503 model_loading.
  void Start();
  // Hands over what answers requests; once, after Start. They outlive the server's threads.
  void Attach(Runtime& runtime, GenerationService& service, ServerMetrics& metrics);
  // Connections that are open now. Any thread.
  int64_t num_connections() const;
  // Generations that have not been answered to the last byte. Any thread.
  int64_t num_answers() const;
  // Closes everything and joins the threads.
  void Stop();

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::server
