// Prometheus metrics of the server. Labels come from closed sets only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/request.h"
#include "server/runtime.h"

namespace headroom::server {

class ServerMetrics {
 public:
  // `runtime` outlives the metrics; its loop is not started yet.
  explicit ServerMetrics(Runtime& runtime);
  ~ServerMetrics();

  // Engine thread, after each step.
  void ObserveStep(const std::vector<engine::EngineEvent>& events, int64_t step_ns);

  // Transports; any thread. `endpoint` is one of a fixed set of route names.
  void CountResponse(const char* endpoint, int status);
  void ObserveTimeToFirstToken(double seconds);
  void ObserveInterTokenLatency(double seconds);
  void ObserveEndToEnd(double seconds);
  void CountUnknownFields(int64_t count);
  void SetConnections(int64_t count);

  // The text exposition format. Any thread; never waits for the engine.
  std::string Text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headroom::server
