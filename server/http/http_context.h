// What every session of one HttpServer shares. I/O thread unless said otherwise.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/thread_pool.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "server/generation_service.h"
#include "server/http/http_server.h"
#include "server/lifecycle.h"
#include "server/metrics.h"
#include "server/runtime.h"

namespace headroom::server {

// What exists once the model is loaded.
struct ServingParts {
  Runtime& runtime;
  GenerationService& service;
  ServerMetrics& metrics;
};

struct HttpContext {
  HttpContext(const HttpOptions& options_in, const Lifecycle& lifecycle_in, const Clock& clock_in,
              boost::asio::io_context& io_in, boost::asio::thread_pool& frontend_in)
      : options(options_in),
        lifecycle(lifecycle_in),
        clock(clock_in),
        io(io_in),
        frontend(frontend_in) {}

  HttpOptions options;
  std::optional<ServingParts> serving;  // unset while the model loads; I/O thread
  const Lifecycle& lifecycle;
  const Clock& clock;
  boost::asio::io_context& io;
  boost::asio::thread_pool& frontend;
  std::atomic<int64_t> num_connections{0};
  std::atomic<int64_t> num_answers{0};
  uint64_t next_id = 1;   // of requests
  std::string id_prefix;  // random, so that ids of two processes differ

  std::string NextRequestId() { return fmt::format("req-{}-{}", id_prefix, next_id++); }
  void SetConnections(int64_t count) {
    if (serving.has_value()) {
      serving->metrics.SetConnections(count);
    }
  }
};

}  // namespace headroom::server
