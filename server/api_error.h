// One error as every transport reports it: HTTP's envelope and status, later gRPC's code.
//
// The message says what, where and the allowed range; it never repeats text that the client sent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"

namespace headroom::server {

struct ApiError {
  int http_status = 500;
  // invalid_request_error, authentication_error, overloaded_error or server_error
  std::string type;
  std::string code;     // closed set: docs/api.md
  std::string message;
  std::string param;    // the field as the client wrote it; empty: null on the wire
  std::optional<int32_t> retry_after_s;  // Retry-After
};

// 400 invalid_request_error.
ApiError BadRequest(std::string code, std::string message, std::string param);

// The engine's and the models' Status as an ApiError: OutOfRange -> 400 context_length_exceeded,
// ResourceExhausted -> 400 kv_capacity_exceeded, Unavailable -> 503 queue_full, Aborted -> 503
// server_shutting_down, InvalidArgument ->
// 400 invalid_value, DeadlineExceeded -> 504 deadline_exceeded, anything else -> 500 server_error.
ApiError FromStatus(const Status& status);

}  // namespace headroom::server
