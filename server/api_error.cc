#include "server/api_error.h"

#include <utility>

namespace headroom::server {

ApiError BadRequest(std::string code, std::string message, std::string param) {
  ApiError error;
  error.http_status = 400;
  error.type = "invalid_request_error";
  error.code = std::move(code);
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

ApiError FromStatus(const Status& status) {
  const std::string message = StatusMessage(status);
  ApiError error;
  error.message = message;
  switch (status.code()) {
    case StatusCode::kOutOfRange:
      return BadRequest("context_length_exceeded", message, "");
    case StatusCode::kResourceExhausted:
      return BadRequest("kv_capacity_exceeded", message, "");
    case StatusCode::kInvalidArgument:
      return BadRequest("invalid_value", message, "");
    case StatusCode::kUnavailable:
      error.http_status = 503;
      error.type = "overloaded_error";
      error.code = "queue_full";
      error.retry_after_s = 1;
      return error;
    case StatusCode::kAborted:
      error.http_status = 503;
      error.type = "overloaded_error";
      error.code = "server_shutting_down";
      error.retry_after_s = 5;
      return error;
    case StatusCode::kDeadlineExceeded:
      error.http_status = 504;
      error.type = "timeout_error";
      error.code = "deadline_exceeded";
      return error;
    default:
      error.type = "server_error";
      error.code = "internal_error";
      return error;
  }
}

}  // namespace headroom::server
